package linear

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/settle"
)

// Histories are written as one event after another:
//
//	1:A                        operation 1 begins, a delivery of A
//	2:look                     operation 2 begins, a look at the database
//	1=applied@7                operation 1 ends: applied, with commit timestamp 7
//	1=conflict(account_id)@7   or as a conflict that names members
//	1=unknown                  or without an outcome
//	2=A@7                      operation 2 has seen A, settled at 7,
//	2=A@7+BC                   and B and C on record as conflicts
//	2=-                        or nothing
//
// An operation without an end was in flight when its process was killed.

var accepted = map[string]string{
	"one after another":                   "1:A 1=applied@7 2:A 2=duplicate@7 3:B 3=conflict(amount_cents)@7 4:A 4=duplicate@7 5:look 5=A@7+B",
	"a conflict names what differs":       "1:B 1=applied@7 2:C 2=conflict(account_id,amount_cents,reference)@7 3:A 3=conflict(amount_cents)@7 4:look 4=B@7+AC",
	"at once, the later one wins":         "1:A 2:B 1=conflict(amount_cents)@7 2=applied@7",
	"at once, all the same":               "1:A 2:A 3:A 1=duplicate@7 2=duplicate@7 3=applied@7",
	"a look beside a delivery, before":    "1:A 2:look 1=applied@7 2=-",
	"a look beside a delivery, behind":    "1:A 2:look 2=A@7 1=applied@7",
	"lost and never seen":                 "1:A 1=unknown 2:look 2=- 3:B 3=applied@7 4:look 4=B@7",
	"lost and found":                      "1:A 1=unknown 2:A 2=duplicate@7 3:look 3=A@7",
	"lost, not found, then found":         "1:A 1=unknown 2:look 2=- 3:look 3=A@7 4:B 4=conflict(amount_cents)@7",
	"lost twice, found once":              "1:A 1=unknown 2:A 2=unknown 3:A 3=duplicate@7",
	"lost and redelivered, applied":       "1:A 1=unknown 2:A 2=applied@7 3:A 3=duplicate@7",
	"lost behind another payload":         "1:A 1=unknown 2:B 2=applied@7 3:look 3=B@7",
	"lost behind another payload, late":   "1:A 1=unknown 2:B 2=applied@7 3:look 3=B@7+A",
	"lost before another payload":         "1:A 1=unknown 2:B 2=conflict(amount_cents)@7 3:look 3=A@7+B",
	"a lost conflict, on record later":    "1:A 1=applied@7 2:B 2=unknown 3:look 3=A@7 4:look 4=A@7+B",
	"killed, found by the next process":   "1:A 2:A 2=duplicate@7",
	"killed, settled by the next process": "1:A 2:A 2=applied@7",
	"killed, settled long after":          "1:A 2:look 2=- 3:B 3=conflict(amount_cents)@7",
	"three lost, the second one settles":  "1:A 1=unknown 2:B 2=unknown 3:C 3=unknown 4:A 4=conflict(amount_cents)@7 5:look 5=B@7+A 6:look 6=B@7+AC",
}

var refused = map[string]string{
	"applied twice":                              "1:A 1=applied@7 2:A 2=applied@7",
	"applied twice, at once":                     "1:A 2:A 1=applied@7 2=applied@7",
	"applied twice, other payloads":              "1:A 2:B 1=applied@7 2=applied@8",
	"applied once for each of two":               "1:A 1=unknown 2:A 2=applied@7 3:A 3=applied@7",
	"duplicate of nothing":                       "1:A 1=duplicate@7",
	"duplicate before it was applied":            "1:A 1=duplicate@7 2:A 2=applied@7",
	"a duplicate of itself":                      "1:B 1=conflict(amount_cents)@7 2:A 2=applied@7",
	"duplicate of another payload":               "1:A 1=applied@7 2:B 2=duplicate@7",
	"conflict with itself":                       "1:A 1=applied@7 2:A 2=conflict(amount_cents)@7",
	"conflict with what is not settled":          "1:A 1=applied@7 2:B 2=conflict(account_id,amount_cents,reference)@7",
	"conflict with each other":                   "1:A 2:B 1=conflict(amount_cents)@7 2=conflict(amount_cents)@7",
	"conflict that names nothing":                "1:A 1=applied@7 2:B 2=conflict()@7",
	"the last payload wins":                      "1:A 1=applied@7 2:B 2=conflict(amount_cents)@7 3:B 3=duplicate@7",
	"another commit timestamp":                   "1:A 1=applied@7 2:A 2=duplicate@8",
	"another commit timestamp in the database":   "1:A 1=applied@7 2:look 2=A@8",
	"no commit timestamp":                        "1:A 1=applied@0",
	"applied and not in the database":            "1:A 1=applied@7 2:look 2=-",
	"duplicate and not in the database":          "1:A 1=unknown 2:A 2=duplicate@7 3:look 3=-",
	"in the database and not delivered":          "1:B 1=unknown 2:look 2=A@7",
	"in the database before it was delivered":    "1:look 1=A@7 2:A 2=applied@7",
	"gone from the database":                     "1:A 1=unknown 2:look 2=A@7 3:look 3=-",
	"conflict that is not on record":             "1:A 1=applied@7 2:B 2=conflict(amount_cents)@7 3:look 3=A@7",
	"conflict on record that was not delivered":  "1:A 1=applied@7 2:look 2=A@7+B",
	"conflict with itself on record":             "1:A 1=applied@7 2:A 2=unknown 3:look 3=A@7+A",
	"settled and conflict on record without it":  "1:A 1=unknown 2:look 2=-+A",
	"lost, found, and then applied":              "1:A 1=unknown 2:A 2=duplicate@7 3:A 3=applied@7",
	"lost, not found behind another, then found": "1:A 1=unknown 2:B 2=applied@7 3:A 3=duplicate@7",
	"an unknown one settles before it began":     "1:A 1=duplicate@7 2:A 2=unknown",
	"killed, and begun too late":                 "1:look 1=A@7 2:A",
	"quarantined":                                "1:A 1=quarantined@7",
}

