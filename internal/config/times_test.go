package config

import (
	"strings"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/bank"
)

func TestPlatformTimeoutFitsTheFunction(t *testing.T) {
	t.Parallel()
	const service = "K_SERVICE"
	banked := map[string]string{EnvBankURL: "https://bank.example", EnvBankToken: "t"}
	for name, tt := range map[string]struct {
		bank bool
		vars map[string]string
		want []string
	}{
		"a delivery fits":      {true, map[string]string{service: "s", "FUNCTION_TARGET": "SettlePayout", "CLOUD_RUN_TIMEOUT_SECONDS": "56"}, nil},
		"a run fits":           {true, map[string]string{service: "s", "FUNCTION_TARGET": "ReconcileBank", "CLOUD_RUN_TIMEOUT_SECONDS": "121"}, nil},
		"without a bank":       {false, map[string]string{service: "s", "FUNCTION_TARGET": "SettlePayout", "CLOUD_RUN_TIMEOUT_SECONDS": "26"}, nil},
		"no limit known":       {true, map[string]string{service: "s"}, nil},
		"not deployed":         {true, map[string]string{"CLOUD_RUN_TIMEOUT_SECONDS": "1"}, nil},
		"both functions":       {true, map[string]string{service: "s", "CLOUD_RUN_TIMEOUT_SECONDS": "55"}, []string{"a delivery takes", "a run of ReconcileBank takes"}},
		"no number of seconds": {true, map[string]string{service: "s", "CLOUD_RUN_TIMEOUT_SECONDS": "60s"}, []string{`CLOUD_RUN_TIMEOUT_SECONDS is "60s"; expected a whole number of seconds`}},
		"a long send": {
			true,
			map[string]string{service: "s", "FUNCTION_TARGET": "SettlePayout", EnvBankSendTimeout: "50s", "CLOUD_RUN_TIMEOUT_SECONDS": "85"},
			[]string{"a delivery takes up to 1m25s (SETTLE_TIMEOUT + BANK_SEND_TIMEOUT + 10s) and CLOUD_RUN_TIMEOUT_SECONDS is 85: the platform would stop it; deploy the function with --timeout above 85s, or lower the sum"},
		},
		"a long settling without a bank": {
			false,
			map[string]string{service: "s", "FUNCTION_TARGET": "SettlePayout", "CLOUD_RUN_TIMEOUT_SECONDS": "20"},
			[]string{"a delivery takes up to 25s (SETTLE_TIMEOUT) and CLOUD_RUN_TIMEOUT_SECONDS is 20"},
		},
		"a run of the whole limit": {
			true,
			map[string]string{service: "s", "FUNCTION_TARGET": "ReconcileBank", "CLOUD_RUN_TIMEOUT_SECONDS": "120"},
			[]string{"a run of ReconcileBank takes up to 2m0s"},
		},
		"a long run": {
			true,
			map[string]string{service: "s", "FUNCTION_TARGET": "ReconcileBank", EnvBankStatusTimeout: "50s", "CLOUD_RUN_TIMEOUT_SECONDS": "150"},
			[]string{"a run of ReconcileBank takes up to 3m0s (2m, or 2 × (BANK_STATUS_TIMEOUT + BANK_SEND_TIMEOUT + 20s)) and CLOUD_RUN_TIMEOUT_SECONDS is 150"},
		},
	} {
		if tt.bank {
			for name, value := range banked {
				tt.vars[name] = value
			}
		}
		_, err := fromMap(tt.vars)
		if (err != nil) != (tt.want != nil) || err != nil && strings.Count(err.Error(), "\n") != len(tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: no %q in\n%v", name, want, err)
			}
		}
	}
}

func TestReconcileTimeout(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		bank *bank.Config
		want time.Duration
	}{
		{nil, 2 * time.Minute},
		{&bank.Config{}, 2 * time.Minute}, // 2 × (10 s + 20 s + 20 s)
		{&bank.Config{StatusTimeout: 40 * time.Second, SendTimeout: 30 * time.Second}, 3 * time.Minute},
	} {
		if got := (Config{Bank: tt.bank}).ReconcileTimeout(); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt.bank, got, tt.want)
		}
	}
}
