package main

import (
	"slices"
	"testing"

	"github.com/settleonce/settleonce/internal/term"
)

// terminalForm is a table on a terminal of 80 columns.
const terminalForm = "80"

// TestReadingCommands prints the whole fixture in every form.
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
		"list-nothing":             {"list", "manual", "--account=reserve-none"},
		"report":                   {"report", "--account=reserve-claims", "--from=2020-01-01"},
		"report-nothing":           {"report", "--account=reserve-none", "--from=2020-01-01", "--to=2021-01-01"},
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
		if slices.Contains([]string{"list-conflicts", "list-manual", "list-movements", "list-quarantine", "report", "show-conflicts", "show-everything"}, name) {
			forms = append(forms, terminalForm)
		}
		for _, form := range forms {
			t.Run(name+"."+form, func(t *testing.T) {
				t.Parallel()
				var got outcome
				if form == terminalForm {
					got = settlectlOn(t, 80, f.clock.Now, nil, f.env(), args...)
				} else {
					got = f.run(append(args, selects(args[0], form))...)
				}
				if got.code != term.ExitOK || got.errOut != "" {
					t.Fatalf("exit code %d, standard error %q", got.code, got.errOut)
				}
				golden(t, name+"."+form, got.out)
				wantTame(t, got.out)
			})
		}
	}
}

// selects returns a flag that selects a form: the long one for show and report, else a
// short one.
func selects(command, form string) string {
	switch {
	case command != "list":
		return "--output=" + form
	case form == outputTable:
		return "--json=false"
	}
	return "--" + form
}
