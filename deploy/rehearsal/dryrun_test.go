package rehearsal

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// dryRuns are settings that bring out every command of the scripts.
var dryRuns = []struct {
	name, script string
	args         []string
	settings     map[string]string
}{
	{name: "everything", script: "deploy.sh"},
	{name: "no bank, no schema, nobody", script: "deploy.sh", settings: map[string]string{
		"BANK_URL": "", "PAYOUT_SCHEMA": "", "PUBLISHERS": "", "OPERATORS": "", "DEFAULT_CURRENCY": "", "ALERT_CHANNELS": "",
	}},
	{name: "teardown", script: "teardown.sh", args: []string{"--with-data"}},
}

// commandsOf returns the gcloud commands of a dry run, which is a bash script: bash takes
// it apart.
func commandsOf(t *testing.T, script string) [][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail")
	cmd.Stdin = strings.NewReader(`gcloud() { printf '%s\0' "$@" ''; }` + "\n" + script)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the dry run is not a script: %v\n%s", err, script)
	}
	var commands [][]string
	for words := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00\x00"), "\x00\x00") {
		commands = append(commands, strings.Split(words, "\x00"))
	}
	return commands
}

// TestEveryCommandIsAccepted has gcloud parse every command that the dry runs show: a
// wrong flag, a missing one or a value that cannot be fails.
func TestEveryCommandIsAccepted(t *testing.T) {
	t.Parallel()
	g := startGcloud(t, "1")
	all := map[string][]string{}
	for _, tt := range dryRuns {
		s := newScripts(t)
		maps.Copy(s.settings, tt.settings)
		shown := s.must(t, "", tt.script, append([]string{"--dry-run"}, tt.args...)...)
		// Here gcloud wants to see a number.
		shown = strings.NewReplacer("BANK_TOKEN_VERSION\n", "1\n", ":BANK_TOKEN_VERSION", ":1", ":BANK_PROFILE_VERSION", ":1").Replace(shown)
		commands := commandsOf(t, shown)
		if len(commands) < 30 {
			t.Errorf("%s: %d commands; a dry run has more", tt.name, len(commands))
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

// TestAWrongCommandIsNotAccepted keeps the test above honest.
func TestAWrongCommandIsNotAccepted(t *testing.T) {
	t.Parallel()
	g := startGcloud(t, "1")
	for _, wrong := range []string{
		"pubsub topics create payouts --message-retention=7d",           // no such flag
		"pubsub topics create payouts --message-retention-duration=7w",  // no such value
		"pubsub topics make payouts",                                    // no such command
		"pubsub topics",                                                 // a group of them
		"spanner databases create",                                      // an argument lacks
		"functions deploy f --region=r --ingress-settings=private-only", // not one of the choices
	} {
		if g.parse(t, [][]string{strings.Fields(wrong)}) == "" {
			t.Errorf("accepted: gcloud %s", wrong)
		}
	}
	if said := g.parse(t, [][]string{strings.Fields("pubsub topics create payouts --message-retention-duration=7d")}); said != "" {
		t.Errorf("a right command: %s", said)
	}
}

// TestADryRunNeedsNothing has no gcloud that answers: what is on PATH ends with an error.
func TestADryRunNeedsNothing(t *testing.T) {
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

// TestOnlyTheFirstDeploymentNamesTheTrigger is about what must never be in a command that
// deploys a function again.
func TestOnlyTheFirstDeploymentNamesTheTrigger(t *testing.T) {
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
		t.Errorf("%d commands name the trigger and %d do not, want 2 and 2", named, unnamed)
	}
}
