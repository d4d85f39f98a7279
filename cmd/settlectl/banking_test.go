package main

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/term"
)

const bankFunction = "projects/p/locations/l/functions/settle-payout"

// TestCommandsUseTheFunctionsBank as with the real Spanner: only the environment of this
// process, and not the program's, selects the emulator. So it is not parallel.
func TestCommandsUseTheFunctionsBank(t *testing.T) {
	f := newFixture(t)
	t.Setenv("SPANNER_EMULATOR_HOST", f.database.emulator)
	for _, id := range []string{stlBlocked, stlTwice} {
		f.block(id)
	}
	deployed := map[string]string{"SPANNER_DATABASE": f.database.name, "BANK_URL": f.gate.URL, "BANK_KEY_LIFETIME": "72h"}
	serve := func(variables map[string]string) []string {
		text, err := json.Marshal(map[string]any{"name": bankFunction, "serviceConfig": map[string]any{"environmentVariables": variables}})
		if err != nil {
			t.Fatal(err)
		}
		return []string{"--function", bankFunction, "--functions-endpoint", serveFunction(t, string(text))}
	}
	with := func(variables map[string]string, name, value string) map[string]string {
		changed := maps.Clone(variables)
		changed[name] = value
		return changed
	}
	env := map[string]string{"SPANNER_DATABASE": f.database.name, "BANK_TOKEN": fixtureToken}
	decide := func(id string) []string {
		return []string{"decide", id, "--confirmed", "--by", "ines", "--second", "bert", "--note", "letter of the bank"}
	}
	own := []string{"--bank-from-environment"}
	for _, tt := range []struct {
		words string
		now   func() time.Time
		env   map[string]string
		flags []string
	}{
		{"--function is missing", time.Now, env, nil},
		{`--function is "f"`, time.Now, env, []string{"--function", "f"}},
		{"[bank-from-environment function] were all set", time.Now, env, append(serve(deployed), own...)},
		{"uses database", time.Now, env, serve(with(deployed, "SPANNER_DATABASE", "projects/p/instances/i/databases/other"))},
		{`BANK_URL is "http://127.0.0.1:1" here`, time.Now, with(env, "BANK_URL", "http://127.0.0.1:1"), serve(deployed)},
		{`BANK_KEY_LIFETIME is "24h" here and "72h" in function`, time.Now, with(env, "BANK_KEY_LIFETIME", "24h"), serve(deployed)},
		{`BANK_VISIBILITY_LAG is "1s" here and "" in function`, time.Now, with(env, "BANK_VISIBILITY_LAG", "1s"), serve(deployed)},
		{`BANK_SEND_TIMEOUT is "3s" here`, time.Now, with(env, "BANK_SEND_TIMEOUT", "3s"), serve(deployed)},
		{`BANK_STATUS_TIMEOUT is "3s" here`, time.Now, with(env, "BANK_STATUS_TIMEOUT", "3s"), serve(deployed)},
		{`BANK_PROFILE is "" in function`, time.Now, with(env, "BANK_PROFILE", "p.json"), serve(deployed)},
		{`BANK_PROFILE is "p.json" in function`, time.Now, env, serve(with(deployed, "BANK_PROFILE", "p.json"))},
		{"no environment in the answer", time.Now, env, []string{"--function", bankFunction, "--functions-endpoint", serveFunction(t, "{}")}},
		{"clock differs from Spanner's by", func() time.Time { return time.Now().Add(6 * time.Second) }, env, serve(deployed)},
		{"clock differs from Spanner's by -", func() time.Time { return time.Now().Add(-time.Hour) }, env, serve(deployed)},
	} {
		commands := [][]string{decide(stlBlocked), {"reconcile", stlBlocked}}
		if !strings.Contains(tt.words, "clock") { // verify changes no row and does not compare clocks
			commands = append(commands, []string{"verify", "--bank"})
		}
		for _, command := range commands {
			before := f.state()
			got := settlectlAt(t, tt.now, nil, tt.env, append(command, tt.flags...)...)
			if got.code != term.ExitError || !strings.Contains(got.errOut, tt.words) || f.state() != before {
				t.Errorf("%s: exit code %d, %q; want %q, and nothing changed", command[0], got.code, got.errOut, tt.words)
			}
		}
	}

	// verify takes the key lifetime from the function.
	verify := func(variables, env map[string]string) outcome {
		return settlectlAt(t, time.Now, nil, env, append([]string{"verify", "--bank"}, serve(variables)...)...)
	}
	if got := verify(with(deployed, "BANK_KEY_LIFETIME", "24h"), env); got.code != term.ExitOK || !strings.Contains(got.out, "2 bank requests, 0 without an answer") {
		t.Errorf("verify by the function: %+v", got)
	}
	if got := verify(deployed, env); got.code != term.ExitError || got.errOut != "settlectl: verify: violations: 2\n" || !strings.Contains(got.out, "2 in all: 2 resend_window") {
		t.Errorf("verify by a function whose bank remembers keys for longer: %+v", got)
	}
	if got := verify(with(deployed, "BANK_URL", ""), env); got.code != term.ExitError || !strings.Contains(got.errOut, "BANK_TOKEN is set and BANK_URL is not") {
		t.Errorf("verify by a function without a bank: %+v", got)
	}
	if got := settlectlAt(t, time.Now, nil, with(env, "BANK_URL", f.gate.URL), append([]string{"verify", "--bank"}, own...)...); got.code != term.ExitOK {
		t.Errorf("verify by the environment: %+v", got)
	}

	// Valid calls succeed, and the history marks the environment's bank.
	if got := settlectlAt(t, time.Now, nil, with(env, "BANK_KEY_LIFETIME", "72h"), append(decide(stlBlocked), serve(deployed)...)...); got.code != term.ExitOK {
		t.Errorf("by the function: %+v", got)
	}
	if got := settlectlAt(t, time.Now, nil, with(env, "BANK_URL", f.gate.URL), append(decide(stlTwice), own...)...); got.code != term.ExitOK {
		t.Errorf("by the environment: %+v", got)
	}
	var events strings.Builder
	f.query(`SELECT settlement_id FROM bank_instruction_events WHERE cause = 'decided' AND ENDS_WITH(detail, "; `+remarkEnvironment+`")`, &events)
	if strings.Count(events.String(), "\n") != 1 || !strings.Contains(events.String(), stlTwice) {
		t.Errorf("decisions with the remark: %q; want that on %s", events.String(), stlTwice)
	}
	f.sound()
}

