package doctor

import (
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// deletedTopic is the name that Pub/Sub gives instead of a deleted topic.
const deletedTopic = "_deleted-topic_"

// leastOutage is an outage that must not dead-letter any message.
const leastOutage = time.Hour

const (
	// anotherSubscription is the remedy for a subscription that is not the trigger's.
	anotherSubscription = "set --subscription to that of the function's trigger: gcloud eventarc triggers list --format='value(transport.pubsub.subscription)'"
	noDeadLetterPolicy  = "there is no dead-letter policy"
)

// seconds formats a duration for gcloud.
func seconds(d time.Duration) string { return fmt.Sprintf("%ds", int64(d/time.Second)) }

func update(kind, name, flags string) string {
	return fmt.Sprintf("gcloud pubsub %s update %s --project=%s %s", kind, last(name), project(name), flags)
}

func (s State) update(flags string) string {
	return update("subscriptions", s.SubscriptionName, flags)
}

func (s State) deadLetterTopic() string {
	return s.Subscription.Value.GetDeadLetterPolicy().GetDeadLetterTopic()
}

func (s State) retention() time.Duration {
	return s.Subscription.Value.GetMessageRetentionDuration().AsDuration()
}

// retention returns the longest time after which a dead letter can come back.
func (d DeadLetters) retention() time.Duration {
	longest := d.Topic.GetMessageRetentionDuration().AsDuration()
	for _, s := range d.Subscriptions {
		longest = max(longest, s.GetMessageRetentionDuration().AsDuration())
	}
	return longest
}

// expires returns the time without use after which Pub/Sub deletes a subscription;
// zero: never. A policy without a time means never, no policy 31 days.
func expires(sub *pubsubpb.Subscription) time.Duration {
	if policy := sub.GetExpirationPolicy(); policy != nil {
		return policy.GetTtl().AsDuration()
	}
	return 31 * day
}

func (s State) delivery() Finding {
	switch sub := s.Subscription.Value; {
	case sub.GetTopic() == deletedTopic:
		return Fail.finding("its topic was deleted").remedy("recreate the topic and the trigger, and publish the lost messages again")
	case sub.GetDetached():
		return Fail.finding("it is detached from its topic and has lost its backlog").remedy("recreate the trigger, and publish the lost messages again")
	case sub.GetPushConfig().GetPushEndpoint() == "":
		return Fail.finding("a pull subscription: Pub/Sub does not push its messages to the function").remedy(anotherSubscription)
	default:
		return OK.finding("pushes from topic %s", last(sub.GetTopic()))
	}
}

func (s State) ackDeadline() Finding {
	timeout, deadline := s.Function.Value.Timeout, time.Duration(s.Subscription.Value.GetAckDeadlineSeconds())*time.Second
	if timeout < deadline {
		return OK.finding("function %s < ack deadline %s", span(timeout), span(deadline))
	}
	f := Fail.finding("function %s >= ack deadline %s: redelivered during the first delivery", span(timeout), span(deadline))
	if timeout >= 600*time.Second {
		return f.remedy("lower the function's timeout: the longest ack deadline is 600s")
	}
	return f.remedy("%s", s.update(fmt.Sprintf("--ack-deadline=%d", min(int64(600), int64(timeout/time.Second)+30))))
}

func (s State) retry() Finding {
	policy := s.Subscription.Value.GetRetryPolicy()
	if policy == nil {
		return Warn.finding("none: a failed message is redelivered at once, and an outage soon dead-letters it").
			remedy("%s", s.update("--min-retry-delay=10s --max-retry-delay=600s"))
	}
	return OK.finding("%s to %s", span(policy.GetMinimumBackoff().AsDuration()), span(policy.GetMaximumBackoff().AsDuration()))
}

func (s State) deadLetterPolicy() Finding {
	sub, retention := s.Subscription.Value, s.retention()
	attempts, backoff := sub.GetDeadLetterPolicy().GetMaxDeliveryAttempts(), sub.GetRetryPolicy().GetMaximumBackoff().AsDuration()
	// A message is dead-lettered after its pauses, or also after one ack deadline per
	// delivery. Pub/Sub shortens the first pauses, so both are upper bounds.
	pauses := time.Duration(attempts) * backoff
	most := pauses + time.Duration(attempts)*time.Duration(sub.GetAckDeadlineSeconds())*time.Second
	figures := fmt.Sprintf("%d attempts, pauses up to %s: %s to %s with the deliveries", attempts, span(backoff), span(pauses), span(most))
	switch {
	case s.deadLetterTopic() == "":
		return Fail.finding("none: a message that is not settled within %s is lost", span(retention)).
			remedy("%s", s.update("--dead-letter-topic=TOPIC --max-delivery-attempts=100"))
	case most >= retention:
		return Fail.finding("%s >= retention %s: a message is lost before it is dead-lettered", figures, span(retention)).
			remedy("%s", s.update("--message-retention-duration=7d"))
	case sub.GetRetryPolicy() != nil && pauses < leastOutage:
		return Warn.finding("%s: an outage of %s dead-letters every message", figures, span(pauses)).
			remedy("%s", s.update("--max-retry-delay=600s --max-delivery-attempts=100"))
	default:
		return OK.finding("%s < retention %s", figures, span(retention))
	}
}

func (s State) expiry() Finding {
	if expires := expires(s.Subscription.Value); expires != 0 {
		return Warn.finding("deleted after %s without use", span(expires)).remedy("%s", s.update("--expiration-period=never"))
	}
	return OK.finding("never")
}

func (s State) deadLetterSubscription() Finding {
	topic := s.deadLetterTopic()
	var names []string
	for _, sub := range s.DeadLetters.Value.Subscriptions {
		if !sub.GetDetached() {
			names = append(names, last(sub.GetName()))
		}
	}
	switch {
	case topic == "":
		return Fail.finding(noDeadLetterPolicy)
	case s.DeadLetters.Value.Topic == nil:
		return Fail.finding("dead-letter topic %s does not exist", last(topic)).
			remedy("gcloud pubsub topics create %s --project=%s --message-retention-duration=31d", last(topic), project(topic))
	case len(names) == 0:
		return Fail.finding("%s has no subscription: Pub/Sub drops the dead letters", last(topic)).
			remedy("gcloud pubsub subscriptions create %[1]s --topic=%[1]s --project=%[2]s --message-retention-duration=31d --expiration-period=never",
				last(topic), project(topic))
	default:
		return OK.finding("%s on %s", strings.Join(names, ", "), last(topic))
	}
}

func (s State) deadLetterRetention() Finding {
	var (
		longest   *pubsubpb.Subscription
		retention time.Duration
	)
	for _, sub := range s.DeadLetters.Value.Subscriptions {
		if kept := sub.GetMessageRetentionDuration().AsDuration(); !sub.GetDetached() && kept >= retention {
			longest, retention = sub, kept
		}
	}
	change := func(flag string) string { return update("subscriptions", longest.GetName(), flag) }
	switch {
	case s.deadLetterTopic() == "":
		return Fail.finding(noDeadLetterPolicy)
	case longest == nil:
		return Fail.finding("no subscription keeps them")
	case expires(longest) != 0:
		return Fail.finding("%s is deleted with its messages after %s without a pull", last(longest.GetName()), span(expires(longest))).
			remedy("%s", change("--expiration-period=never"))
	case retention < leastDeadLetters:
		return Warn.finding("%s < %s for an operator to handle them", span(retention), span(leastDeadLetters)).
			remedy("%s", change("--message-retention-duration=31d"))
	default:
		return OK.finding("%s, topic %s", span(retention), span(s.DeadLetters.Value.Topic.GetMessageRetentionDuration().AsDuration()))
	}
}

func (s State) topicRetention() Finding {
	own, sub := s.Topic.Value.GetMessageRetentionDuration().AsDuration(), s.retention()
	if own < sub {
		return Warn.finding("topic %s < subscription %s: the topic cannot restore the backlog of a lost subscription", span(own), span(sub)).
			remedy("%s", update("topics", s.Topic.Value.GetName(), "--message-retention-duration="+seconds(sub)))
	}
	return OK.finding("topic %s >= subscription %s", span(own), span(sub))
}

func (s State) messageSchema() Finding {
	settings := s.Topic.Value.GetSchemaSettings()
	switch name := last(settings.GetSchema()); {
	case name == "":
		return OK.finding("none: the topic accepts every message, and the function quarantines the malformed ones")
	case settings.GetEncoding() != pubsubpb.Encoding_JSON:
		return Fail.finding("%s in encoding %s: the function reads JSON", name, settings.GetEncoding()).
			remedy("%s", update("topics", s.Topic.Value.GetName(), fmt.Sprintf("--schema=%s --message-encoding=json", name)))
	default:
		return OK.finding("%s, JSON", name)
	}
}
