package config

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documented returns the variables of the functions and of the platform in
// docs/configuration.md.
func documented(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	functions, _, found := strings.Cut(string(text), "\n## settlectl\n")
	if !found {
		t.Fatal("no section about settlectl")
	}
	var names []string
	for _, row := range regexp.MustCompile(`(?m)^\|([^|]+)\|`).FindAllStringSubmatch(functions, -1) {
		for _, name := range regexp.MustCompile("`([A-Z][A-Z0-9_]+)`").FindAllStringSubmatch(row[1], -1) {
			names = append(names, name[1])
		}
	}
	return names
}

// Every documented variable is checked, and none is quoted: BANK_TOKEN is a secret.
func TestInvisibleCharactersAreRejected(t *testing.T) {
	t.Parallel()
	names := documented(t)
	if len(names) < 30 || !slices.Contains(names, EnvBankToken) || !slices.Contains(names, "CLOUD_RUN_TIMEOUT_SECONDS") {
		t.Fatalf("documented variables %q", names)
	}
	for _, name := range names {
		for character, code := range map[string]string{
			" ": "U+0020", "\n": "U+000A", "\r": "U+000D", "\t": "U+0009", "\u00a0": "U+00A0", "\u200b": "U+200B", "\u2060": "U+2060",
			"\ufeff": "U+FEFF", "\u00ad": "U+00AD", "\u3000": "U+3000", "\x00": "U+0000", "\xff": "U+FFFD",
		} {
			for _, value := range []string{character + "s3cret", "s3cret" + character, character} {
				_, err := fromMap(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector.example", EnvBankURL: "https://bank.example", name: value})
				if want := "\n" + name + " has the character " + code + " at byte "; err == nil || strings.Count(err.Error(), want) != 1 {
					t.Errorf("%s=%q: %v, want once %q", name, value, err, want)
				}
			}
		}
	}
}

func TestInvisibleCharacterInside(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"a b": "", "": "", "é": "", "a\u200bb": "U+200B at byte 2 of 5", "a\u00a0b": "U+00A0 at byte 2 of 4", "ab ": "U+0020 at byte 3 of 3", " ": "U+0020 at byte 1 of 1",
	} {
		err := checkVisible(value)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", value, err, want)
		}
	}
}

// A secret from a file that ends in a line break has one fault, which does not quote it.
func TestInvisibleCharacterIsTheOnlyFaultOfItsVariable(t *testing.T) {
	t.Parallel()
	_, err := fromMap(map[string]string{EnvBankURL: "https://bank.example", EnvBankToken: "s3cret\r\n", EnvSettleTimeout: "25s ", EnvDefaultCurrency: "\ufeffEUR"})
	const want = `read configuration from the environment:
DEFAULT_CURRENCY has the character U+FEFF at byte 1 of 6; expected no space at either end and no invisible character
SETTLE_TIMEOUT has the character U+0020 at byte 4 of 4; expected no space at either end and no invisible character
BANK_TOKEN has the character U+000D at byte 7 of 8; expected no space at either end and no invisible character`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want\n%s", err, want)
	}
}
