package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/fakebank"
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
		if width := utf8.RuneCountInString(line); width > 101 {
			t.Errorf("%d columns: %s", width-1, line)
		}
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
		if len(r.Way) > 0 {
			wantInstruction(t, out, r)
			for i, cell := range cells[r.Name] {
				// Which state is answered depends on when; that it was one of the way is checked by the demo itself.
				cells[r.Name][i], _, _ = strings.Cut(cell, "bank: ")
			}
		}
		if got := cells[r.Name]; !slices.Equal(got, want) {
			t.Errorf("rows of %q: %q; want %q", r.Name, got, want)
		}
	}
	for _, want := range []string{
		"\nok: ", "\nTime is made to pass: ", "\nstl-8485 needs a person: ", "│ stl-8484   │ cp-sent-back    │      125000 │ USD      │ RETURNED │",
		"Quarantine: nothing moved", "stl-8474   │ reserve-tokyo  │          150000 │ JPY", "stl-8479   │ amount_cents             │          4",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log("\n" + out)
	}
}

// wantInstruction checks the bank instruction's row of the report.
func wantInstruction(t *testing.T, out string, r row) {
	t.Helper()
	state, reversal := r.Way[len(r.Way)-1], ""
	if state == transfer.StateRejected || state == transfer.StateReturned {
		var payout struct {
			AmountCents int64 `json:"amount_cents"`
		}
		if err := json.Unmarshal(r.Data, &payout); err != nil {
			t.Fatal(err)
		}
		reversal = strconv.FormatInt(-payout.AmountCents, 10)
	}
	way := "│ " + arrows(r.Way)
	want := fmt.Sprintf("│ %-10s │ %-9s %-45s │ %5d │ %8s │", r.settlementID(), state, way, r.Sends, reversal)
	if !strings.Contains(out, want) {
		t.Errorf("the report lacks %q", want)
	}
}

// wantAlert checks that the log is the one line about the instruction that
// somebody has to look at.
func wantAlert(t *testing.T, log string) {
	t.Helper()
	var line struct {
		Severity     string `json:"severity"`
		SettlementID string `json:"settlement_id"`
		To           string `json:"to_state"`
	}
	if err := json.Unmarshal([]byte(log), &line); err != nil || line.Severity != "ERROR" || line.SettlementID != "stl-8485" || line.To != "manual" {
		t.Errorf("standard error is not the one line about stl-8485: %v\n%s", err, log)
	}
}

