package rehearsal

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// dryRuns are settings that produce every command of the scripts.
var dryRuns = []struct {
	name, script string
	args         []string
	settings     map[string]string
}{
	{name: "everything", script: "deploy.sh"},
	{name: "no bank, schema and members", script: "deploy.sh", settings: map[string]string{
		"BANK_URL": "", "PAYOUT_SCHEMA": "", "PUBLISHERS": "", "OPERATORS": "", "DEFAULT_CURRENCY": "", "ALERT_CHANNELS": "",
	}},
	{name: "teardown", script: "teardown.sh", args: []string{"--with-data"}},
}

// commandsOf returns the gcloud commands of a dry run's output, which it runs as a bash
// script.
func commandsOf(t *testing.T, script string) [][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail")
	cmd.Stdin = strings.NewReader(`gcloud() { printf '%s\0' "$@" ''; }` + "\n" + script)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the output is no bash script: %v\n%s", err, script)
	}
	var commands [][]string
	for words := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00\x00"), "\x00\x00") {
		commands = append(commands, strings.Split(words, "\x00"))
	}
	return commands
}

// TestGcloudParsesEveryCommand fails for wrong flags, missing flags and invalid values.
func TestGcloudParsesEveryCommand(t *testing.T) {
	t.Parallel()
	g := startGcloud(t, "1")
	all := map[string][]string{}
	for _, tt := range dryRuns {
		s := newScripts(t)
		maps.Copy(s.settings, tt.settings)
		shown := s.must(t, "", tt.script, append([]string{"--dry-run"}, tt.args...)...)
		// gcloud requires a number here.
		shown = strings.NewReplacer("BANK_TOKEN_VERSION\n", "1\n", ":BANK_TOKEN_VERSION", ":1", ":BANK_PROFILE_VERSION", ":1").Replace(shown)
		commands := commandsOf(t, shown)
		if len(commands) < 30 {
			t.Errorf("%s: %d commands, want more", tt.name, len(commands))
		}
		for _, command := range commands {
			all[strings.Join(command, "\x00")] = command
		}
	}
	if said := g.parse(t, slices.Collect(maps.Values(all))); said != "" {
		t.Error(said)
	}
	t.Logf("%d different commands", len(all))
}

func TestGcloudRejectsWrongCommands(t *testing.T) {
	t.Parallel()
	g := startGcloud(t, "1")
	for _, wrong := range []string{
		"pubsub topics create payouts --message-retention=7d",           // unknown flag
		"pubsub topics create payouts --message-retention-duration=7w",  // invalid value
		"pubsub topics make payouts",                                    // unknown command
		"pubsub topics",                                                 // a command group
		"spanner databases create",                                      // missing argument
		"functions deploy f --region=r --ingress-settings=private-only", // invalid choice
	} {
		if g.parse(t, [][]string{strings.Fields(wrong)}) == "" {
			t.Errorf("accepted: gcloud %s", wrong)
		}
	}
	if said := g.parse(t, [][]string{strings.Fields("pubsub topics create payouts --message-retention-duration=7d")}); said != "" {
		t.Errorf("correct command: %s", said)
	}
}

// TestDryRunNeedsNoGcloud runs with a gcloud that always fails.
func TestDryRunNeedsNoGcloud(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	text := s.must(t, "", "deploy.sh", "--dry-run")
	for _, want := range []string{
		"# == Spanner ==", "gcloud spanner databases ddl update settleonce --instance=settleonce --ddl-file=schema/0001_settlements.sql",
		"--trigger-topic=payouts", "gcloud secrets versions add settleonce-bank-token --data-file=-", "# end of the dry run: nothing was run",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if again := s.must(t, "", "deploy.sh", "--dry-run"); again != text {
		t.Error("two dry runs differ")
	}
}

// TestOnlyFirstDeploymentHasTriggerFlags: trigger flags in a later deployment could replace
// the trigger, and lose the messages in its subscription.
func TestOnlyFirstDeploymentHasTriggerFlags(t *testing.T) {
	t.Parallel()
	text := newScripts(t).must(t, "", "deploy.sh", "--dry-run")
	var named, unnamed int
	for command := range strings.SplitSeq(strings.ReplaceAll(text, "\\\n", ""), "\n") {
		if !strings.HasPrefix(command, "gcloud functions deploy ") {
			continue
		}
		if strings.Contains(command, "--trigger") || strings.Contains(command, "--retry") {
			named++
		} else {
			unnamed++
		}
	}
	if named != 2 || unnamed != 2 {
		t.Errorf("%d commands with trigger flags and %d without, want 2 and 2", named, unnamed)
	}
}
