package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/settleonce/settleonce/emulator/emulatortest"
	"github.com/settleonce/settleonce/internal/snapshot"
)

// wantReport checks a report of the sample that went right.
func wantReport(t *testing.T, out string) {
	t.Helper()
	rows := mustParse(t, sampleFile)
	cells := map[string][]string{} // the rows of the deliveries' table by their message
	var last string
	table, _, _ := strings.Cut(out, "Ledger: movements")
	for line := range strings.Lines(table) {
		row := strings.Split(line, "│")
		if len(row) != 6 || strings.TrimSpace(row[1]) == "message" {
			continue
		}
		if !strings.HasPrefix(row[1], "   ") {
			last = strings.TrimSpace(row[1])
		}
		cells[last] = append(cells[last], strings.TrimSpace(row[2])+" "+strings.TrimSpace(row[3]))
	}
	for _, r := range rows {
		later := r.Expect
		if later == "applied" {
			later = "duplicate"
		}
		reason := " " + why(r.Fields, r.Reason, r.Member)
		want := []string{r.Expect + reason}
		for range r.Publish*(1+r.LoseAnswers) - 1 {
			want = append(want, later+reason)
		}
		if got := cells[r.Name]; !slices.Equal(got, want) {
			t.Errorf("rows of %q: %q; want %q", r.Name, got, want)
		}
	}
	for _, want := range []string{
		"\nok: ", "Quarantine: nothing moved", "stl-8474   │ reserve-tokyo  │          150000 │ JPY", "stl-8479   │ amount_cents             │          4",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log("\n" + out)
	}
}

func mustParse(t *testing.T, sample []byte) []row {
	t.Helper()
	rows, err := parseSample(sample)
	if err != nil {
		t.Fatal(err)
	}
	if publications(rows) < 20 {
		t.Fatalf("%d messages", publications(rows))
	}
	return rows
}

func TestDemoOnEmulators(t *testing.T) {
	t.Parallel()
	cmd, stderr := child(t, nil, "demo")
	out, err := cmd.Output()
	if code := exitCode(t, err); code != exitOK || stderr.Len() > 0 {
		t.Errorf("exit code %d; standard error:\n%s", code, stderr)
	}
	if !strings.HasPrefix(string(out), "ledger: Spanner emulator (") || !strings.Contains(string(out), "\ntopic:  Pub/Sub emulator (") {
		t.Error("the report does not begin with the two emulators")
	}
	wantReport(t, string(out))
}

func TestDemoInMemory(t *testing.T) {
	withoutEmulators(t)
	code, out, errOut := local(t, "demo", "--memory")
	if code != exitOK || errOut != "" {
		t.Errorf("exit code %d; standard error:\n%s", code, errOut)
	}
	if !strings.HasPrefix(out, "ledger: in memory\ntopic:  in this process\n") || strings.Contains(out, "emulator") {
		t.Error("the report does not begin with memory, or speaks of emulators nobody asked for")
	}
	wantReport(t, out)
}

// wantFirstAndLast checks that the report says first and last what is missing.
func wantFirstAndLast(t *testing.T, out, want string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if lines[0] != want || lines[len(lines)-1] != want {
		t.Errorf("first line %q, last line %q; want both %q", lines[0], lines[len(lines)-1], want)
	}
}

func TestDemoWithoutSpannerEmulatorSaysSo(t *testing.T) {
	withoutEmulators(t)
	code, out, errOut := local(t, "demo")
	if code != exitOK || errOut != "" {
		t.Errorf("exit code %d; standard error:\n%s", code, errOut)
	}
	wantFirstAndLast(t, out, insteadOfSpanner)
	wantReport(t, out)
}

func TestDemoWithoutPubSubEmulatorSaysSo(t *testing.T) {
	t.Parallel()
	spanner := emulatortest.Spanner(t) // shared, so the demo has to leave nothing in it
	cmd, stderr := child(t, []string{"PATH=", "CLOUDSDK_ROOT_DIR=", "JAVA_HOME=", "SPANNER_EMULATOR_HOST=" + spanner.GRPC}, "demo")
	out, err := cmd.Output()
	if code := exitCode(t, err); code != exitOK || stderr.Len() > 0 {
		t.Errorf("exit code %d; standard error:\n%s", code, stderr)
	}
	wantFirstAndLast(t, string(out), insteadOfPubSub)
	if !strings.Contains(string(out), "ledger: Spanner emulator (SPANNER_EMULATOR_HOST)\ntopic:  in this process\n") {
		t.Error("the report does not say where the ledger is")
	}
	wantReport(t, string(out))
}