func TestSampleShowsEveryKindOfBankPayout(t *testing.T) {
	t.Parallel()
	var ways []string
	for _, r := range mustParse(t, sampleFile) {
		if len(r.Way) > 0 {
			ways = append(ways, fmt.Sprintf("%s, sends %d", arrows(r.Way), r.Sends))
		}
	}
	want := []string{
		"uncertain → accepted → confirmed, sends 1", "uncertain → confirmed, sends 1", "uncertain → rejected, sends 1",
		"uncertain → accepted → confirmed, sends 2", "uncertain → accepted → confirmed → returned, sends 1",
		"uncertain → accepted → manual, sends 1",
	}
	if !slices.Equal(ways, want) {
		t.Errorf("ways %q; want %q", ways, want)
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
	cmd, stderr := startLocal(t, nil, "demo")
	out, err := cmd.Output()
	if code := exitCode(t, err); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	wantAlert(t, stderr.String())
	if !strings.HasPrefix(string(out), "ledger: Spanner emulator (") || !strings.Contains(string(out), "\ntopic:  Pub/Sub emulator (") {
		t.Error("the report does not begin with the two emulators")
	}
	wantReport(t, string(out))
}

func TestDemoInMemory(t *testing.T) {
	withoutEmulators(t)
	code, out, errOut := local(t, "demo", "--memory")
	if code != exitOK {
		t.Errorf("exit code %d", code)
	}
	wantAlert(t, errOut)
	if !strings.HasPrefix(out, "ledger: in memory\ntopic:  in this process\nbank:   fake, in this process\n") || strings.Contains(out, "emulator") {
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
	if code != exitOK {
		t.Errorf("exit code %d", code)
	}
	wantAlert(t, errOut)
	wantFirstAndLast(t, out, insteadOfSpanner)
	wantReport(t, out)
}

func TestDemoWithoutPubSubEmulatorSaysSo(t *testing.T) {
	t.Parallel()
	spanner := emulatortest.Spanner(t) // shared, so the demo has to leave nothing in it
	cmd, stderr := startLocal(t, []string{"PATH=", "CLOUDSDK_ROOT_DIR=", "JAVA_HOME=", "SPANNER_EMULATOR_HOST=" + spanner.GRPC}, "demo")
	out, err := cmd.Output()
	if code := exitCode(t, err); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	wantAlert(t, stderr.String())
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
			"ledger: 15 movements; the sample expects 14",
		},
		{
			"way of the instruction", `"way":["uncertain","rejected"]`, `"way":["uncertain","accepted"]`,
			`settlement "stl-8482": its bank instruction went uncertain → rejected; the sample expects uncertain → accepted`,
		},
		{
			"sends", `"sends":2`, `"sends":1`,
			`settlement "stl-8483": 2 sends to the bank are recorded; the sample expects 1`,
		},
		{
			"instructions", `"way":["uncertain","confirmed"],`, ``,
			`ledger: 6 bank instructions; the sample expects 5`,
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

// settled runs the sample in memory and returns what was seen of it, and the bank.
func settled(t *testing.T, rows []row) (saw, *fakebank.Bank) {
	t.Helper()
	sys := &system{project: "local"}
	defer func() { _ = sys.close(t.Context()) }()
	p := newProgress(streams{})
	if _, err := sys.startParts(t.Context(), true, p); err != nil {
		t.Fatal(err)
	}
	happened, err := sys.settleSample(t.Context(), rows, p, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return happened, sys.bank
}

func TestDemoWithALedgerThatDisagrees(t *testing.T) {
	t.Parallel()
	rows := mustParse(t, sampleFile)
	tests := map[string]func(*audit.Snapshot){
		"":                                      func(*audit.Snapshot) {},
		"the ledger has no movement":            func(s *audit.Snapshot) { s.Movements = s.Movements[1:] },
		"is not what the message says":          func(s *audit.Snapshot) { s.Movements[0].AmountCents++ },
		"moved twice":                           func(s *audit.Snapshot) { s.Movements = append(s.Movements, s.Movements[0]) },
		"movement without receipt":              func(s *audit.Snapshot) { s.Receipts = s.Receipts[1:] },
		"no such movement":                      func(s *audit.Snapshot) { s.Movements[0].RecordedAt = s.Movements[1].RecordedAt },
		"no such conflict":                      func(s *audit.Snapshot) { s.Conflicts[0].Fields = []string{"reference"} },
		"deliveries of a conflict are recorded": func(s *audit.Snapshot) { s.Conflicts[0].Deliveries++ },
		"is not in quarantine for that":         func(s *audit.Snapshot) { s.Quarantined = s.Quarantined[1:] },
		"deliveries to quarantine":              func(s *audit.Snapshot) { s.Quarantined[0].Deliveries-- },

		`"stl-8480": the ledger has no bank instruction`: func(s *audit.Snapshot) { s.Instructions = s.Instructions[1:] },
		`"stl-8482": its bank instruction is rejected, and the movement is not reversed`: func(s *audit.Snapshot) {
			s.Reversals = s.Reversals[1:]
		},
		`"stl-8482": the reversal of 1, rejected, is not that of a rejected instruction over 30500`: func(s *audit.Snapshot) {
			s.Reversals[0].AmountCents = 1
		},
		`"stl-8480": its bank instruction is confirmed, and the movement is reversed`: func(s *audit.Snapshot) {
			s.Reversals[0].SettlementID = "stl-8480"
		},
		`"stl-8482": its bank instruction is confirmed; the bank's ledger has none`: func(s *audit.Snapshot) {
			s.Instructions[2].State = transfer.StateConfirmed
		},
		`"stl-8481": its bank instruction is rejected; the bank's ledger has one: ACSC`: func(s *audit.Snapshot) {
			s.Instructions[1].State = transfer.StateRejected
		},
	}
	for want, tamper := range tests {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			happened, _ := settled(t, rows)
			tamper(&happened.stored)
			wantFault(t, rows, happened, want)
		})
	}
}

// wantFault checks that there is a fault with a text; none where it is empty.
func wantFault(t *testing.T, rows []row, happened saw, want string) {
	t.Helper()
	faults := verify(rows, happened)
	if want == "" && len(faults) > 0 || !strings.Contains(strings.Join(faults, "\n"), want) {
		t.Errorf("faults %q; want one with %q", faults, want)
	}
}

func TestDemoWithABankThatDisagrees(t *testing.T) {
	t.Parallel()
	rows := mustParse(t, sampleFile)
	move := func(id, status string) func(*saw, *fakebank.Bank) error {
		return func(s *saw, bank *fakebank.Bank) error {
			err := bank.Settle(transfer.InstructionKey(id).String(), status)
			s.atBank = bank.Ledger()
			return err
		}
	}
	change := func(f func(*saw)) func(*saw, *fakebank.Bank) error {
		return func(s *saw, _ *fakebank.Bank) error {
			f(s)
			return nil
		}
	}
	paid := func(s *saw, id string) *fakebank.Transfer {
		return &s.atBank[slices.IndexFunc(s.atBank, func(b fakebank.Transfer) bool { return b.Settlement == id })]
	}
	tests := map[string]func(*saw, *fakebank.Bank) error{
		`"stl-8480": its bank instruction is confirmed; the bank's ledger has one: RETURNED`: move("stl-8480", fakebank.Returned),
		`"stl-8481": its bank instruction is confirmed; the bank's ledger has one: RJCT`:     move("stl-8481", fakebank.Rejected),
		`"stl-8484": its bank instruction is returned; the bank's ledger has one: ACSC`:      move("stl-8484", fakebank.Settled),
		`"stl-8483": its bank instruction is confirmed; the bank's ledger has several: ACSC, ACSC`: change(func(s *saw) {
			s.atBank = append(s.atBank, *paid(s, "stl-8483"))
		}),
		`"stl-8483": the bank executed transfer bt-`: change(func(s *saw) { paid(s, "stl-8483").AmountMinor++ }),
		`with another currency`:                      change(func(s *saw) { paid(s, "stl-8480").Currency = "EUR" }),
		`with another creditor`:                      change(func(s *saw) { paid(s, "stl-8480").CreditorAccount = "cp-20" }),
		`with another transfer ID`:                   change(func(s *saw) { paid(s, "stl-8480").ID = "bt-1" }),
		`with another account or reference`:          change(func(s *saw) { paid(s, "stl-8480").Remittance = "" }),
		`and no instruction of the ledger asks for it`: change(func(s *saw) {
			s.atBank = append(s.atBank, fakebank.Transfer{ID: "bt-2", Key: "another"})
		}),
		`bank: a key is executed once`: change(func(s *saw) { s.violations = []string{string(fakebank.RuleKeyOnce)} }),
		`"stl-8481": answered that its bank instruction is rejected, which it never was`: change(func(s *saw) {
			i := slices.IndexFunc(s.deliveries, func(d delivery) bool { return d.answer.SettlementID == "stl-8481" })
			s.deliveries[i].answer.Instruction = transfer.StateRejected
		}),
		`reconciler, run 1: of 5 due, 1 failed and 0 were left`: change(func(s *saw) { s.runs[0].Failed = 1 }),
	}
	for want, tamper := range tests {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			happened, bank := settled(t, rows)
			if err := tamper(&happened, bank); err != nil {
				t.Fatal(err)
			}
			wantFault(t, rows, happened, want)
		})
	}
}

func TestDemoCountsDeliveries(t *testing.T) {
	t.Parallel()
	rows := mustParse(t, sampleFile)[:1]
	rows[0].LoseAnswers = 1
	want := fmt.Sprintf("%q: 0 deliveries; published 1 times with 1 answers lost each, so at least 2", rows[0].Name)
	if faults := verify(rows, saw{}); !slices.Contains(faults, want) {
		t.Errorf("faults %q; want %q among them", faults, want)
	}
}
