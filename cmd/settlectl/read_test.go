package main

import (
	"strings"
	"testing"
)

// TestReadingCommands prints everything that is in the fixture, in every form.
func TestReadingCommands(t *testing.T) {
	t.Parallel()
	f := newFixture(t).fill()
	commands := map[string][]string{
		"list-conflicts":           {"list", "conflicts"},
		"list-conflicts-resolved":  {"list", "conflicts", "--state=resolved"},
		"list-conflicts-all":       {"list", "conflicts", "--state=all", "--account=reserve-fees", "--reason=reference"},
		"list-uncertain":           {"list", "uncertain"},
		"list-manual":              {"list", "manual"},
		"list-quarantine":          {"list", "quarantine"},
		"list-quarantine-released": {"list", "quarantine", "--state=released"},
		"list-quarantine-reason":   {"list", "quarantine", "--state=all", "--reason=invalid_field"},
		"list-movements":           {"list", "movements", "--since="},
		"list-movements-returned":  {"list", "movements", "--since=", "--state=returned", "--limit=1"},
		"list-movements-none":      {"list", "movements", "--since=", "--state=none", "--account=reserve-claims"},
		"list-nothing":             {"list", "manual", "--account=nobody"},
		"report":                   {"report", "--account=reserve-claims", "--from=2020-01-01"},
		"report-nothing":           {"report", "--account=nobody", "--from=2020-01-01", "--to=2021-01-01"},
	}
	for name, id := range map[string]string{
		"applied": stlApplied, "duplicate": stlDuplicate, "conflict": stlConflict, "conflicts": stlConflicts, "expired": stlExpired,
		"confirmed": stlConfirmed, "rejected": stlRejected, "returned": stlReturned, "accepted": stlAccepted, "uncertain": stlUncertain,
		"deferred": stlDeferred, "held": stlHeld, "manual": stlForgotten, "everything": stlEverything,
	} {
		commands["show-"+name] = []string{"show", id}
	}
	for name, args := range commands {
		forms := []string{outputTable, outputJSON, outputCSV}
		if args[0] == "show" {
			forms = forms[:2]
		}
		for _, form := range forms {
			t.Run(name+"."+form, func(t *testing.T) {
				t.Parallel()
				got := f.run(append(args, "--output="+form)...)
				if got.code != exitOK || got.errOut != "" {
					t.Fatalf("exit code %d, standard error %q", got.code, got.errOut)
				}
				golden(t, name+"."+form, got.out)
				wantTame(t, got.out)
				if form == outputTable {
					wantNarrow(t, got.out)
				}
			})
		}
	}
}

func TestReadingCommandsRefuse(t *testing.T) {
	t.Parallel()
	const database = "--database=" + nowhere
	for _, tt := range []struct{ args, want string }{
		{"show", "ID is missing; type: settlectl show ID"},
		{"show a b", `"b" is one argument too many; type: settlectl show ID`},
		{"show a", "--database is missing"},
		{"show a --csv " + database, "there is no flag --csv here; there is --"},
		{"show a --output=csv " + database, `--output is "csv"; give table or json`},
		{"show a --role=no-way! " + database, `--role, or SPANNER_DATABASE_ROLE, is "no-way!"`},
		{"show a --stale=-1s " + database, "--stale is -1s"},
		{"list", "conflicts, manual, movements, quarantine or uncertain"},
		{"list everything", "no command settlectl list everything; give conflicts, manual, movements, quarantine or uncertain"},
		{"list conflicts x " + database, `"x" is one argument too many`},
		{"list conflicts --state=closed " + database, `--state is "closed"; give open, resolved or all`},
		{"list conflicts --reason=amount " + database, `--reason is "amount"; give account_id, amount_cents`},
		{"list conflicts --limit=-1 " + database, "--limit is -1"},
		{"list conflicts --since=yesterday " + database, `--since is "yesterday"; give a time such as`},
		{"list conflicts --since=1h --until=2h " + database, "which is not before --until"},
		{"list uncertain --state=open " + database, "no flag --state here; there is --account, "},
		{"list uncertain --reason=x " + database, "no flag --reason here"},
		{"list manual --reason=x " + database, "no flag --reason here"},
		{"list quarantine --account=a " + database, "no flag --account here"},
		{"list quarantine --reason=broken " + database, `--reason is "broken"; give unsupported_event`},
		{"list movements --reason=x " + database, "no flag --reason here"},
		{"list movements --state=open " + database, `--state is "open"; give uncertain`},
		{"list movements --offset=3 " + database, "no flag --offset here"},
		{"tail --interval=1ms " + database, "--interval is 1ms; give 100ms or more"},
		{"tail --since=-1s " + database, `--since is "-1s"`},
		{"tail --csv " + database, "there is no flag --csv here; there is --"},
		{"report --from=2026-11-01 " + database, "--account is missing: ID of the ledger account"},
		{"report --account=a " + database, "--from is missing: time from which on"},
		{"report --account=a --from=2026-11-01 --to=2026-10-01 " + database, "which is not before --to"},
	} {
		got := settlectl(t, nil, nil, strings.Fields(tt.args)...)
		if got.code != exitError || got.out != "" || !strings.Contains(got.errOut, tt.want) {
			t.Errorf("%q: exit code %d, standard output %q, standard error %q; want %q", tt.args, got.code, got.out, got.errOut, tt.want)
		}
	}
}
