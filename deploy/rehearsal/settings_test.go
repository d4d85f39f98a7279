package rehearsal

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestSettingsThatCannotWorkAreRefused also shows that they are refused before gcloud
// is called: the one on PATH fails.
func TestSettingsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ setting, value, want string }{
		{"PROJECT_ID", "", "PROJECT_ID is ''; expected the ID of a project"},
		{"REGION", "Europe", "REGION is 'Europe'; expected a region"},
		{"SPANNER_DATABASE", "Payouts", "SPANNER_DATABASE is 'Payouts'"},
		{"SPANNER_DATABASE", "d' DROP", "SPANNER_DATABASE is 'd' DROP'"},
		{"SETTLE_FUNCTION", "settle_payout", "SETTLE_FUNCTION is 'settle_payout'"},
		{"PAYOUTS_TOPIC", "p", "PAYOUTS_TOPIC is 'p'"},
		{"DEFAULT_CURRENCY", "eur", "DEFAULT_CURRENCY is 'eur'"},
		{"LOG_LEVEL", "TRACE", "LOG_LEVEL is 'TRACE'"},
		{"BANK_URL", "http://bank.example", "BANK_URL is 'http://bank.example'; expected an https URL"},
		{"BANK_PROFILE_FILE", "none.json", "there is no file"},
		{"SETTLE_TIMEOUT", "25", "SETTLE_TIMEOUT is '25'; expected a number with s, m, h or d"},
		{"SETTLE_TIMEOUT", "9s", "SETTLE_TIMEOUT is 9s; expected 10s to 9m"},
		{"MAX_DELIVERY_ATTEMPTS", "4", "MAX_DELIVERY_ATTEMPTS is 4; expected 5 to 100"},
		{"SETTLE_MEMORY", "1.5Gi", "SETTLE_MEMORY is '1.5Gi'; expected mebibytes or gibibytes"},
		{"RECONCILE_MEMORY", "512", "RECONCILE_MEMORY is '512'; expected mebibytes or gibibytes"},
		{"SETTLE_CONCURRENCY", "many", "SETTLE_CONCURRENCY is 'many'; expected a whole number"},

		// A delivery takes 25s + 10s + 20s + 20s.
		{"SETTLE_TIMEOUT", "40s", "takes up to 90s, and SETTLE_FUNCTION_TIMEOUT is 90s"},
		{"BANK_SEND_TIMEOUT", "35s", "takes up to 90s, and SETTLE_FUNCTION_TIMEOUT is 90s"},
		{"BANK_CONCURRENCY", "0", "BANK_CONCURRENCY is 0; expected 1 to 1000"},
		{"BANK_STATUS_TIMEOUT", "25s", "takes up to 90s, and SETTLE_FUNCTION_TIMEOUT is 90s"},
		{"SETTLE_FUNCTION_TIMEOUT", "120s", "SETTLE_FUNCTION_TIMEOUT is 120s and SETTLE_ACK_DEADLINE 120s"},
		{"SETTLE_ACK_DEADLINE", "90s", "SETTLE_FUNCTION_TIMEOUT is 90s and SETTLE_ACK_DEADLINE 90s"},
		{"SETTLE_ACK_DEADLINE", "601s", "SETTLE_ACK_DEADLINE is 601s; expected 10s to 10m"},
		{"RECONCILE_FUNCTION_TIMEOUT", "2m", "takes up to 120s, and RECONCILE_FUNCTION_TIMEOUT is 2m"},
		{"RECONCILE_ACK_DEADLINE", "2m30s", "RECONCILE_FUNCTION_TIMEOUT is 150s and RECONCILE_ACK_DEADLINE 2m30s"},

		// Receipts are kept for 100 days; 7 + 31 + 7 + 3 is what a message can take.
		{"SUBSCRIPTION_RETENTION", "8d", "TOPIC_RETENTION is 7d and SUBSCRIPTION_RETENTION 8d"},
		{"SUBSCRIPTION_RETENTION", "32d", "SUBSCRIPTION_RETENTION is 32d; expected 10m to 31d"},
		{"DEAD_LETTER_RETENTION", "32d", "DEAD_LETTER_RETENTION is 32d; expected 10m to 31d"},
		{"BANK_KEY_LIFETIME", "2401h", "the schema keeps receipts for 100 days, and the bank remembers a key for BANK_KEY_LIFETIME 2401h"},

		{"SETTLE_TIMOUT", "25s", "there is no setting SETTLE_TIMOUT"},
		{"DEFAULT_CURRENCY", "$(touch x)", "expected NAME=value"},
	} {
		t.Run(tt.setting+"="+tt.value, func(t *testing.T) {
			t.Parallel()
			s := newScripts(t)
			s.settings[tt.setting] = tt.value
			s.refuses(t, tt.want, "", "deploy.sh")
			s.refuses(t, "nothing was done", "", "deploy.sh")
			s.refuses(t, tt.want, "", "deploy.sh", "--dry-run")
			s.refuses(t, tt.want, project+"\n", "teardown.sh")
		})
	}
}

