package rehearsal

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/bank"
	"github.com/settleonce/settleonce/internal/config"
)

// TestInvalidSettingsAreRejected also shows that no script calls gcloud before: the gcloud
// on PATH fails.
func TestInvalidSettingsAreRejected(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ setting, value, want string }{
		{"PROJECT_ID", "", "PROJECT_ID is ''; expected the ID of a project"},
		{"REGION", "Europe", "REGION is 'Europe'; expected a region such as"},
		{"SPANNER_DATABASE", "Payouts", "SPANNER_DATABASE is 'Payouts'"},
		{"SPANNER_DATABASE", "d' DROP", "SPANNER_DATABASE is 'd' DROP'"},
		{"SETTLE_FUNCTION", "settle_payout", "SETTLE_FUNCTION is 'settle_payout'"},
		{"PAYOUTS_TOPIC", "p", "PAYOUTS_TOPIC is 'p'"},
		{"DEFAULT_CURRENCY", "eur", "DEFAULT_CURRENCY is 'eur'"},
		{"LOG_LEVEL", "TRACE", "LOG_LEVEL is 'TRACE'"},
		{"BANK_URL", "http://bank.example", "BANK_URL is 'http://bank.example'; expected an https URL"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318", "OTEL_EXPORTER_OTLP_ENDPOINT is 'http://localhost:4318'; expected an https URL"},
		{"BANK_PROFILE_FILE", "none.json", "BANK_PROFILE_FILE: no file"},
		{"SETTLE_TIMEOUT", "9s", "SETTLE_TIMEOUT is 9s; expected 10s to 9m"},
		{"MAX_DELIVERY_ATTEMPTS", "4", "MAX_DELIVERY_ATTEMPTS is 4; expected 5 to 100"},
		{"SETTLE_MEMORY", "1.5Gi", "SETTLE_MEMORY is '1.5Gi'; expected mebibytes or gibibytes"},
		{"RECONCILE_MEMORY", "512", "RECONCILE_MEMORY is '512'; expected mebibytes or gibibytes"},
		{"SETTLE_MEMORY", "127Mi", "SETTLE_MEMORY is 127Mi; expected 128Mi to 32Gi"},
		{"RECONCILE_MEMORY", "33Gi", "RECONCILE_MEMORY is 33Gi; expected 128Mi to 32Gi"},
		{"SETTLE_CONCURRENCY", "many", "SETTLE_CONCURRENCY is 'many'; expected a whole number"},
		{"SETTLE_CPU", "", "SETTLE_CPU is ''; expected 0.08 to 0.999, or 1, 2, 4, 6 or 8"},
		{"SETTLE_CPU", "3", "SETTLE_CPU is '3'; expected"},
		{"RECONCILE_CPU", "1.5", "RECONCILE_CPU is '1.5'; expected"},
		{"RECONCILE_CPU", "1000m", "RECONCILE_CPU is '1000m'; expected"},
		{"RECONCILE_CPU", "0.0", "RECONCILE_CPU is 0.0; expected at least 0.08"},
		{"RECONCILE_CPU", "0.079", "RECONCILE_CPU is 0.079; expected at least 0.08"},
		{"SETTLE_CPU", "0.5", "SETTLE_CPU is 0.5 and SETTLE_CONCURRENCY 32; less than one CPU needs 1"},
		{"SETTLE_CPU", "0.499", "SETTLE_CPU is 0.499 and SETTLE_MEMORY 2Gi; this CPU allows 128Mi to 512Mi"},
		{"SETTLE_CPU", "0.999", "SETTLE_CPU is 0.999 and SETTLE_MEMORY 2Gi; this CPU allows 128Mi to 1024Mi"},
		{"RECONCILE_MEMORY", "32Gi", "RECONCILE_CPU is 1 and RECONCILE_MEMORY 32Gi; this CPU allows 128Mi to 4096Mi"},
		{"SETTLE_CPU", "6", "SETTLE_CPU is 6 and SETTLE_MEMORY 2Gi; this CPU allows 4096Mi to 24576Mi"},
		{"RECONCILE_CPU", "4", "RECONCILE_CPU is 4 and RECONCILE_MEMORY 512Mi; this CPU allows 2048Mi to 16384Mi"},
		{"RECONCILE_MEMORY", "4097Mi", "RECONCILE_CPU is 1 and RECONCILE_MEMORY 4097Mi; this CPU allows 128Mi to 4096Mi"},
		{"SETTLE_MEMORY", "5Gi", "SETTLE_CPU is 1 and SETTLE_MEMORY 5Gi; this CPU allows 128Mi to 4096Mi"},
		{"RUNTIME", "nodejs22", "RUNTIME is 'nodejs22'; expected a Go runtime"},
		{"RUNTIME", "go108", "RUNTIME is go108; go.mod needs"},
		{"RECONCILE_CRON", "", "RECONCILE_CRON is ''; expected cron's five fields"},
		{"RECONCILE_CRON", "* * * *", "RECONCILE_CRON is '* * * *'; expected cron's five fields"},
		{"RECONCILE_CRON", "every 1 minutes of every hour", "RECONCILE_CRON is 'every 1 minutes of every hour'"},
		{"SPANNER_BACKUP_CRON", "0 3 * * * *", "SPANNER_BACKUP_CRON is '0 3 * * * *'; expected cron's five fields"},
		{"SPANNER_BACKUP_CRON", "@daily", "SPANNER_BACKUP_CRON is '@daily'"},
		{"SPANNER_CONFIG", "europe-west1", "SPANNER_CONFIG is 'europe-west1'; expected an instance configuration"},
		{"SPANNER_CONFIG", "regional-", "SPANNER_CONFIG is 'regional-'"},
		{"SPANNER_CONFIG", "nam3", "SPANNER_CONFIG is nam3 and SPANNER_EDITION STANDARD; it needs ENTERPRISE_PLUS"},
		{"SPANNER_CONFIG", "custom-mine", "SPANNER_CONFIG is custom-mine and SPANNER_EDITION STANDARD; it needs ENTERPRISE or ENTERPRISE_PLUS"},
		{"SPANNER_EDITION", "Enterprise", "SPANNER_EDITION is 'Enterprise'; expected STANDARD, ENTERPRISE or ENTERPRISE_PLUS"},
		{"SPANNER_PROCESSING_UNITS", "50", "SPANNER_PROCESSING_UNITS is 50; expected 100 to 1000000"},
		{"SPANNER_PROCESSING_UNITS", "150", "SPANNER_PROCESSING_UNITS is '150'; expected 100 to 900 in hundreds, or thousands"},
		{"SPANNER_PROCESSING_UNITS", "1500", "SPANNER_PROCESSING_UNITS is '1500'; expected 100 to 900 in hundreds, or thousands"},

		// Two resources with one name.
		{"PAYOUTS_TOPIC", "payouts-dead-letters", "PAYOUTS_TOPIC and DEAD_LETTER_TOPIC are both 'payouts-dead-letters'"},
		{"RECONCILE_TOPIC", "payouts-dead-letters", "RECONCILE_TOPIC and DEAD_LETTER_TOPIC are both 'payouts-dead-letters'"},
		{"RECONCILE_FUNCTION", "settle-payout", "SETTLE_FUNCTION and RECONCILE_FUNCTION are both 'settle-payout'"},
		{"RECONCILE_ACCOUNT", "settleonce-settle", "SETTLE_ACCOUNT and RECONCILE_ACCOUNT are both 'settleonce-settle'"},
		{"OPERATOR_ACCOUNT", "settleonce-trigger", "TRIGGER_ACCOUNT and OPERATOR_ACCOUNT are both 'settleonce-trigger'"},
		{"BUILD_ACCOUNT", "settleonce-operator", "BUILD_ACCOUNT and OPERATOR_ACCOUNT are both 'settleonce-operator'"},
		{"BANK_PROFILE_SECRET", "settleonce-bank-token", "BANK_TOKEN_SECRET and BANK_PROFILE_SECRET are both 'settleonce-bank-token'"},

		// A delivery takes 25s + 20s + 10s, a run twice 10s + 20s + 20s.
		{"SETTLE_TIMEOUT", "60s", "takes up to 90s, and SETTLE_FUNCTION_TIMEOUT is 90s"},
		{"BANK_SEND_TIMEOUT", "45s", "takes up to 150s, and RECONCILE_FUNCTION_TIMEOUT is 150s"},
		{"SETTLE_FUNCTION_TIMEOUT", "55s", "a delivery (SETTLE_TIMEOUT + BANK_SEND_TIMEOUT + 10s) takes up to 55s, and SETTLE_FUNCTION_TIMEOUT is 55s"},
		{"BANK_CONCURRENCY", "0", "BANK_CONCURRENCY is 0; expected 1 to 1000"},
		{"BANK_STATUS_TIMEOUT", "35s", "takes up to 150s, and RECONCILE_FUNCTION_TIMEOUT is 150s"},
		{"SPANNER_MAX_COMMIT_DELAY", "0.1s", "SPANNER_MAX_COMMIT_DELAY is '0.1s'; expected milliseconds such as 100ms"},
		{"SPANNER_MAX_COMMIT_DELAY", "501ms", "SPANNER_MAX_COMMIT_DELAY is 501ms; expected 0ms to 500ms"},
		{"SETTLE_FUNCTION_TIMEOUT", "120s", "SETTLE_FUNCTION_TIMEOUT is 120s and SETTLE_ACK_DEADLINE 120s"},
		{"SETTLE_ACK_DEADLINE", "601s", "SETTLE_ACK_DEADLINE is 601s; expected 10s to 10m"},
		{"RECONCILE_ACK_DEADLINE", "2m30s", "RECONCILE_FUNCTION_TIMEOUT is 150s and RECONCILE_ACK_DEADLINE 2m30s"},

		// Receipts live for 100 days; a message can come back for 7 + 31 + 7 + 3.
		{"SUBSCRIPTION_RETENTION", "32d", "SUBSCRIPTION_RETENTION is 32d; expected 10m to 31d"},

		{"DEFAULT_CURRENCY", "$(touch x)", "expected NAME=value"},
	} {
		t.Run(tt.setting+"="+tt.value, func(t *testing.T) {
			t.Parallel()
			s := newScripts(t)
			s.settings[tt.setting] = tt.value
			text, err := s.run(t, "", "deploy.sh")
			if err == nil || !strings.Contains(text, tt.want) || !strings.Contains(text, "nothing was changed") {
				t.Errorf("%v, want %q and no change in\n%s", err, tt.want, text)
			}
		})
	}
}

