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

// The notation of histories, one event after another:
//
//	1:A                        operation 1 begins, a delivery of A
//	2:read                     operation 2 begins, a read of the database
//	1=applied@7                operation 1 ends: applied, with commit timestamp 7
//	1=conflict(account_id)@7   operation 1 ends: conflict in account_id
//	1=unknown                  operation 1 ends: unknown outcome
//	2=A@7                      operation 2 ends: it read A, settled at 7
//	1=known-conflict(account_id)@7   operation 1 ends: and it was recorded before
//	1=doubtful-conflict(account_id)@7   operation 1 ends: an answer of the database was lost
//	2=A@7+BC                   operation 2 ends: and B and C, recorded as conflicts at 1
//	2=A@7+B9                   operation 2 ends: and B, recorded at 9
//	2=-                        operation 2 ends: it read no row
//	3:again-A                  operation 3 begins, a redelivery of A
//	4:M                        operation 4 begins, a delivery of a message that is no payout
//	2=-+M                      operation 2 ends: that message in quarantine
//
// An operation without an end was in flight when its process was killed.

var accepted = map[string]string{
	"one after another":                        "1:A 1=applied@7 2:A 2=duplicate@7 3:B 3=conflict(amount_cents)@7 4:A 4=duplicate@7 5:read 5=A@7+B",
	"a conflict lists the differences":         "1:B 1=applied@7 2:C 2=conflict(account_id,amount_cents,reference)@7 3:A 3=conflict(amount_cents)@7 4:read 4=B@7+AC",
	"concurrent, the later one wins":           "1:A 2:B 1=conflict(amount_cents)@7 2=applied@7",
	"concurrent, all the same":                 "1:A 2:A 3:A 1=duplicate@7 2=duplicate@7 3=applied@7",
	"a read beside a delivery, before":         "1:A 2:read 1=applied@7 2=-",
	"a read beside a delivery, after":          "1:A 2:read 2=A@7 1=applied@7",
	"lost without effect":                      "1:A 1=unknown 2:read 2=- 3:B 3=applied@7 4:read 4=B@7",
	"lost with effect":                         "1:A 1=unknown 2:A 2=duplicate@7 3:read 3=A@7",
	"lost, read before its effect, then after": "1:A 1=unknown 2:read 2=- 3:read 3=A@7 4:B 4=conflict(amount_cents)@7",
	"lost twice, one effect":                   "1:A 1=unknown 2:A 2=unknown 3:A 3=duplicate@7",
	"lost and redelivered, applied":            "1:A 1=unknown 2:A 2=applied@7 3:A 3=duplicate@7",
	"lost after another payload":               "1:A 1=unknown 2:B 2=applied@7 3:read 3=B@7",
	"lost after another payload, late":         "1:A 1=unknown 2:B 2=applied@7 3:read 3=B@7+A",
	"lost before another payload":              "1:A 1=unknown 2:B 2=conflict(amount_cents)@7 3:read 3=A@7+B",
	"a lost conflict, recorded later":          "1:A 1=applied@7 2:B 2=unknown 3:read 3=A@7 4:read 4=A@7+B",
	"killed with effect":                       "1:A 2:A 2=duplicate@7",
	"killed without effect":                    "1:A 2:A 2=applied@7",
	"killed, settled long after":               "1:A 2:read 2=- 3:B 3=conflict(amount_cents)@7",
	"conflict again":                           "1:A 1=applied@7 2:B 2=conflict(amount_cents)@7 3:B 3=known-conflict(amount_cents)@7 4:read 4=A@7+B",
	"conflict again, concurrently":             "1:A 1=applied@7 2:B 3:B 2=known-conflict(amount_cents)@7 3=conflict(amount_cents)@7",
	"two conflicts, each new":                  "1:A 1=applied@7 2:B 2=conflict(amount_cents)@7 3:C 3=conflict(account_id,reference)@7 4:read 4=A@7+B2C3",
	"a lost conflict, and then known":          "1:A 1=applied@7 2:B 2=unknown 3:again-B 3=known-conflict(amount_cents)@7",
	"a lost conflict, and then new":            "1:A 1=applied@7 2:B 2=unknown 3:again-B 3=conflict(amount_cents)@7 4:read 4=A@7+B",
	"a doubtful conflict is called new twice":  "1:A 1=applied@7 2:B 2=conflict(amount_cents)@7 3:B 3=doubtful-conflict(amount_cents)@7",
	"a doubtful conflict finds itself":         "1:A 1=applied@7 2:B 2=doubtful-known-conflict(amount_cents)@7 3:read 3=A@7+B",
	"quarantine":                               "1:M 1=quarantined 2:read 2=-+M",
	"quarantine again":                         "1:M 1=quarantined 2:again-M 2=known-quarantined 3:read 3=-+M5 4:read 4=-+M5",
	"a lost quarantine, and then new":          "1:M 1=unknown 2:read 2=- 3:again-M 3=quarantined 4:read 4=-+M",
	"a lost quarantine, and then known":        "1:M 1=unknown 2:again-M 2=known-quarantined",
	"redelivered, and nothing settled":         "1:A 1=unknown 2:again-A 2=applied@7 3:read 3=A@7",
	"timed out, and applied":                   "1:A 1=unknown 2:read 2=A@7 3:again-A 3=duplicate@7",
	"three lost, the second one settles":       "1:A 1=unknown 2:B 2=unknown 3:C 3=unknown 4:A 4=conflict(amount_cents)@7 5:read 5=B@7+A 6:read 6=B@7+AC",
}

