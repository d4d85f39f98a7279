package doctor

import (
	"fmt"
	"strings"
	"time"
)

// deletedTopic is what Pub/Sub names as the topic of what has lost its topic.
const deletedTopic = "_deleted-topic_"

// leastOutage is the outage that a message should outlast before it is
// dead-lettered.
const leastOutage = time.Hour

// seconds writes a duration as gcloud takes it.
func seconds(d time.Duration) string { return fmt.Sprintf("%ds", int64(d/time.Second)) }

func update(kind, name, flags string) string {
	return fmt.Sprintf("gcloud pubsub %s update %s --project=%s %s", kind, last(name), project(name), flags)
}

func (s State) update(flags string) string {
	return update("subscriptions", s.SubscriptionName, flags)
}

// onSubscription begins a finding about the subscription; read is false, and the
// finding Unknown, where that could not be read.
func (s State) onSubscription(check string) (f Finding, sub Subscription, read bool) {
	f = Finding{Check: check}
	if !s.Subscription.Read {
		f.Figures = notRead
	}
	return f, s.Subscription.Value, s.Subscription.Read
}

// notRead is what can be said where the subscription could not be read. Why not
// stands once, with the check of the subscription itself.
const notRead = "the subscription was not read"

func (s State) delivery() Finding {
	f, sub, read := s.onSubscription("subscription")
	switch {
	case !read:
		f.Figures = s.Subscription.why()
	case sub.Topic == deletedTopic:
		f.Status, f.Figures = Fail, "its topic was deleted"
		f.Remedy = "make the topic and the trigger again, and publish again what was lost"
	case sub.Detached:
		f.Status, f.Figures = Fail, "it is detached from its topic and has lost its backlog"
		f.Remedy = "make the trigger again, and publish again what was lost"
	case sub.PushEndpoint == "":
		f.Status, f.Figures = Fail, "a pull subscription: nothing brings its messages to the function"
		f.Remedy = "give --subscription the one of the function's trigger: gcloud eventarc triggers list --format='value(transport.pubsub.subscription)'"
	default:
		f.Status, f.Figures = OK, fmt.Sprintf("pushes from topic %s", last(sub.Topic))
	}
	return f
}

func (s State) ackDeadline() Finding {
	f, sub, read := s.onSubscription("ack deadline")
	switch timeout := s.Function.Value.Timeout; {
	case !read:
	case !s.Function.Read:
		f.Figures = "the function: " + s.Function.why()
	case timeout >= sub.AckDeadline:
		f.Status = Fail
		f.Figures = fmt.Sprintf("function %s >= ack deadline %s: delivered again while the first delivery works", span(timeout), span(sub.AckDeadline))
		f.Remedy = s.update(fmt.Sprintf("--ack-deadline=%d", min(int64(600), int64(timeout/time.Second)+30)))
		if timeout >= 600*time.Second {
			f.Remedy = "lower the function's timeout: no ack deadline is longer than 600s"
		}
	default:
		f.Status, f.Figures = OK, fmt.Sprintf("function %s < ack deadline %s", span(timeout), span(sub.AckDeadline))
	}
	return f
}

// patience is how long it takes until a message is dead-lettered: at least the
// pauses, at most each delivery's ack deadline too. The pauses grow, so that the
// first ones are shorter: this is the most.
func (sub Subscription) patience() (pauses, most time.Duration) {
	pauses = time.Duration(sub.MaxAttempts) * sub.MaxBackoff
	return pauses, pauses + time.Duration(sub.MaxAttempts)*sub.AckDeadline
}

func (s State) retry() Finding {
	f, sub, read := s.onSubscription("retry policy")
	switch {
	case !read:
	case !sub.Retry:
		f.Status, f.Figures = Warn, "none: what fails is delivered again at once, and is soon dead-lettered in an outage"
		f.Remedy = s.update("--min-retry-delay=10s --max-retry-delay=600s")
	default:
		f.Status, f.Figures = OK, fmt.Sprintf("%s to %s", span(sub.MinBackoff), span(sub.MaxBackoff))
	}
	return f
}

func (s State) deadLetterPolicy() Finding {
	f, sub, read := s.onSubscription("dead-letter policy")
	if !read {
		return f
	}
	pauses, most := sub.patience()
	figures := fmt.Sprintf("%d attempts, pauses up to %s: %s to %s with the deliveries", sub.MaxAttempts, span(sub.MaxBackoff), span(pauses), span(most))
	switch {
	case sub.DeadLetterTopic == "":
		f.Status, f.Figures = Fail, fmt.Sprintf("none: what is not settled within %s is lost", span(sub.Retention))
		f.Remedy = s.update("--dead-letter-topic=TOPIC --max-delivery-attempts=100")
	case most >= sub.Retention:
		f.Status, f.Figures = Fail, fmt.Sprintf("%s >= retention %s: a message is lost before it is dead-lettered", figures, span(sub.Retention))
		f.Remedy = s.update("--message-retention-duration=7d")
	case sub.Retry && pauses < leastOutage:
		f.Status, f.Figures = Warn, fmt.Sprintf("%s: an outage of %s dead-letters everything", figures, span(pauses))
		f.Remedy = s.update("--max-retry-delay=600s --max-delivery-attempts=100")
	default:
		f.Status, f.Figures = OK, fmt.Sprintf("%s < retention %s", figures, span(sub.Retention))
	}
	return f
}

