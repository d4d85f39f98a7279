# shellcheck shell=bash
step "Scheduler"
about "Cloud Scheduler's service agent publishes the ticks; enabling the API granted it that right."
job=("$RECONCILE_JOB" --location="$REGION" --schedule="$RECONCILE_CRON" --time-zone=Etc/UTC
	--topic="projects/$PROJECT_ID/topics/$RECONCILE_TOPIC" --message-body=tick)
resource "job $RECONCILE_JOB" "$(fields "$RECONCILE_CRON" Etc/UTC "projects/$PROJECT_ID/topics/$RECONCILE_TOPIC")" \
	gcloud scheduler jobs describe "$RECONCILE_JOB" --location="$REGION" \
	--format='value(schedule,timeZone,pubsubTarget.topicName)'
create gcloud scheduler jobs create pubsub "${job[@]}"
change gcloud scheduler jobs update pubsub "${job[@]}"
