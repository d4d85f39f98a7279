package doctor

import (
	"fmt"
	"strings"
	"time"
)

const (
	day = 24 * time.Hour
	// deletionLag is the longest delay of a row deletion policy, by Spanner's documentation.
	deletionLag = 72 * time.Hour
	// expireColumn has the time at which a payout was settled.
	expireColumn = "applied_at"
	// leastVersions is the least version retention with which yesterday's mistake can be
	// undone.
	leastVersions = 24 * time.Hour
	// leastDeadLetters leaves an operator time to handle a dead letter.
	leastDeadLetters = 7 * day
)

func (s State) ddl(statement string) string {
	parts := strings.Split(s.Database, "/")
	if len(parts) != 6 {
		return statement
	}
	// A shell runs text between grave accents, even within double quotes.
	quoted := strings.ReplaceAll(fmt.Sprintf("%q", statement), "`", "\\`")
	return fmt.Sprintf("gcloud spanner databases ddl update %s --instance=%s --project=%s --ddl=%s", parts[5], parts[3], parts[1], quoted)
}

// policy is the command that adds or replaces the row deletion policy.
func (s State) policy(verb string, days int64) string {
	return s.ddl(fmt.Sprintf("ALTER TABLE settlement_receipts %s ROW DELETION POLICY (OLDER_THAN(%s, INTERVAL %d DAY))", verb, expireColumn, days))
}

func (s State) schema() Finding {
	if lacking := s.Schema.Value.Lacking; len(lacking) > 0 {
		return Fail.finding("missing or different: %s", strings.Join(lacking, ", ")).
			remedy("apply the files of schema/ in order; every statement can run twice")
	}
	return OK.finding("all tables, columns and indexes of this version exist")
}

// needed returns the longest time after the settling of a payout in which one of its
// messages can come back, and the sum as text.
func (s State) needed() (total time.Duration, sum string) {
	own, dead, seek := s.retention(), s.DeadLetters.Value.retention(), s.Topic.Value.GetMessageRetentionDuration().AsDuration()
	// seek can also bring back acknowledged messages that the subscription retains.
	if s.Subscription.Value.GetRetainAckedMessages() {
		seek = max(seek, own)
	}
	total = own + dead + seek + deletionLag
	return total, fmt.Sprintf("%s + %s + %s + 72h = %s (subscription, dead letters, topic, delay of the policy)",
		span(own), span(dead), span(seek), span(total))
}

// days rounds up to whole days, the unit of a row deletion policy.
func days(d time.Duration) int64 { return int64((d + day - 1) / day) }

func (s State) receiptRetention() Finding {
	policy := s.Schema.Value
	needed, sum := s.needed()
	switch kept := time.Duration(policy.PolicyDays) * day; {
	case !policy.ReceiptTable:
		return Unknown.finding("no table settlement_receipts")
	case policy.PolicyColumn == "":
		return Warn.finding("no row deletion policy: receipts are kept for ever >= %s", sum).
			remedy("%s", s.policy("ADD", max(100, days(needed))))
	case policy.PolicyColumn != expireColumn:
		return Fail.finding("the row deletion policy counts from %s, not from %s", policy.PolicyColumn, expireColumn).
			remedy("%s", s.policy("REPLACE", max(policy.PolicyDays, days(needed))))
	case kept < needed:
		return Fail.finding("receipts %s < %s", span(kept), sum).remedy("%s", s.policy("REPLACE", days(needed)))
	default:
		return OK.finding("receipts %s >= %s", span(kept), sum)
	}
}

func (s State) keyLifetime() Finding {
	f := s.Function.Value
	kept := time.Duration(s.Schema.Value.PolicyDays) * day
	switch {
	case !f.Bank:
		return OK.finding("no bank is configured")
	case f.KeyLifetime == 0:
		return Unknown.finding("the key lifetime is in the bank profile, which this program does not read").
			remedy("set BANK_KEY_LIFETIME beside BANK_PROFILE")
	case !s.Schema.Read:
		return Unknown.finding("%s", s.noSchema())
	case s.Schema.Value.PolicyColumn == "":
		return OK.finding("receipts are kept for ever >= key %s", span(f.KeyLifetime))
	case kept < f.KeyLifetime:
		return Fail.finding("receipts %s < key %s", span(kept), span(f.KeyLifetime)).
			remedy("%s", s.policy("REPLACE", days(f.KeyLifetime)))
	default:
		return OK.finding("receipts %s >= key %s", span(kept), span(f.KeyLifetime))
	}
}

func (s State) versionRetention() Finding {
	switch back := s.Schema.Value.VersionRetention; {
	case back == 0:
		return Unknown.finding("the database does not state its version retention")
	case back < leastVersions:
		return Warn.finding("%s back < %s", span(back), span(leastVersions)).
			remedy("%s", s.ddl(fmt.Sprintf("ALTER DATABASE `%s` SET OPTIONS (version_retention_period = '7d')", last(s.Database))))
	default:
		return OK.finding("%s back", span(back))
	}
}