func (s State) expiry() Finding {
	f, sub, read := s.onSubscription("subscription expiry")
	switch {
	case !read:
	case sub.Expires != 0:
		f.Status, f.Figures = Warn, fmt.Sprintf("deleted after %s without use", span(sub.Expires))
		f.Remedy = s.update("--expiration-period=never")
	default:
		f.Status, f.Figures = OK, "never"
	}
	return f
}

// onDeadLetters begins a finding about the dead letters.
func (s State) onDeadLetters(check string) (f Finding, read bool) {
	f, sub, read := s.onSubscription(check)
	switch {
	case !read:
		return f, false
	case sub.DeadLetterTopic == "":
		f.Status, f.Figures = Fail, "there is no dead-letter policy"
		return f, false
	case !s.DeadLetters.Read:
		f.Figures = s.DeadLetters.why()
		return f, false
	}
	return f, true
}

func (s State) deadLetterSubscription() Finding {
	f, read := s.onDeadLetters("dead-letter subscription")
	if !read {
		return f
	}
	topic := s.Subscription.Value.DeadLetterTopic
	var names []string
	for _, sub := range s.DeadLetters.Value.Subscriptions {
		if !sub.Detached {
			names = append(names, last(sub.Name))
		}
	}
	switch {
	case s.DeadLetters.Value.Topic.Name == "":
		f.Status, f.Figures = Fail, fmt.Sprintf("dead-letter topic %s does not exist", last(topic))
		f.Remedy = fmt.Sprintf("gcloud pubsub topics create %s --project=%s --message-retention-duration=31d", last(topic), project(topic))
	case len(names) == 0:
		f.Status, f.Figures = Fail, fmt.Sprintf("nothing subscribes to %s: what is dead-lettered is dropped", last(topic))
		f.Remedy = fmt.Sprintf("gcloud pubsub subscriptions create %[1]s --topic=%[1]s --project=%[2]s --message-retention-duration=31d --expiration-period=never",
			last(topic), project(topic))
	default:
		f.Status, f.Figures = OK, strings.Join(names, ", ")+" on "+last(topic)
	}
	return f
}

func (s State) deadLetterRetention() Finding {
	f, read := s.onDeadLetters("dead-letter retention")
	if !read {
		return f
	}
	var longest Subscription
	for _, sub := range s.DeadLetters.Value.Subscriptions {
		if !sub.Detached && sub.Retention >= longest.Retention {
			longest = sub
		}
	}
	change := func(flags string) string { return update("subscriptions", longest.Name, flags) }
	switch {
	case longest.Name == "":
		f.Status, f.Figures = Fail, "no subscription keeps them"
	case longest.Expires != 0:
		f.Status, f.Figures = Fail, fmt.Sprintf("%s is deleted, with what it keeps, after %s in which nobody pulls", last(longest.Name), span(longest.Expires))
		f.Remedy = change("--expiration-period=never")
	case longest.Retention < leastDeadLetters:
		f.Status, f.Figures = Warn, fmt.Sprintf("%s < %s to look at them", span(longest.Retention), span(leastDeadLetters))
		f.Remedy = change("--message-retention-duration=31d")
	default:
		f.Status, f.Figures = OK, fmt.Sprintf("%s, topic %s", span(longest.Retention), span(s.DeadLetters.Value.Topic.Retention))
	}
	return f
}

func (s State) topicRetention() Finding {
	f, sub, read := s.onSubscription("topic retention")
	switch topic := s.Topic.Value; {
	case !read:
	case !s.Topic.Read:
		f.Figures = s.Topic.why()
	case topic.Retention < sub.Retention:
		f.Status = Warn
		f.Figures = fmt.Sprintf("topic %s < subscription %s: the backlog of a subscription that was lost cannot be brought back", span(topic.Retention), span(sub.Retention))
		f.Remedy = update("topics", topic.Name, "--message-retention-duration="+seconds(sub.Retention))
	default:
		f.Status, f.Figures = OK, fmt.Sprintf("topic %s >= subscription %s", span(topic.Retention), span(sub.Retention))
	}
	return f
}

func (s State) messageSchema() Finding {
	f := Finding{Check: "message schema"}
	switch topic := s.Topic.Value; {
	case !s.Subscription.Read:
		f.Figures = notRead
	case !s.Topic.Read:
		f.Figures = s.Topic.why()
	case topic.Schema == "":
		f.Status, f.Figures = OK, "none: the topic takes everything, and what cannot be a payout goes into quarantine"
	case topic.Encoding != "JSON":
		f.Status, f.Figures = Fail, fmt.Sprintf("%s in encoding %s: the function reads JSON", last(topic.Schema), topic.Encoding)
		f.Remedy = update("topics", topic.Name, fmt.Sprintf("--schema=%s --message-encoding=json", last(topic.Schema)))
	default:
		f.Status, f.Figures = OK, last(topic.Schema)+", JSON"
	}
	return f
}
