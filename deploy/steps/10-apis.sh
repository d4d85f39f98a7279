# shellcheck shell=bash
step "APIs"
services=(
	artifactregistry.googleapis.com     # the functions' images
	cloudbuild.googleapis.com           # builds them
	cloudfunctions.googleapis.com       # the functions
	cloudresourcemanager.googleapis.com # the project's number and policy
	cloudscheduler.googleapis.com       # triggers ReconcileBank
	eventarc.googleapis.com             # the functions' triggers
	iam.googleapis.com                  # service accounts
	logging.googleapis.com              # log-based metrics
	monitoring.googleapis.com           # dashboard and alerts
	pubsub.googleapis.com               # topics
	run.googleapis.com                  # where the functions run
	secretmanager.googleapis.com        # the bank's token
	spanner.googleapis.com              # the database
)
resource "the APIs" "$(printf '%s\n' "${services[@]}")" \
	gcloud services list --enabled --filter="config.name=(${services[*]})" --sort-by=config.name --format='value(config.name)'
ensure gcloud services enable "${services[@]}"

if [[ $VERDICT != same ]]; then
	about "This account calls the functions and forwards dead letters. Google creates it on first use."
	compare "the service agent of Pub/Sub" there ''
	create gcloud beta services identity create --service=pubsub.googleapis.com
fi

value PROJECT_NUMBER PROJECT_NUMBER gcloud projects describe "$PROJECT_ID" --format='value(projectNumber)'
# shellcheck disable=SC2034 # the steps after this one use it
PUBSUB_AGENT=serviceAccount:service-$PROJECT_NUMBER@gcp-sa-pubsub.iam.gserviceaccount.com