func TestDemoFindsWhatTheSampleDoesNotExpect(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, old, planted, want string }{
		{
			"outcome", `"amount_cents":88},"expect":"applied"`, `"amount_cents":88},"expect":"quarantined"`,
			`"planted", delivery 1: answered 200 applied; the sample expects 200 quarantined`,
		},
		{
			"members", `"fields":["account_id"]`, `"fields":["amount_cents"]`,
			`"stl-8472, account changed", delivery 1: answered with account_id; the sample expects amount_cents`,
		},
		{
			"reason", `"reason":"empty_data"`, `"reason":"not_json"`,
			`"empty", delivery 1: answered with empty_data; the sample expects not_json`,
		},
		{
			"movements", `"amount_cents":88},"expect":"applied"`, `"amount_cents":88},"expect":"duplicate"`,
			"ledger: 9 movements; the sample expects 8",
		},
	}
	fresh := `{"name":"planted","data":{"settlement_id":"stl-1","account_id":"reserve-claims","amount_cents":88},"expect":"applied"}` + "\n"
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			sample := strings.Replace(string(sampleFile)+fresh, test.old, test.planted, 1)
			var out bytes.Buffer
			err := demo(t.Context(), []byte(sample), true, streams{out: &out, err: io.Discard})
			if !errors.Is(err, errWrong) {
				t.Errorf("error %v; want %v", err, errWrong)
			}
			if !strings.Contains(out.String(), "\nwrong: "+test.want) || strings.Contains(out.String(), "\nok:") {
				t.Errorf("the report lacks %q:\n%s", test.want, out.String())
			}
		})
	}
}

func TestDemoWithALedgerThatDisagrees(t *testing.T) {
	t.Parallel()
	rows := mustParse(t, sampleFile)
	settled := func(t *testing.T) ([]delivery, snapshot.Snapshot) {
		t.Helper()
		sys := &system{project: "local"}
		defer func() { _ = sys.close(t.Context()) }()
		p := newProgress(streams{})
		if _, err := sys.startParts(t.Context(), true, p); err != nil {
			t.Fatal(err)
		}
		deliveries, stored, err := sys.settleSample(t.Context(), rows, p, streams{err: io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		return deliveries, stored
	}
	tests := map[string]func(*snapshot.Snapshot){
		"":                                      func(*snapshot.Snapshot) {},
		"the ledger has no movement":            func(s *snapshot.Snapshot) { s.Movements = s.Movements[1:] },
		"is not what the message says":          func(s *snapshot.Snapshot) { s.Movements[0].AmountCents++ },
		"moved twice":                           func(s *snapshot.Snapshot) { s.Movements = append(s.Movements, s.Movements[0]) },
		"movement without receipt":              func(s *snapshot.Snapshot) { s.Receipts = s.Receipts[1:] },
		"no such movement":                      func(s *snapshot.Snapshot) { s.Movements[0].RecordedAt = s.Movements[1].RecordedAt },
		"no such conflict":                      func(s *snapshot.Snapshot) { s.Conflicts[0].Fields = []string{"reference"} },
		"deliveries of a conflict are recorded": func(s *snapshot.Snapshot) { s.Conflicts[0].Deliveries++ },
		"is not in quarantine for that":         func(s *snapshot.Snapshot) { s.Quarantined = s.Quarantined[1:] },
		"deliveries to quarantine":              func(s *snapshot.Snapshot) { s.Quarantined[0].Deliveries-- },
	}
	for want, tamper := range tests {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			deliveries, stored := settled(t)
			tamper(&stored)
			faults := verify(rows, deliveries, stored)
			if want == "" && len(faults) > 0 || !strings.Contains(strings.Join(faults, "\n"), want) {
				t.Errorf("faults %q; want one with %q", faults, want)
			}
		})
	}
}

func TestDemoCountsDeliveries(t *testing.T) {
	t.Parallel()
	rows := mustParse(t, sampleFile)[:1]
	rows[0].LoseAnswers = 1
	want := fmt.Sprintf("%q: 0 deliveries; published 1 times with 1 answers lost each, so at least 2", rows[0].Name)
	if faults := verify(rows, nil, snapshot.Snapshot{}); !slices.Contains(faults, want) {
		t.Errorf("faults %q; want %q among them", faults, want)
	}
}