func TestAcceptedHistories(t *testing.T) {
	t.Parallel()
	for name, events := range accepted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, v := range written(t, events).Check() {
				t.Errorf("refused: %s", v)
			}
		})
	}
}

func TestRefusedHistories(t *testing.T) {
	t.Parallel()
	for name, events := range refused {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := written(t, events).Check()
			if len(found) != 1 || found[0].SettlementID != "stl-1" || found[0].undecided {
				t.Errorf("accepted, or not decided: %v", found)
			}
		})
	}
}

// A history that is refused has to be of use to a person.
func TestAViolationTellsWhatHappened(t *testing.T) {
	t.Parallel()
	found := written(t, "1:A 1=unknown 2:B 3:A 2=applied@7000 3=duplicate@7000").Check()
	if len(found) != 1 {
		t.Fatalf("%d violations, want 1", len(found))
	}
	want := `settlement stl-1: no order explains the answers; its 3 operations:
   began  ended  asked    what       message  answer
1  1.0ms  2.0ms  store 1  deliver A  m-1      unknown: lost
2  3.0ms  5.0ms  store 2  deliver B  m-2      applied at 00:00:00.000007
3  4.0ms  6.0ms  store 3  deliver A  m-3      duplicate at 00:00:00.000007
the best order is 1 3, then A settled at 00:00:00.000007, conflicts on record: none; not explained: 2`
	if got := found[0].String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	page := filepath.Join(t.TempDir(), "history.html")
	if err := found[0].draw(page); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "deliver B: applied") {
		t.Errorf("drawn: %v, %d bytes", err, len(text))
	}
}

// written returns the history of the events. The time is a millisecond for each.
func written(t *testing.T, events string) *History {
	t.Helper()
	var now time.Time
	h := NewHistory(func() time.Time { return now })
	begun := map[string]*Operation{}
	for event := range strings.FieldsSeq(events) {
		now = now.Add(time.Millisecond)
		number, what, begins := strings.Cut(event, ":")
		if begins && what == "look" {
			begun[number] = h.begin("stl-1", "", request{})
			continue
		}
		if begins {
			begun[number] = h.Deliver(Message{ID: "m-" + number, SettlementID: "stl-1", Payload: letter(t, what)})
			continue
		}
		number, what, _ = strings.Cut(event, "=")
		end(t, begun[number], "store "+number, what)
	}
	return h
}

func end(t *testing.T, o *Operation, by, what string) {
	t.Helper()
	what, rest, _ := strings.Cut(what, "@")
	timestamp, record, _ := strings.Cut(rest, "+")
	ns, _ := strconv.ParseInt(timestamp, 10, 64) // nothing is 0
	if o.request.delivered == None {
		what, more, _ := strings.Cut(what, "+")
		seen := state{settled: letter(t, what), appliedAt: ns}
		for _, r := range record + more {
			seen.conflicts = seen.conflicts.with(letter(t, string(r)))
		}
		o.finish(by, "", response{known: true, seen: seen})
		return
	}
	what, members, named := strings.Cut(what, "(")
	a := Answer{By: by, Outcome: outcome(t, what)}
	if a.Outcome == settle.OutcomeUnknown {
		a.Err = "lost"
	}
	if ns != 0 {
		a.AppliedAt = time.Unix(0, ns)
	}
	if named {
		a.Fields = strings.Split(strings.TrimSuffix(members, ")"), ",")
	}
	o.End(a)
}

func letter(t *testing.T, text string) Payload {
	t.Helper()
	for _, p := range append(Payloads[:], None) {
		if p.String() == text {
			return p
		}
	}
	t.Fatalf("no payload: %q", text)
	return None
}

func outcome(t *testing.T, text string) settle.Outcome {
	t.Helper()
	for o := settle.OutcomeUnknown; o <= settle.OutcomeQuarantined; o++ {
		if o.String() == text {
			return o
		}
	}
	t.Fatalf("no outcome: %q", text)
	return settle.OutcomeUnknown
}
