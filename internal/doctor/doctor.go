// Package doctor compares what a deployment is with what it has to be.
//
// It exists because the promises about replays hold only as long as figures that
// live in different services agree: a receipt that is deleted before the last
// message of its payout can come back, an ack deadline that ends before the
// delivery does, or dead letters that nobody keeps, are seen nowhere else until
// they have cost something. [Gather] reads the figures through the services' own
// APIs; [Examine] is pure and judges them.
//
// What cannot be read is [Unknown] and says why; it is never taken for good.
package doctor

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Status is the outcome of a check. The zero value is Unknown.
type Status int

const (
	// Unknown means that what the check needs could not be read.
	Unknown Status = iota
	// OK means that it is as it has to be.
	OK
	// Warn means that nothing is lost, but something is worse than it could be.
	Warn
	// Fail means that a message, a receipt or a guarantee can be lost.
	Fail
)

// String returns the status in lower case.
func (s Status) String() string {
	switch s {
	case OK:
		return "ok"
	case Warn:
		return "warn"
	case Fail:
		return "fail"
	case Unknown:
	}
	return "unknown"
}

// MarshalText returns the status in lower case.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is the outcome of one check.
type Finding struct {
	// Check is the check's name, the same in every run.
	Check string `json:"check"`
	// Status is the outcome.
	Status Status `json:"status"`
	// Figures are what was compared, or why it could not be.
	Figures string `json:"figures"`
	// Remedy is a command that mends it, or what to do. Empty where nothing is to be done.
	Remedy string `json:"remedy,omitzero"`
}

// Reading is something that was asked of a service. The zero value is one that
// was not asked for.
type Reading[T any] struct {
	Value T
	// Err is why there is no value. Nil with Read false: it was not asked for.
	Err error
	// Read says that there is a value.
	Read bool
}

// why says why there is no value.
func (r Reading[T]) why() string {
	if r.Err != nil {
		return grpcError.ReplaceAllString(r.Err.Error(), "$1: ")
	}
	return "not asked for"
}

// grpcError is how gRPC begins an error: its code is worth telling.
var grpcError = regexp.MustCompile(`rpc error: code = (\w+) desc = `)

// State is everything that Examine judges.
type State struct {
	// Database is projects/P/instances/I/databases/D.
	Database string
	// SubscriptionName is projects/P/subscriptions/S.
	SubscriptionName string
	// FunctionName is projects/P/locations/L/functions/F; empty for none.
	FunctionName string

	Schema       Reading[Schema]
	Subscription Reading[Subscription]
	Topic        Reading[Topic]
	DeadLetters  Reading[DeadLetters]
	// PublisherPolicy is who may do what with the dead-letter topic,
	// SubscriberPolicy who with the subscription: members by role, of bindings
	// without a condition.
	PublisherPolicy, SubscriberPolicy Reading[map[string][]string]
	Function                          Reading[Function]
	// Rights says whether the policies were asked for.
	Rights bool
}

// Schema is what the database says of itself.
type Schema struct {
	// Lacking names the tables, columns and indexes that it lacks or has otherwise.
	Lacking []string
	// ReceiptTable says that there is the table of receipts.
	ReceiptTable bool
	// PolicyColumn and PolicyDays are its row deletion policy; the empty column: none.
	PolicyColumn string
	PolicyDays   int64
	// VersionRetention is how far back the database can be read; zero: it does not say.
	VersionRetention time.Duration
	// Roles are the database roles, each with what it may do: "INSERT ledger_movements".
	Roles map[string][]string
}

// Subscription is a subscription.
type Subscription struct {
	Name, Topic, PushEndpoint string
	Detached                  bool
	AckDeadline, Retention    time.Duration
	// RetainAcked: acknowledged messages are kept for Retention too.
	RetainAcked bool
	// Retry says that there is a retry policy; without one a message is delivered again at once.
	Retry                  bool
	MinBackoff, MaxBackoff time.Duration
	// DeadLetterTopic is empty where there is no dead-letter policy.
	DeadLetterTopic string
	MaxAttempts     int
	// Expires is after how long without use the subscription is deleted; zero: never.
	Expires time.Duration
}

// Topic is a topic.
type Topic struct {
	Name string
	// Retention is how long it keeps messages; zero: not at all.
	Retention time.Duration
	// Schema is the message schema; empty: none. Encoding is JSON or BINARY.
	Schema, Encoding string
}

// DeadLetters is the dead-letter topic and its subscriptions.
type DeadLetters struct {
	Topic         Topic
	Subscriptions []Subscription
}

// longest returns how long a dead letter can come back.
func (d DeadLetters) longest() time.Duration {
	longest := d.Topic.Retention
	for _, s := range d.Subscriptions {
		longest = max(longest, s.Retention)
	}
	return longest
}

// Function is SettlePayout as it is deployed, or what is known of it.
type Function struct {
	Timeout time.Duration
	// Database is what it settles in; empty: not known.
	Database string
	// DatabaseRole is the role in which it does; empty: none, or not known.
	DatabaseRole string
	// Limits are what a delivery may take and what the bank promises.
	Limits Limits
	// Trigger is its event trigger; the zero value: not known.
	Trigger Trigger
	// Deployed says that this was read of the function itself.
	Deployed bool
}

// Trigger is a function's event trigger.
type Trigger struct {
	Topic   string
	Retries bool
}

// Limits are time limits of the function, from its environment.
type Limits struct {
	Settle, BankSend, BankStatus time.Duration
	// Bank says that there is a bank; KeyLifetime is how long it remembers a key.
	Bank        bool
	KeyLifetime time.Duration
}

// Examine judges a deployment. It makes the same checks in the same order, whatever was read.
func Examine(s State) []Finding {
	findings := []Finding{
		s.schema(), s.receiptRetention(), s.keyLifetime(), s.versionRetention(),
		s.delivery(), s.ackDeadline(), s.retry(), s.deadLetterPolicy(), s.expiry(),
		s.deadLetterSubscription(), s.deadLetterRetention(), s.topicRetention(), s.messageSchema(),
		s.functionTimeout(), s.functionSettings(), s.databaseRole(),
	}
	if s.Rights {
		findings = append(findings, s.publisherRight(), s.subscriberRight())
	}
	return findings
}

// Worst returns the status that decides about all: a Fail, else an Unknown, else
// a Warn.
func Worst(findings []Finding) Status {
	worst := OK
	for _, f := range findings {
		switch {
		case f.Status == Fail || worst == Fail:
			worst = Fail
		case f.Status == Unknown || worst == Unknown:
			worst = Unknown
		case f.Status == Warn:
			worst = Warn
		}
	}
	return worst
}

// span writes a duration as people do: days where it is whole days.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// last is what follows the last slash of a resource name.
func last(name string) string { return name[strings.LastIndex(name, "/")+1:] }

// project is P of projects/P/….
func project(name string) string {
	_, rest, _ := strings.Cut(name, "projects/")
	id, _, _ := strings.Cut(rest, "/")
	return id
}