// TestAllFaultsOfTheSettingsAreTold at once, of whatever kind: who mends them one after
// the other starts the script for each.
func TestAllFaultsOfTheSettingsAreTold(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	wrong := []struct{ setting, value, want string }{
		{"REGION", "x", "REGION is 'x'; expected a region"},
		{"LOG_LEVEL", "y", "LOG_LEVEL is 'y'"},
		{"BANK_URL", "", "--bank-token is given, and BANK_URL is empty"},
		{"SETTLE_TIMOUT", "25s", "there is no setting SETTLE_TIMOUT"},
		{"SETTLE_MIN_INSTANCES", "21", "SETTLE_MIN_INSTANCES is 21 and SETTLE_MAX_INSTANCES 20"},
		{"MONITORING_DIR", "no-such", "MONITORING_DIR: there is no directory"},
		{"PUBLISHERS", "user:a@example.com bert", "PUBLISHERS has 'bert'; expected members"},
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
		if last := fmt.Sprintf("nothing was done: the settings have %d faults\n", len(wrong)+1); err == nil || !strings.HasSuffix(text, last) {
			t.Errorf("%v: no %q at the end of\n%s", err, last, text)
		}
		for _, w := range append(wrong, struct{ setting, value, want string }{want: "--bank-token: there is no file " + filepath.Join(s.dir, "no-token")}) {
			if strings.Count(text, w.want) != 1 {
				t.Errorf("%s=%s: not told once: %q in\n%s", w.setting, w.value, w.want, text)
			}
		}
		// What depends on a setting that is no duration at all is not judged.
		if strings.Contains(text, "a delivery") || strings.Contains(text, "gcloud") {
			t.Errorf("more is told or done:\n%s", text)
		}
	}
}

// TestReceiptsThatExpireTooEarlyAreRefused changes the schema, in a copy.
func TestReceiptsThatExpireTooEarlyAreRefused(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	root := copyTree(t)
	replaceIn(t, root, "schema/0001_settlements.sql", "INTERVAL 100 DAY", "INTERVAL 47 DAY")
	s.root = root
	s.refuses(t, "the schema keeps receipts for 47 days, and a message can come back for 48", "", "deploy.sh", "--dry-run")
	replaceIn(t, root, "schema/0001_settlements.sql", "INTERVAL 47 DAY", "INTERVAL 48 DAY")
	s.must(t, "", "deploy.sh", "--dry-run")
	// What a later file says counts.
	addFile(t, root, "schema/0009_shorter.sql",
		"ALTER TABLE settlement_receipts REPLACE ROW DELETION POLICY (OLDER_THAN(expire_from, INTERVAL 30 DAY));\n")
	s.refuses(t, "the schema keeps receipts for 30 days", "", "deploy.sh", "--dry-run")
}