var refused = map[string]string{
	"applied twice":                            "1:A 1=applied@7 2:A 2=applied@7",
	"applied twice, concurrently":              "1:A 2:A 1=applied@7 2=applied@7",
	"applied twice, other payloads":            "1:A 2:B 1=applied@7 2=applied@8",
	"applied once for each of two":             "1:A 1=unknown 2:A 2=applied@7 3:A 3=applied@7",
	"duplicate of nothing":                     "1:A 1=duplicate@7",
	"duplicate before it was applied":          "1:A 1=duplicate@7 2:A 2=applied@7",
	"a duplicate of itself":                    "1:B 1=conflict(amount_cents)@7 2:A 2=applied@7",
	"duplicate of another payload":             "1:A 1=applied@7 2:B 2=duplicate@7",
	"conflict with itself":                     "1:A 1=applied@7 2:A 2=conflict(amount_cents)@7",
	"conflict with an unsettled payload":       "1:A 1=applied@7 2:B 2=conflict(account_id,amount_cents,reference)@7",
	"conflict with each other":                 "1:A 2:B 1=conflict(amount_cents)@7 2=conflict(amount_cents)@7",
	"conflict without members":                 "1:A 1=applied@7 2:B 2=conflict()@7",
	"the last payload wins":                    "1:A 1=applied@7 2:B 2=conflict(amount_cents)@7 3:B 3=duplicate@7",
	"another commit timestamp":                 "1:A 1=applied@7 2:A 2=duplicate@8",
	"another commit timestamp in the database": "1:A 1=applied@7 2:read 2=A@8",
	"no commit timestamp":                      "1:A 1=applied@0",
	"applied and not in the database":          "1:A 1=applied@7 2:read 2=-",
	"duplicate and not in the database":        "1:A 1=unknown 2:A 2=duplicate@7 3:read 3=-",
	"in the database, not delivered":           "1:B 1=unknown 2:read 2=A@7",
	"in the database before its delivery":      "1:read 1=A@7 2:A 2=applied@7",
	"deleted from the database":                "1:A 1=unknown 2:read 2=A@7 3:read 3=-",
	"conflict that is not recorded":            "1:A 1=applied@7 2:B 2=conflict(amount_cents)@7 3:read 3=A@7",
	"recorded conflict that was not delivered": "1:A 1=applied@7 2:read 2=A@7+B",
	"recorded conflict with itself":            "1:A 1=applied@7 2:A 2=unknown 3:read 3=A@7+A",
	"recorded conflict without a settlement":   "1:A 1=unknown 2:read 2=-+A",
	"lost with effect, and then applied":       "1:A 1=unknown 2:A 2=duplicate@7 3:A 3=applied@7",
	"lost after another, and then duplicate":   "1:A 1=unknown 2:B 2=applied@7 3:A 3=duplicate@7",
	"conflict again and not known":             "1:A 1=applied@7 2:B 2=conflict(amount_cents)@7 3:B 3=conflict(amount_cents)@7",
	"conflict known at first":                  "1:A 1=applied@7 2:B 2=known-conflict(amount_cents)@7",
	"known by the record of another payload":   "1:A 1=applied@7 2:C 2=conflict(account_id,reference)@7 3:B 3=known-conflict(amount_cents)@7",
	"known before it was recorded":             "1:A 1=applied@7 2:B 2=known-conflict(amount_cents)@7 3:B 3=conflict(amount_cents)@7",
	"a known conflict that is not recorded":    "1:A 1=applied@7 2:B 2=unknown 3:B 3=known-conflict(amount_cents)@7 4:read 4=A@7",
	"a doubtful conflict that is not recorded": "1:A 1=applied@7 2:B 2=doubtful-conflict(amount_cents)@7 3:read 3=A@7",
	"conflict recorded twice":                  "1:A 1=applied@7 2:B 2=conflict(amount_cents)@7 3:B 3=known-conflict(amount_cents)@7 4:read 4=A@7+BB",
	"known conflict written again":             "1:A 1=applied@7 2:B 2=conflict(amount_cents)@7 3:read 3=A@7+B1 4:B 4=known-conflict(amount_cents)@7 5:read 5=A@7+B2",
	"conflict gone":                            "1:A 1=applied@7 2:B 2=conflict(amount_cents)@7 3:read 3=A@7+B 4:read 4=A@7",
	"quarantine stored nowhere":                "1:M 1=quarantined 2:read 2=-",
	"quarantine again and not known":           "1:M 1=quarantined 2:again-M 2=quarantined",
	"quarantine known at first":                "1:M 1=known-quarantined",
	"quarantine kept twice":                    "1:M 1=quarantined 2:again-M 2=known-quarantined 3:read 3=-+MM",
	"quarantine written again":                 "1:M 1=quarantined 2:read 2=-+M1 3:again-M 3=known-quarantined 4:read 4=-+M2",
	"malformed and applied":                    "1:M 1=applied@7",
	"a redelivery finds nothing, duplicate":    "1:A 1=unknown 2:read 2=- 3:again-A 3=duplicate@7 4:read 4=-",
	"a redelivery of nothing, duplicate":       "1:again-A 1=duplicate@7 2:read 2=-",
	"timed out, applied and not stored":        "1:A 1=applied@7 2:read 2=- 3:again-A 3=applied@8",
	"known duplicate":                          "1:A 1=applied@7 2:A 2=known-duplicate@7",
	"an unknown outcome before its beginning":  "1:A 1=duplicate@7 2:A 2=unknown",
	"killed, effect before its beginning":      "1:read 1=A@7 2:A",
	"quarantined":                              "1:A 1=quarantined@7",
}

