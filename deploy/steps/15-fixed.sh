# shellcheck shell=bash
step "Immutable properties"
pinned "the configuration of instance $SPANNER_INSTANCE" "$SPANNER_CONFIG" \
	"Set another SPANNER_INSTANCE, or the old SPANNER_CONFIG." \
	gcloud spanner instances describe "$SPANNER_INSTANCE" --format='value(config.basename())'
pinned "the topic of subscription $DEAD_LETTER_SUBSCRIPTION" "$DEAD_LETTER_TOPIC" \
	"Set another DEAD_LETTER_SUBSCRIPTION, or the old DEAD_LETTER_TOPIC." \
	gcloud pubsub subscriptions describe "$DEAD_LETTER_SUBSCRIPTION" --format='value(topic.basename())'

value FUNCTIONS FUNCTIONS gcloud functions list --format='value(name.basename(),name.segment(3))'
trigger_stays() { # function, topic
	local why="Another trigger gets another subscription, and the messages in this one are lost. Set the old value, or see 'Another topic or region' in deploy/README.md."
	local elsewhere
	elsewhere=$(awk -v name="$1" -v region="$REGION" '$1 == name && $2 != region { print $2 }' <<<"$FUNCTIONS")
	[[ -z $elsewhere ]] || fail "function $1 is in $elsewhere, and the settings have REGION $REGION. $why"
	pinned "the trigger of function $1" \
		"$(fields "projects/$PROJECT_ID/topics/$2" "$REGION" RETRY_POLICY_RETRY "$TRIGGER_EMAIL")" "$why" \
		gcloud functions describe "$1" --region="$REGION" \
		--format='value(eventTrigger.pubsubTopic,eventTrigger.triggerRegion,eventTrigger.retryPolicy,eventTrigger.serviceAccountEmail)'
}
trigger_stays "$SETTLE_FUNCTION" "$PAYOUTS_TOPIC"
trigger_stays "$RECONCILE_FUNCTION" "$RECONCILE_TOPIC"
