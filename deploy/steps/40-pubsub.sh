# shellcheck shell=bash
step "Pub/Sub"
schema_flags=()
if [[ -n $PAYOUT_SCHEMA ]]; then
	about "Pub/Sub rejects a message that does not match this schema, with an error to its publisher."
	resource "message schema $PAYOUT_SCHEMA" "$(<deploy/payout.v1.proto)" \
		gcloud pubsub schemas describe "$PAYOUT_SCHEMA" --format='value(definition)'
	create gcloud pubsub schemas create "$PAYOUT_SCHEMA" --type=protocol-buffer --definition-file=deploy/payout.v1.proto
	change gcloud pubsub schemas commit "$PAYOUT_SCHEMA" --type=protocol-buffer --definition-file=deploy/payout.v1.proto
	schema_flags=(--schema="$PAYOUT_SCHEMA" --message-encoding=json)
fi

schema_name=${PAYOUT_SCHEMA:+projects/$PROJECT_ID/schemas/$PAYOUT_SCHEMA}
resource "topic $PAYOUTS_TOPIC" "$(fields "$PAYOUTS_TOPIC" "$(seconds "$TOPIC_RETENTION")s" "$schema_name" "${schema_name:+JSON}")" \
	gcloud pubsub topics describe "$PAYOUTS_TOPIC" \
	--format='value(name.basename(),messageRetentionDuration,schemaSettings.schema,schemaSettings.encoding)'
create gcloud pubsub topics create "$PAYOUTS_TOPIC" --message-retention-duration="$TOPIC_RETENTION" "${schema_flags[@]}"
change gcloud pubsub topics update "$PAYOUTS_TOPIC" --message-retention-duration="$TOPIC_RETENTION" \
	"${schema_flags[@]:---clear-schema-settings}"

about "The scheduler's ticks need no retention: a new one comes every minute."
resource "topic $RECONCILE_TOPIC" "$RECONCILE_TOPIC" \
	gcloud pubsub topics describe "$RECONCILE_TOPIC" --format='value(name.basename())'
create gcloud pubsub topics create "$RECONCILE_TOPIC"

resource "topic $DEAD_LETTER_TOPIC" "$(fields "$DEAD_LETTER_TOPIC" "$(seconds "$DEAD_LETTER_RETENTION")s")" \
	gcloud pubsub topics describe "$DEAD_LETTER_TOPIC" --format='value(name.basename(),messageRetentionDuration)'
create gcloud pubsub topics create "$DEAD_LETTER_TOPIC" --message-retention-duration="$DEAD_LETTER_RETENTION"
change gcloud pubsub topics update "$DEAD_LETTER_TOPIC" --message-retention-duration="$DEAD_LETTER_RETENTION"

about "Keeps the dead letters for operators. By default Pub/Sub deletes a subscription after 31 days without a pull."
resource "subscription $DEAD_LETTER_SUBSCRIPTION" "$(fields "$(seconds "$DEAD_LETTER_RETENTION")s" '')" \
	gcloud pubsub subscriptions describe "$DEAD_LETTER_SUBSCRIPTION" \
	--format='value(messageRetentionDuration,expirationPolicy.ttl)'
create gcloud pubsub subscriptions create "$DEAD_LETTER_SUBSCRIPTION" --topic="$DEAD_LETTER_TOPIC" --ack-deadline=60 \
	--message-retention-duration="$DEAD_LETTER_RETENTION" --expiration-period=never
change gcloud pubsub subscriptions update "$DEAD_LETTER_SUBSCRIPTION" \
	--message-retention-duration="$DEAD_LETTER_RETENTION" --expiration-period=never

for member in $PUBLISHERS; do
	grant roles/pubsub.publisher "$member" "pubsub topics" "$PAYOUTS_TOPIC"
done

about "The operator publishes released messages and pulls dead letters."
grant roles/pubsub.publisher "serviceAccount:$OPERATOR_EMAIL" "pubsub topics" "$PAYOUTS_TOPIC"
grant roles/pubsub.subscriber "serviceAccount:$OPERATOR_EMAIL" "pubsub subscriptions" "$DEAD_LETTER_SUBSCRIPTION"

about "Pub/Sub's service agent forwards dead letters. Without this grant Pub/Sub redelivers them for ever."
grant roles/pubsub.publisher "$PUBSUB_AGENT" "pubsub topics" "$DEAD_LETTER_TOPIC"