func TestHistoryMarksTheEnvironmentsBank(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.deliver(payoutJSON(stlUncertain, "reserve-claims", "5000", "EUR"), settle.OutcomeApplied)
	f.clock.Advance(time.Minute)
	got := f.act(nil, "reconcile", stlUncertain, "--bank-from-environment")
	if got.code != term.ExitOK || !strings.Contains(got.out, "--bank-from-environment") {
		t.Errorf("%+v", got)
	}
	f.sound()
}

// TestRejectedCredentialsAreReported although a step treats the answer as one to retry.
func TestRejectedCredentialsAreReported(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.block(stlBlocked)
	f.deliver(payoutJSON(stlUncertain, "reserve-claims", "5000", "EUR"), settle.OutcomeApplied)
	f.clock.Advance(time.Minute)
	decide := []string{"decide", stlBlocked, "--rejected", "--by", "ines", "--second", "bert", "--note", "letter of the bank"}
	for _, token := range []string{"", "wrong"} {
		want := map[string]string{"": "BANK_TOKEN is not set", "wrong": "the bank rejected our credentials"}[token]
		for _, command := range [][]string{decide, {"reconcile", stlUncertain}, {"reconcile", "--due"}, {"verify", "--bank"}} {
			if token != "" && command[0] == "reconcile" {
				f.clock.Advance(24 * time.Hour) // the failed check moved the due time
			}
			env := f.operatorEnv()
			env["BANK_TOKEN"] = token
			got := settlectlAt(t, f.clock.Now, nil, env, command...)
			if got.code != term.ExitError || !strings.Contains(got.errOut, want) {
				t.Errorf("%s with token %q: exit code %d, %q; want %q", command[0], token, got.code, got.errOut, want)
			}
		}
	}
	f.sound()
}
