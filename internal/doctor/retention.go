package doctor

import (
	"fmt"
	"strings"
	"time"
)

const (
	day = 24 * time.Hour
	// deletionLag is by how much a row deletion policy may be late.
	deletionLag = 72 * time.Hour
	// expireColumn is when a receipt's outcome became final. A policy on any other
	// column deletes receipts of bank instructions that are open.
	expireColumn = "expire_from"
	// leastVersions is the version retention below which a mistake of yesterday
	// cannot be undone.
	leastVersions = 24 * time.Hour
	// leastDeadLetters is how long a person may need to look at a dead letter.
	leastDeadLetters = 7 * day
)

func (s State) ddl(statement string) string {
	parts := strings.Split(s.Database, "/")
	if len(parts) != 6 {
		return statement
	}
	// A shell runs what stands between grave accents, also within double quotes.
	quoted := strings.ReplaceAll(fmt.Sprintf("%q", statement), "`", "\\`")
	return fmt.Sprintf("gcloud spanner databases ddl update %s --instance=%s --project=%s --ddl=%s", parts[5], parts[3], parts[1], quoted)
}

func (s State) policy(days int64) string {
	return s.ddl(fmt.Sprintf("ALTER TABLE settlement_receipts REPLACE ROW DELETION POLICY (OLDER_THAN(%s, INTERVAL %d DAY))", expireColumn, days))
}

func (s State) schema() Finding {
	f := Finding{Check: "schema"}
	if !s.Schema.Read {
		f.Figures = s.Schema.why()
		return f
	}
	if lacking := s.Schema.Value.Lacking; len(lacking) > 0 {
		f.Status, f.Figures = Fail, "the database lacks, or has otherwise: "+strings.Join(lacking, ", ")
		f.Remedy = "apply the files of schema/ in order; every statement of them can be run twice"
		return f
	}
	f.Status, f.Figures = OK, "every table, column and index of this version is there"
	return f
}

// needed is how long after its payout's outcome a message can come back.
func (s State) needed() (total time.Duration, sum string, why string) {
	switch {
	case !s.Subscription.Read:
		return 0, "", notRead
	case !s.Topic.Read:
		return 0, "", "the topic: " + s.Topic.why()
	case !s.DeadLetters.Read && s.Subscription.Value.DeadLetterTopic != "":
		return 0, "", "the dead-letter topic: " + s.DeadLetters.why()
	}
	// Of a subscription that keeps acknowledged messages, seek brings back these too.
	seek := s.Topic.Value.Retention
	if s.Subscription.Value.RetainAcked {
		seek = max(seek, s.Subscription.Value.Retention)
	}
	own, dead := s.Subscription.Value.Retention, s.DeadLetters.Value.longest()
	total = own + dead + seek + deletionLag
	return total, fmt.Sprintf("%s + %s + %s + %v = %s (subscription, dead letters, topic, lateness of the policy)",
		span(own), span(dead), span(seek), "72h", span(total)), ""
}

// days rounds up to whole days, which is what a policy is made of.
func days(d time.Duration) int64 { return int64((d + day - 1) / day) }

func (s State) receiptRetention() Finding {
	f := Finding{Check: "receipt retention"}
	if !s.Schema.Read || !s.Schema.Value.ReceiptTable {
		f.Figures = "no table settlement_receipts"
		if !s.Schema.Read {
			f.Figures = s.Schema.why()
		}
		return f
	}
	needed, sum, why := s.needed()
	if why != "" {
		f.Figures = why
		return f
	}
	policy := s.Schema.Value
	switch kept := time.Duration(policy.PolicyDays) * day; {
	case policy.PolicyColumn == "":
		f.Status, f.Figures = Warn, "receipts are kept for ever, there is no row deletion policy; >= "+sum
		f.Remedy = s.ddl(fmt.Sprintf("ALTER TABLE settlement_receipts ADD ROW DELETION POLICY (OLDER_THAN(%s, INTERVAL %d DAY))", expireColumn, max(100, days(needed))))
	case policy.PolicyColumn != expireColumn:
		f.Status = Fail
		f.Figures = fmt.Sprintf("the row deletion policy counts from %s, not from %s: receipts of open bank instructions go too", policy.PolicyColumn, expireColumn)
		f.Remedy = s.policy(max(policy.PolicyDays, days(needed)))
	case kept < needed:
		f.Status, f.Figures = Fail, fmt.Sprintf("receipts %s < %s", span(kept), sum)
		f.Remedy = s.policy(days(needed))
	default:
		f.Status, f.Figures = OK, fmt.Sprintf("receipts %s >= %s", span(kept), sum)
	}
	return f
}

func (s State) keyLifetime() Finding {
	f := Finding{Check: "bank key lifetime"}
	switch limits := s.Function.Value.Limits; {
	case !s.Function.Read:
		f.Figures = s.Function.why()
	case !limits.Bank:
		f.Status, f.Figures = OK, "no bank is configured"
	case limits.KeyLifetime == 0:
		f.Figures = "the key lifetime stands in the bank's profile, which is not read here"
		f.Remedy = "set BANK_KEY_LIFETIME beside BANK_PROFILE"
	case !s.Schema.Read:
		f.Figures = s.Schema.why()
	case s.Schema.Value.PolicyColumn == "":
		f.Status, f.Figures = OK, fmt.Sprintf("receipts are kept for ever; the key %s", span(limits.KeyLifetime))
	default:
		kept := time.Duration(s.Schema.Value.PolicyDays) * day
		f.Status, f.Figures = OK, fmt.Sprintf("receipts %s >= key %s", span(kept), span(limits.KeyLifetime))
		if kept < limits.KeyLifetime {
			f.Status, f.Figures = Fail, fmt.Sprintf("receipts %s < key %s", span(kept), span(limits.KeyLifetime))
			f.Remedy = s.policy(days(limits.KeyLifetime))
		}
	}
	return f
}

func (s State) versionRetention() Finding {
	f := Finding{Check: "point-in-time recovery"}
	switch back := s.Schema.Value.VersionRetention; {
	case !s.Schema.Read:
		f.Figures = s.Schema.why()
	case back == 0:
		f.Figures = "the database does not say how far back it can be read"
	case back < leastVersions:
		f.Status, f.Figures = Warn, fmt.Sprintf("%s back < %s", span(back), span(leastVersions))
		f.Remedy = s.ddl(fmt.Sprintf("ALTER DATABASE `%s` SET OPTIONS (version_retention_period = '7d')", last(s.Database)))
	default:
		f.Status, f.Figures = OK, span(back)+" back"
	}
	return f
}
