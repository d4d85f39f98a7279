# shellcheck shell=bash
step "Subscriptions of the triggers"
about "Eventarc created it with a retention of 24 hours and without dead letters."
grant roles/pubsub.subscriber "$PUBSUB_AGENT" "pubsub subscriptions" "$SETTLE_SUBSCRIPTION"
resource "subscription $SETTLE_SUBSCRIPTION of $SETTLE_FUNCTION" \
	"$(fields "$(seconds "$SETTLE_ACK_DEADLINE")" "$(seconds "$SUBSCRIPTION_RETENTION")s" '' \
		"$(seconds "$RETRY_MIN")s" "$(seconds "$RETRY_MAX")s" \
		"projects/$PROJECT_ID/topics/$DEAD_LETTER_TOPIC" "$MAX_DELIVERY_ATTEMPTS")" \
	gcloud pubsub subscriptions describe "$SETTLE_SUBSCRIPTION" \
	--format='value(ackDeadlineSeconds,messageRetentionDuration,expirationPolicy.ttl,retryPolicy.minimumBackoff,retryPolicy.maximumBackoff,deadLetterPolicy.deadLetterTopic,deadLetterPolicy.maxDeliveryAttempts)'
change gcloud pubsub subscriptions update "$SETTLE_SUBSCRIPTION" --ack-deadline="$(seconds "$SETTLE_ACK_DEADLINE")" \
	--message-retention-duration="$SUBSCRIPTION_RETENTION" --expiration-period=never \
	--min-retry-delay="$RETRY_MIN" --max-retry-delay="$RETRY_MAX" \
	--dead-letter-topic="$DEAD_LETTER_TOPIC" --max-delivery-attempts="$MAX_DELIVERY_ATTEMPTS"

about "Ticks need no redelivery after a minute: the least retention, and no dead letters."
resource "subscription $RECONCILE_SUBSCRIPTION of $RECONCILE_FUNCTION" \
	"$(fields "$(seconds "$RECONCILE_ACK_DEADLINE")" 600s '' "$(seconds "$RETRY_MIN")s" "$(seconds "$RETRY_MAX")s")" \
	gcloud pubsub subscriptions describe "$RECONCILE_SUBSCRIPTION" \
	--format='value(ackDeadlineSeconds,messageRetentionDuration,expirationPolicy.ttl,retryPolicy.minimumBackoff,retryPolicy.maximumBackoff)'
change gcloud pubsub subscriptions update "$RECONCILE_SUBSCRIPTION" --ack-deadline="$(seconds "$RECONCILE_ACK_DEADLINE")" \
	--message-retention-duration=10m --expiration-period=never --min-retry-delay="$RETRY_MIN" --max-retry-delay="$RETRY_MAX"