func TestAcceptedHistories(t *testing.T) {
	t.Parallel()
	for name, events := range accepted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, v := range historyOf(t, events).Check() {
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
			found := historyOf(t, events).Check()
			if len(found) != 1 || found[0].SettlementID != "stl-1" || found[0].undecided {
				t.Errorf("accepted, or not decided: %v", found)
			}
		})
	}
}

func TestViolationListsTheOperations(t *testing.T) {
	t.Parallel()
	found := historyOf(t, "1:A 1=unknown 2:B 3:A 2=applied@7000 3=duplicate@7000").Check()
	if len(found) != 1 {
		t.Fatalf("%d violations, want 1", len(found))
	}
	want := `settlement stl-1: no order explains the answers; its 3 operations:
   began  ended  server   operation  message  answer
1  1ms    2ms    store 1  deliver A  m-1      unknown: lost
2  3ms    5ms    store 2  deliver B  m-2      applied at 00:00:00.000007
3  4ms    6ms    store 3  deliver A  m-3      duplicate at 00:00:00.000007
`
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

// historyOf returns the history of the events, which are a millisecond apart.
func historyOf(t *testing.T, events string) *History {
	t.Helper()
	var now time.Time
	h := NewHistory(func() time.Time { return now })
	begun := map[string]*Operation{}
	for event := range strings.FieldsSeq(events) {
		now = now.Add(time.Millisecond)
		if number, operation, ok := strings.Cut(event, ":"); !ok {
			number, result, _ := strings.Cut(event, "=")
			end(t, begun[number], "store "+number, result)
		} else if operation == "read" {
			begun[number] = h.begin("stl-1", "", request{})
		} else {
			operation, redelivered := strings.CutPrefix(operation, "again-")
			begun[number] = h.Deliver(Message{
				ID: "m-" + number, SettlementID: "stl-1", Payload: letter(t, operation), Attempt: 1 + map[bool]int{true: 1}[redelivered],
			})
		}
	}
	return h
}

func end(t *testing.T, o *Operation, server, result string) {
	t.Helper()
	result, recorded, _ := strings.Cut(result, "+")
	result, timestamp, _ := strings.Cut(result, "@")
	ns, _ := strconv.ParseInt(timestamp, 10, 64) // without a timestamp 0
	if o.request.delivered == None {
		read := state{settled: letter(t, result), appliedAt: ns}
		readRows(t, &read, recorded)
		o.end(server, "", response{answered: true, read: read})
		return
	}
	result, doubtful := strings.CutPrefix(result, "doubtful-")
	result, known := strings.CutPrefix(result, "known-")
	name, members, conflict := strings.Cut(result, "(")
	a := Answer{Server: server, Outcome: outcome(t, name), Known: known, Doubtful: doubtful}
	if a.Outcome == settle.OutcomeUnknown {
		a.Err = "lost"
	}
	if ns != 0 {
		a.AppliedAt = time.Unix(0, ns)
	}
	if conflict {
		a.Fields = strings.Split(strings.TrimSuffix(members, ")"), ",")
	}
	o.End(a)
}

// readRows adds the rows that are inserted once: letters, each with a digit for another
// commit timestamp than 1.
func readRows(t *testing.T, read *state, recorded string) {
	t.Helper()
	for i, r := range recorded {
		if r >= '0' && r <= '9' {
			continue
		}
		at := time.Unix(0, 1)
		if next := recorded[i+1:]; next != "" && next[0] >= '0' && next[0] <= '9' {
			at = time.Unix(0, int64(next[0]-'0'))
		}
		if p := letter(t, string(r)); p == Malformed {
			read.kept = read.kept.and(at)
		} else {
			read.conflicts[p] = read.conflicts[p].and(at)
		}
	}
}

func letter(t *testing.T, text string) Payload {
	t.Helper()
	for _, p := range append(Payloads[:], None, Malformed) {
		if p.String() == text {
			return p
		}
	}
	t.Fatalf("no payload: %q", text)
	return None
}

func outcome(t *testing.T, text string) settle.Outcome {
	t.Helper()
	for _, o := range []settle.Outcome{settle.OutcomeUnknown, settle.OutcomeApplied, settle.OutcomeDuplicate, settle.OutcomeConflict, settle.OutcomeQuarantined} {
		if o.String() == text {
			return o
		}
	}
	t.Fatalf("no outcome: %q", text)
	return settle.OutcomeUnknown
}
