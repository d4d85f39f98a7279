package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestBankVariablesNeedURL(t *testing.T) {
	t.Parallel()
	c, err := fromMap(map[string]string{})
	if err != nil || c.Bank != nil {
		t.Errorf("bank %+v, %v; want none without %s", c.Bank, err, EnvBankURL)
	}
	for _, name := range bankVariables {
		if _, err := fromMap(map[string]string{name: "1m"}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s without %s: %v", name, EnvBankURL, err)
		}
	}
}

func TestRejectsDeliveryLongerThanAckDeadline(t *testing.T) {
	t.Parallel()
	_, err := fromMap(map[string]string{EnvBankURL: "https://bank.example", EnvSettleTimeout: "9m", EnvBankSendTimeout: "50s"})
	if err == nil || !strings.Contains(err.Error(), "ack deadline") {
		t.Errorf("error %v", err)
	}
}

func TestBankVariablesOverrideProfile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bank.json")
	profile := `{"name":"b","key_lifetime":"30m","visibility_lag":"20s","reject":[],"not_found":{"empty_list":true}}`
	if err := os.WriteFile(path, []byte(profile), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := fromMap(map[string]string{EnvBankURL: "https://bank.example", EnvBankToken: "t0ken", EnvBankProfile: path, EnvBankVisibilityLag: "1m"})
	if err != nil {
		t.Fatal(err)
	}
	b := c.Bank
	if b.Profile.Name != "b" || b.Profile.KeyLifetime != 30*time.Minute || b.Profile.VisibilityLag != time.Minute ||
		b.SendTimeout != 20*time.Second || b.StatusTimeout != 10*time.Second || string(b.Token) != "t0ken" {
		t.Errorf("bank %+v", b)
	}
}

func TestReportsAllBankFaults(t *testing.T) {
	t.Parallel()
	_, err := fromMap(map[string]string{
		EnvBankURL: "https://bank.example", EnvBankToken: "a secret", EnvBankProfile: "/does/not/exist",
		EnvBankKeyLifetime: "forever", EnvBankVisibilityLag: "2h", EnvBankSendTimeout: "1m", EnvBankStatusTimeout: "0s",
		EnvBankConcurrency: "0",
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, name := range []string{EnvBankProfile, EnvBankKeyLifetime, EnvBankVisibilityLag, EnvBankSendTimeout, EnvBankStatusTimeout, EnvBankConcurrency} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("no %s in:\n%v", name, err)
		}
	}
	if strings.Contains(err.Error(), "a secret") {
		t.Errorf("the error has the token:\n%v", err)
	}
}

func TestReportsFaultFromBankPackage(t *testing.T) {
	t.Parallel()
	_, err := fromMap(map[string]string{EnvBankURL: "http://bank.example", EnvBankToken: "a secret"})
	if err == nil || !strings.Contains(err.Error(), EnvBankURL) || strings.Contains(err.Error(), "a secret") {
		t.Errorf("error %v", err)
	}
}