// TestTimesAreThoseOfTheFunction compares the scripts' sums with the function's.
func TestTimesAreThoseOfTheFunction(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	maps.Copy(s.settings, map[string]string{
		"SETTLE_TIMEOUT": "31s", "BANK_SEND_TIMEOUT": "37s", "BANK_STATUS_TIMEOUT": "41s", "RECONCILE_FUNCTION_TIMEOUT": "200s", "RECONCILE_ACK_DEADLINE": "201s",
	})
	text := s.must(t, "", "deploy.sh", "--dry-run")
	delivery := config.LongestDelivery(31*time.Second, 37*time.Second)
	run := config.Config{Bank: &bank.Config{SendTimeout: 37 * time.Second, StatusTimeout: 41 * time.Second}}.ReconcileTimeout()
	for _, want := range []string{
		fmt.Sprintf("takes up to %.0fs < SETTLE_FUNCTION_TIMEOUT", delivery.Seconds()), fmt.Sprintf("takes up to %.0fs < RECONCILE_FUNCTION_TIMEOUT", run.Seconds()),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestSettingsAtLimitsAreAccepted(t *testing.T) {
	t.Parallel()
	for _, settings := range []map[string]string{
		{
			"SETTLE_CPU": "0.08", "SETTLE_MEMORY": "128Mi", "SETTLE_CONCURRENCY": "1", "RECONCILE_CPU": "0.999", "RECONCILE_MEMORY": "1Gi",
			"SPANNER_CONFIG": "nam-eur-asia1", "SPANNER_EDITION": "ENTERPRISE_PLUS", "SPANNER_PROCESSING_UNITS": "900",
			"RUNTIME": "go127", "OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector.example:4318",
		},
		{
			"SETTLE_CPU": "8", "SETTLE_MEMORY": "32Gi", "RECONCILE_CPU": "4", "RECONCILE_MEMORY": "2048Mi",
			"SPANNER_CONFIG": "dual-region-japan1", "SPANNER_EDITION": "ENTERPRISE_PLUS", "SPANNER_PROCESSING_UNITS": "12000",
			"SPANNER_BACKUP_CRON": "0 2/12 * * *", "RECONCILE_CRON": "*/5,59 0-23/2 1 JAN-DEC MON,7",
		},
		{
			"SPANNER_MAX_COMMIT_DELAY": "500ms",
			"SETTLE_CPU": "0.5", "SETTLE_MEMORY": "1Gi", "SETTLE_CONCURRENCY": "1", "RECONCILE_CPU": "0.499", "RECONCILE_MEMORY": "512Mi",
			"SPANNER_CONFIG": "custom-mine", "SPANNER_EDITION": "ENTERPRISE", "SPANNER_PROCESSING_UNITS": "100",
		},
	} {
		s := newScripts(t)
		maps.Copy(s.settings, settings)
		s.must(t, "", "deploy.sh", "--dry-run")
	}
}

func TestAllFaultsAreReportedTogether(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	wrong := []struct{ setting, value, want string }{
		{"REGION", "x", "REGION is 'x'; expected a region such as"},
		{"LOG_LEVEL", "y", "LOG_LEVEL is 'y'"},
		// Three topics with one name: every pair is a fault.
		{"RECONCILE_TOPIC", "payouts", "PAYOUTS_TOPIC and RECONCILE_TOPIC are both 'payouts'"},
		{"DEAD_LETTER_TOPIC", "payouts", "PAYOUTS_TOPIC and DEAD_LETTER_TOPIC are both 'payouts'"},
		{"PAYOUTS_TOPIC", "payouts", "RECONCILE_TOPIC and DEAD_LETTER_TOPIC are both 'payouts'"},
		{"RUNTIME", "go125", "RUNTIME is go125"},
		{"RECONCILE_CPU", "2.5", "RECONCILE_CPU is '2.5'"},
		{"SPANNER_PROCESSING_UNITS", "1100", "SPANNER_PROCESSING_UNITS is '1100'"},
		{"BANK_URL", "", "--bank-token is set and BANK_URL is empty"},
		{"SETTLE_TIMOUT", "25s", "unknown setting SETTLE_TIMOUT"},
		{"SETTLE_MIN_INSTANCES", "21", "SETTLE_MIN_INSTANCES is 21 and SETTLE_MAX_INSTANCES 20"},
		{"MONITORING_DIR", "no-such", "MONITORING_DIR: no directory"},
		{"PUBLISHERS", "user:a@example.com bert", "PUBLISHERS has 'bert'; expected IAM members"},
		{"OPERATORS", "ines", "OPERATORS has 'ines'"},
		{"ALERT_CHANNELS", "mail", "ALERT_CHANNELS has 'mail'"},
		{"SETTLE_TIMEOUT", "25", "SETTLE_TIMEOUT is '25'; expected a number with s, m, h or d"},
		{"RETRY_MIN", "2m", "RETRY_MIN is 2m and RETRY_MAX 1s"},
		{"SETTLE_ACK_DEADLINE", "90s", "SETTLE_FUNCTION_TIMEOUT is 90s and SETTLE_ACK_DEADLINE 90s"},
		{"RECONCILE_FUNCTION_TIMEOUT", "2m", "takes up to 120s, and RECONCILE_FUNCTION_TIMEOUT is 2m"},
		{"RECONCILE_ACK_DEADLINE", "2m", "RECONCILE_FUNCTION_TIMEOUT is 2m and RECONCILE_ACK_DEADLINE 2m"},
		{"SUBSCRIPTION_RETENTION", "8d", "TOPIC_RETENTION is 7d and SUBSCRIPTION_RETENTION 8d"},
		{"DEAD_LETTER_RETENTION", "32d", "DEAD_LETTER_RETENTION is 32d; expected 10m to 31d"},
		{"BANK_KEY_LIFETIME", "2401h", "the bank remembers a key for BANK_KEY_LIFETIME 2401h"},
	}
	for _, w := range wrong {
		s.settings[w.setting] = w.value
	}
	for _, args := range [][]string{nil, {"--dry-run"}, {"--plan"}} {
		text, err := s.run(t, "", "deploy.sh", append(args, "--bank-token", filepath.Join(s.dir, "no-token"))...)
		if last := fmt.Sprintf("nothing was changed: the settings have %d faults\n", len(wrong)+1); err == nil || !strings.HasSuffix(text, last) {
			t.Errorf("%v: no %q at the end of\n%s", err, last, text)
		}
		for _, w := range append(wrong, struct{ setting, value, want string }{want: "--bank-token: no readable file " + filepath.Join(s.dir, "no-token")}) {
			if strings.Count(text, w.want) != 1 {
				t.Errorf("%s=%s: want %q once in\n%s", w.setting, w.value, w.want, text)
			}
		}
		// No check uses a setting of a wrong form.
		if strings.Contains(text, "a delivery") || strings.Contains(text, "gcloud") {
			t.Errorf("more faults or commands:\n%s", text)
		}
	}
	// Two faults are those of --bank-token, which teardown.sh does not have.
	s.refuses(t, fmt.Sprintf("nothing was changed: the settings have %d faults\n", len(wrong)-1), project+"\n", "teardown.sh")
}

// TestShortReceiptRetentionIsRejected changes the schema in a copy of the project.
func TestShortReceiptRetentionIsRejected(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	root := copyTree(t)
	replaceIn(t, root, "schema/0001_settlements.sql", "INTERVAL 100 DAY", "INTERVAL 47 DAY")
	s.root = root
	s.refuses(t, "the schema keeps receipts for 47 days, and a message can come back for 48", "", "deploy.sh", "--dry-run")
	replaceIn(t, root, "schema/0001_settlements.sql", "INTERVAL 47 DAY", "INTERVAL 48 DAY")
	s.must(t, "", "deploy.sh", "--dry-run")
	// The last policy counts.
	addFile(t, root, "schema/0009_shorter.sql",
		"ALTER TABLE settlement_receipts REPLACE ROW DELETION POLICY (OLDER_THAN(applied_at, INTERVAL 30 DAY));\n")
	s.refuses(t, "the schema keeps receipts for 30 days", "", "deploy.sh", "--dry-run")
}
