package doctor

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cloud.google.com/go/iam/apiv1/iampb"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

func (s State) functionTimeout() Finding {
	f := s.Function.Value
	longest := config.LongestDelivery(f.Settle, f.BankSend)
	sum := fmt.Sprintf("%s + %s + %s = %s (settle, bank send, record)",
		span(f.Settle), span(f.BankSend), span(transfer.RecordTimeout), span(longest))
	if f.Timeout <= longest {
		return Fail.finding("function %s <= %s", span(f.Timeout), sum).
			remedy("deploy the function with --timeout=%s", seconds(longest+transfer.RecordTimeout))
	}
	return OK.finding("function %s > %s", span(f.Timeout), sum)
}

func (s State) functionSettings() Finding {
	switch function := s.Function.Value; {
	case !function.Deployed:
		return Unknown.finding("not read: its limits come from the flags and the environment, its trigger is unknown").
			remedy("name it with --function")
	case function.Database != s.Database:
		return Fail.finding("it settles in %q, not in %q", function.Database, s.Database).
			remedy("set --database to the function's, or deploy the function with SPANNER_DATABASE")
	case s.Subscription.Read && function.TriggerTopic != s.Subscription.Value.GetTopic():
		return Fail.finding("its trigger is on topic %q, the subscription on %q", function.TriggerTopic, s.Subscription.Value.GetTopic()).
			remedy(anotherSubscription)
	case !function.Retries:
		return Fail.finding("its trigger does not retry: a message whose first delivery fails is lost").
			remedy("deploy the function with --retry")
	default:
		return OK.finding("settles in %s, its trigger retries", last(function.Database))
	}
}

func (s State) databaseRole() Finding {
	role := s.Function.Value.DatabaseRole
	granted := s.Schema.Value.Roles[role]
	switch {
	case !s.Function.Value.Deployed:
		return Unknown.finding("the function is not named").remedy("name it with --function")
	case role == "":
		return Warn.finding("none: the function has all rights of its service account in the database")
	case len(s.Schema.Value.Roles) == 0:
		return Fail.finding("the database has no roles, and the function acts as %s; the Spanner emulator has none", role).
			remedy("create the role and its grants, unless the database is the emulator's")
	case len(granted) == 0:
		return Fail.finding("the database has no role %s with a grant", role).remedy("create the role and its grants in the database")
	default:
		return judgeRole(role, granted)
	}
}

// judgeRole checks that a role has the privileges to settle, and none to rewrite or
// delete.
func judgeRole(role string, granted []string) Finding {
	var lacks, excess []string
	for _, right := range []string{
		"SELECT ledger_movements", "INSERT ledger_movements", "SELECT settlement_receipts", "INSERT settlement_receipts",
		"SELECT settlement_conflicts", "INSERT settlement_conflicts",
		"SELECT quarantined_messages", "INSERT quarantined_messages",
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
		return Fail.finding("role %s lacks %s", role, strings.Join(lacks, ", ")).remedy("grant the privileges to the role in the database")
	case len(excess) > 0:
		return Warn.finding("role %s has %s, which the function never uses", role, strings.Join(excess, ", ")).
			remedy("revoke the privileges from the role in the database")
	default:
		return OK.finding("%s, with %d privileges and none to delete or to rewrite a movement", role, len(granted))
	}
}

// agent matches Pub/Sub's service agent of a project, which forwards dead letters.
var agent = regexp.MustCompile(`^serviceAccount:service-[0-9]+@gcp-sa-pubsub\.iam\.gserviceaccount\.com$`)

const agentTemplate = "serviceAccount:service-PROJECT_NUMBER@gcp-sa-pubsub.iam.gserviceaccount.com"

func (s State) publisherRight() Finding {
	topic := s.deadLetterTopic()
	if topic == "" {
		return Fail.finding(noDeadLetterPolicy)
	}
	return right(s.PublisherPolicy, "topics", topic, "roles/pubsub.publisher")
}

func (s State) subscriberRight() Finding {
	return right(s.SubscriberPolicy, "subscriptions", s.SubscriptionName, "roles/pubsub.subscriber")
}

// right checks that Pub/Sub's agent has a role, or one that contains it, on a
// resource. The resource's policy does not show a role on the whole project. A
// binding with a condition may not hold and does not count.
func right(policy Reading[*iampb.Policy], kind, name, role string) Finding {
	if !policy.Read {
		return Unknown.finding("%s", policy.unread())
	}
	for _, binding := range policy.Value.GetBindings() {
		if binding.GetCondition() != nil || !slices.Contains([]string{role, "roles/pubsub.editor", "roles/pubsub.admin"}, binding.GetRole()) {
			continue
		}
		for _, member := range binding.GetMembers() {
			if agent.MatchString(member) {
				return OK.finding("%s has %s on %s", strings.TrimPrefix(member, "serviceAccount:"), binding.GetRole(), last(name))
			}
		}
	}
	return Fail.finding("Pub/Sub's service agent lacks %s on %s itself (a role on the project does not show): messages are redelivered for ever", role, last(name)).
		remedy("gcloud pubsub %s add-iam-policy-binding %s --project=%s --member=%s --role=%s", kind, last(name), project(name), agentTemplate, role)
}
