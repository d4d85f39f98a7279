// Package doctor checks that the settings of a deployment fit together.
//
// The promises about replays depend on figures that live in different services. If
// a receipt expires before the last message of its payout, if an ack deadline ends
// before the delivery, or if a dead-letter topic has no subscription, no service
// reports it before money or messages are lost. [Gather] reads the figures through
// the services' own APIs; [Examine] is pure and judges them.
//
// A check whose figures cannot be read is [Unknown], with the reason; it never passes.
package doctor

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// Status is the outcome of a check. The zero value is Unknown.
type Status int

const (
	// Unknown means that the figures could not be read.
	Unknown Status = iota
	// OK means that the check passed.
	OK
	// Warn means that nothing can be lost, but a setting should be better.
	Warn
	// Fail means that a message, a receipt or a guarantee can be lost.
	Fail
)

// String returns the status in lower case.
func (s Status) String() string { return [...]string{"unknown", "ok", "warn", "fail"}[s] }

// MarshalText returns the status in lower case.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is the outcome of one check.
type Finding struct {
	// Check is the check's name, the same in every run.
	Check string `json:"check"`
	// Status is the outcome.
	Status Status `json:"status"`
	// Figures are the compared figures, or the reason why they could not be compared.
	Figures string `json:"figures"`
	// Remedy is a command or an instruction. Empty if there is nothing to do.
	Remedy string `json:"remedy,omitzero"`
}

// finding makes the finding of a check; Examine adds the check's name.
func (s Status) finding(format string, args ...any) Finding {
	return Finding{Status: s, Figures: fmt.Sprintf(format, args...)}
}

func (f Finding) remedy(format string, args ...any) Finding {
	f.Remedy = fmt.Sprintf(format, args...)
	return f
}

// Reading is a value from a service. The zero value means that Gather did not ask
// the service.
type Reading[T any] struct {
	Value T
	// Err is the reason why there is no value. Nil with Read false: not asked.
	Err error
	// Read reports that the value was read.
	Read bool
}

// unread returns the reason why there is no value; empty if there is one.
func (r Reading[T]) unread() string {
	switch {
	case r.Read:
		return ""
	case r.Err == nil:
		return "not asked for"
	case strings.Contains(r.Err.Error(), "could not find default credentials"):
		return noCredentials
	}
	return grpcError.ReplaceAllString(r.Err.Error(), "$1: ")
}

const (
	// noCredentials stands for the client libraries' error, which every client repeats.
	noCredentials = "no Google Cloud credentials"
	login         = "run 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS"
)

// grpcError matches the prefix of a gRPC error, to keep its code only.
var grpcError = regexp.MustCompile(`rpc error: code = (\w+) desc = `)

// State has all figures for Examine.
type State struct {
	// Database is projects/P/instances/I/databases/D.
	Database string
	// SubscriptionName is projects/P/subscriptions/S.
	SubscriptionName string

	Schema       Reading[Schema]
	Subscription Reading[*pubsubpb.Subscription]
	Topic        Reading[*pubsubpb.Topic]
	DeadLetters  Reading[DeadLetters]
	// PublisherPolicy is the IAM policy of the dead-letter topic, SubscriberPolicy that
	// of the subscription.
	PublisherPolicy, SubscriberPolicy Reading[*iampb.Policy]
	Function                          Reading[Function]
	// Rights means that Gather asked for the policies.
	Rights bool
}

// Schema is the state of the database.
type Schema struct {
	// Lacking names the absent or different tables, columns and indexes.
	Lacking []string
	// ReceiptTable means that the table of receipts exists.
	ReceiptTable bool
	// PolicyColumn and PolicyDays are its row deletion policy; the empty column: none.
	PolicyColumn string
	PolicyDays   int64
	// VersionRetention is the time for which old versions can be read; zero: unknown.
	VersionRetention time.Duration
	// Roles are the database roles with their privileges: "INSERT ledger_movements".
	Roles map[string][]string
}

// DeadLetters is the dead-letter topic, nil if it does not exist, with its subscriptions.
type DeadLetters struct {
	Topic         *pubsubpb.Topic
	Subscriptions []*pubsubpb.Subscription
}

