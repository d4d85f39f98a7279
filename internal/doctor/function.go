package doctor

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/settleonce/settleonce/internal/config"
)

func (s State) functionTimeout() Finding {
	f := Finding{Check: "function timeout"}
	if !s.Function.Read {
		f.Figures = s.Function.why()
		return f
	}
	limits := s.Function.Value.Limits
	longest := config.LongestDelivery(limits.Settle, limits.BankStatus, limits.BankSend)
	sum := fmt.Sprintf("%s + %s + %s + %s = %s (settling, asking the bank, sending, recording)",
		span(limits.Settle), span(limits.BankStatus), span(limits.BankSend), span(config.Recording), span(longest))
	f.Status, f.Figures = OK, fmt.Sprintf("function %s > %s", span(s.Function.Value.Timeout), sum)
	if s.Function.Value.Timeout <= longest {
		f.Status, f.Figures = Fail, fmt.Sprintf("function %s <= %s", span(s.Function.Value.Timeout), sum)
		f.Remedy = "deploy the function with --timeout=" + seconds(longest+config.Recording)
	}
	return f
}

func (s State) functionSettings() Finding {
	f := Finding{Check: "function"}
	function := s.Function.Value
	switch {
	case !s.Function.Read:
		f.Figures = s.Function.why()
	case !function.Deployed:
		f.Figures = "not read: its timeout and limits are what this program was told, its trigger is not known"
		f.Remedy = "name it with --function"
	case function.Database != s.Database:
		f.Status, f.Figures = Fail, fmt.Sprintf("it settles in %q, not in %q", function.Database, s.Database)
		f.Remedy = "give --database the function's, or deploy it with SPANNER_DATABASE"
	case s.Subscription.Read && function.Trigger.Topic != s.Subscription.Value.Topic:
		f.Status, f.Figures = Fail, fmt.Sprintf("its trigger is on topic %q, the subscription on %q", function.Trigger.Topic, s.Subscription.Value.Topic)
		f.Remedy = "give --subscription the one of the function's trigger: gcloud eventarc triggers list --format='value(transport.pubsub.subscription)'"
	case !function.Trigger.Retries:
		f.Status, f.Figures = Fail, "its trigger does not retry: a message that is not settled the first time is lost"
		f.Remedy = "deploy the function with --retry"
	default:
		f.Status, f.Figures = OK, fmt.Sprintf("settles in %s, its trigger retries", last(function.Database))
	}
	return f
}

func (s State) databaseRole() Finding {
	f := Finding{Check: "database role"}
	role := s.Function.Value.DatabaseRole
	granted := s.Schema.Value.Roles[role]
	switch {
	case !s.Function.Read || !s.Schema.Read:
		f.Figures = s.Schema.why()
		if !s.Function.Read {
			f.Figures = s.Function.why()
		}
	case !s.Function.Value.Deployed:
		f.Figures = "the function is not named"
		f.Remedy = "name it with --function"
	case role == "":
		f.Status, f.Figures = Warn, "none: the function may do in the database whatever its account may"
	case len(s.Schema.Value.Roles) == 0:
		f.Status, f.Figures = Fail, fmt.Sprintf("the database has no roles, and the function acts as %s; the Spanner emulator knows none", role)
		f.Remedy = "create the role and its grants in the database, if it is not the emulator's"
	case len(granted) == 0:
		f.Status, f.Figures = Fail, fmt.Sprintf("the database has no role %s that may do anything", role)
		f.Remedy = "create the role and its grants in the database"
	default:
		f = mayDo(f, role, granted)
	}
	return f
}

// mayDo judges what a role may do: settle, and not rewrite or delete.
func mayDo(f Finding, role string, granted []string) Finding {
	var lacks, excess []string
	for _, right := range []string{
		"SELECT ledger_movements", "INSERT ledger_movements", "SELECT settlement_receipts", "INSERT settlement_receipts",
		"SELECT settlement_conflicts", "INSERT settlement_conflicts", "UPDATE settlement_conflicts",
		"INSERT quarantined_messages",
	} {
		if !slices.Contains(granted, right) {
			lacks = append(lacks, right)
		}
	}
	for _, right := range granted {
		if strings.HasPrefix(right, "DELETE ") || right == "UPDATE ledger_movements" {
			excess = append(excess, right)
		}
	}
	switch {
	case len(lacks) > 0:
		f.Status, f.Figures = Fail, fmt.Sprintf("role %s may not %s", role, strings.Join(lacks, ", "))
		f.Remedy = "grant it to the role in the database"
	case len(excess) > 0:
		f.Status, f.Figures = Warn, fmt.Sprintf("role %s may %s, which the function never does", role, strings.Join(excess, ", "))
		f.Remedy = "revoke it from the role in the database"
	default:
		f.Status, f.Figures = OK, fmt.Sprintf("%s, with %d rights and none to delete or to rewrite a movement", role, len(granted))
	}
	return f
}

// agent is Pub/Sub's own account in a project, which moves dead letters.
var agent = regexp.MustCompile(`^serviceAccount:service-[0-9]+@gcp-sa-pubsub\.iam\.gserviceaccount\.com$`)

const agentTemplate = "serviceAccount:service-PROJECT_NUMBER@gcp-sa-pubsub.iam.gserviceaccount.com"

func (s State) publisherRight() Finding {
	f, read := s.onDeadLetters("dead-letter right to publish")
	if !read {
		return f
	}
	return right(f, s.PublisherPolicy, "topics", s.Subscription.Value.DeadLetterTopic, "roles/pubsub.publisher")
}

func (s State) subscriberRight() Finding {
	f, _, read := s.onSubscription("dead-letter right to acknowledge")
	if !read {
		return f
	}
	return right(f, s.SubscriberPolicy, "subscriptions", s.SubscriptionName, "roles/pubsub.subscriber")
}

// right judges whether Pub/Sub's agent has a role, or one that contains it, on a
// resource. A role on the whole project does not show in the resource's policy.
func right(f Finding, policy Reading[map[string][]string], kind, name, role string) Finding {
	if !policy.Read {
		f.Figures = policy.why()
		return f
	}
	for _, has := range []string{role, "roles/pubsub.editor", "roles/pubsub.admin"} {
		if i := slices.IndexFunc(policy.Value[has], agent.MatchString); i >= 0 {
			f.Status, f.Figures = OK, fmt.Sprintf("%s has %s on %s", strings.TrimPrefix(policy.Value[has][i], "serviceAccount:"), has, last(name))
			return f
		}
	}
	f.Status = Fail
	f.Figures = fmt.Sprintf("Pub/Sub's service agent lacks %s on %s itself (a role on the project is not seen): messages are delivered for ever", role, last(name))
	f.Remedy = fmt.Sprintf("gcloud pubsub %s add-iam-policy-binding %s --project=%s --member=%s --role=%s", kind, last(name), project(name), agentTemplate, role)
	return f
}
