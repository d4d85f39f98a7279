# shellcheck shell=bash
step "Service accounts"
value ACCOUNTS ACCOUNTS gcloud iam service-accounts list --format='value(email)'
account() { # name, email, display name
	compare "service account $1" "$2" "$(grep -xF -- "$2" <<<"$ACCOUNTS" || true)"
	create gcloud iam service-accounts create "$1" --display-name="$3"
}
account "$SETTLE_ACCOUNT" "$SETTLE_EMAIL" 'Settle Once: SettlePayout'
account "$RECONCILE_ACCOUNT" "$RECONCILE_EMAIL" 'Settle Once: ReconcileBank'
account "$TRIGGER_ACCOUNT" "$TRIGGER_EMAIL" 'Settle Once: calls the functions'
account "$BUILD_ACCOUNT" "$BUILD_EMAIL" 'Settle Once: builds the functions'
account "$OPERATOR_ACCOUNT" "$OPERATOR_EMAIL" 'Settle Once: operators, by impersonation'

about "The build account reads the source and writes the image and the build log."
grant roles/cloudbuild.builds.builder "serviceAccount:$BUILD_EMAIL" projects "$PROJECT_ID"

about "For settlectl doctor."
grant roles/pubsub.viewer "serviceAccount:$OPERATOR_EMAIL" projects "$PROJECT_ID"
grant roles/cloudfunctions.viewer "serviceAccount:$OPERATOR_EMAIL" projects "$PROJECT_ID"

about "Pub/Sub calls the functions with tokens of the trigger's account. Projects from before April 2021 need this grant."
grant roles/iam.serviceAccountTokenCreator "$PUBSUB_AGENT" "iam service-accounts" "$TRIGGER_EMAIL"

for member in $OPERATORS; do
	grant roles/iam.serviceAccountTokenCreator "$member" "iam service-accounts" "$OPERATOR_EMAIL"
done