// Function is the deployed SettlePayout, or the caller's description of it.
type Function struct {
	Timeout time.Duration
	// Database is the function's database; empty: unknown.
	Database string
	// DatabaseRole is the function's database role; empty: none, or unknown.
	DatabaseRole string
	// Settle and BankSend are the time limits of a delivery.
	Settle, BankSend time.Duration
	// Bank reports whether a bank is configured. KeyLifetime is the time for which it remembers a key.
	Bank        bool
	KeyLifetime time.Duration
	// TriggerTopic is the topic of its event trigger; empty: unknown. Retries means that
	// the trigger retries.
	TriggerTopic string
	Retries      bool
	// Deployed means that the figures come from the function itself.
	Deployed bool
}

// The reasons why a check has no figures; empty if it has them.

func (s State) noSchema() string       { return s.Schema.unread() }
func (s State) noFunction() string     { return s.Function.unread() }
func (s State) noSubscription() string { return s.Subscription.unread() }
func (s State) noTopic() string        { return cmp.Or(s.noSubscription(), s.Topic.unread()) }

func (s State) noDeadLetters() string {
	if !s.Subscription.Read || s.deadLetterTopic() == "" {
		return s.noSubscription()
	}
	return s.DeadLetters.unread()
}

// check judges the figures of the State.
type check struct {
	name   string
	unread func(State) string
	judge  func(State) Finding
}

var checks = []check{
	{"schema", State.noSchema, State.schema},
	{"receipt retention", func(s State) string { return cmp.Or(s.noSchema(), s.noTopic(), s.noDeadLetters()) }, State.receiptRetention},
	{"bank key lifetime", State.noFunction, State.keyLifetime},
	{"point-in-time recovery", State.noSchema, State.versionRetention},
	{"subscription", State.noSubscription, State.delivery},
	{"ack deadline", func(s State) string { return cmp.Or(s.noSubscription(), s.noFunction()) }, State.ackDeadline},
	{"retry policy", State.noSubscription, State.retry},
	{"dead-letter policy", State.noSubscription, State.deadLetterPolicy},
	{"subscription expiry", State.noSubscription, State.expiry},
	{"dead-letter subscription", State.noDeadLetters, State.deadLetterSubscription},
	{"dead-letter retention", State.noDeadLetters, State.deadLetterRetention},
	{"topic retention", State.noTopic, State.topicRetention},
	{"message schema", State.noTopic, State.messageSchema},
	{"function timeout", State.noFunction, State.functionTimeout},
	{"function", State.noFunction, State.functionSettings},
	{"database role", func(s State) string { return cmp.Or(s.noFunction(), s.noSchema()) }, State.databaseRole},
}

var rightChecks = []check{
	{"dead-letter right to publish", State.noDeadLetters, State.publisherRight},
	{"dead-letter right to acknowledge", State.noSubscription, State.subscriberRight},
}

// Examine judges a deployment. It runs the same checks in the same order, whatever
// could be read, and gives the reason for a failed reading once.
func Examine(s State) []Finding {
	all := checks
	if s.Rights {
		all = slices.Concat(checks, rightChecks)
	}
	findings := make([]Finding, 0, len(all))
	told := map[string]string{} // name of the check by reason
	for _, c := range all {
		f := Unknown.finding("%s", c.unread(s))
		if f.Figures == "" {
			f = c.judge(s)
		}
		if first := told[f.Figures]; first != "" && f.Status == Unknown {
			f = Unknown.finding("see %q", first)
		} else if f.Status == Unknown {
			told[f.Figures] = c.name
		}
		if f.Figures == noCredentials {
			f.Remedy = login
		}
		f.Check = c.name
		findings = append(findings, f)
	}
	return findings
}

// Worst returns the status of the whole: Fail if a check failed, else Unknown if one
// is unknown, else Warn or OK.
func Worst(findings []Finding) Status {
	worst := OK
	rank := map[Status]int{OK: 0, Warn: 1, Unknown: 2, Fail: 3}
	for _, f := range findings {
		if rank[f.Status] > rank[worst] {
			worst = f.Status
		}
	}
	return worst
}

// span formats a duration, in days if they are whole: 7d, 1m30s, 72h.
func span(d time.Duration) string {
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

// last is the part of a resource name after its last slash.
func last(name string) string { return name[strings.LastIndex(name, "/")+1:] }

// project is P of projects/P/….
func project(name string) string {
	_, rest, _ := strings.Cut(name, "projects/")
	id, _, _ := strings.Cut(rest, "/")
	return id
}
