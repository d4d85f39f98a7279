package ledger_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/settleonce/settleonce/internal/ledger"
	"github.com/settleonce/settleonce/internal/settle"
)

func TestResolveAConflict(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deliver(w.message(`{"settlement_id":"stl-1","account_id":"a","amount_cents":1}`), settle.OutcomeApplied)
	w.deliver(w.message(`{"settlement_id":"stl-2","account_id":"a","amount_cents":1}`), settle.OutcomeApplied)
	first := w.deliver(w.message(`{"settlement_id":"stl-1","account_id":"a","amount_cents":2}`), settle.OutcomeConflict)
	second := w.deliver(w.message(`{"settlement_id":"stl-1","account_id":"b","amount_cents":1}`), settle.OutcomeConflict)
	before := w.snapshot()
	resolve := func(id, hash, by, note string) (ledger.ConflictSummary, error) {
		return w.operator.Resolve(t.Context(), ledger.Resolution{SettlementID: id, Hash: hash, By: by, Note: note})
	}

	if _, err := resolve("stl-3", "", "ines", "n"); !errors.Is(err, ledger.ErrNoSettlement) || strings.Count(err.Error(), "stl-3") != 1 {
		t.Errorf("unknown settlement, or not named once: %v", err)
	}
	_, err := resolve("stl-2", "", "ines", "n")
	wantRefused(t, err, "has no conflict")
	_, err = resolve("stl-1", "v1:f00", "ines", "n")
	wantRefused(t, err, `no conflict with payload hash "v1:f00"`)
	for _, r := range [][2]string{{"", "n"}, {"ines", ""}, {"ines", " "}, {"ines", "a\nb"}} {
		_, err = resolve("stl-1", "", r[0], r[1])
		wantRefused(t, err, "missing")
	}
	_, err = resolve("stl-1", "", "ines", "n")
	if several, is := errors.AsType[*ledger.Several](err); !is || len(several.Conflicts) != 2 {
		t.Errorf("two are open and none is named: %v", err)
	}
	_, err = resolve("stl-1", "v1:", "ines", "n")
	if several, is := errors.AsType[*ledger.Several](err); !is || len(several.Conflicts) != 2 {
		t.Errorf("the prefix matches two: %v", err)
	}

	closed, err := resolve("stl-1", string(first.PayloadHash), "ines", "the producer was mended")
	if err != nil || closed.ResolvedBy != "ines" || closed.ResolvedAt == nil || closed.PayloadHash != first.PayloadHash {
		t.Fatalf("%+v, %v", closed, err)
	}
	again, err := resolve("stl-1", string(first.PayloadHash), "ines", "the producer was mended")
	if err != nil || !again.ResolvedAt.Equal(*closed.ResolvedAt) {
		t.Errorf("the same again: %+v, %v; want the first resolution", again, err)
	}
	_, err = resolve("stl-1", string(first.PayloadHash), "bert", "the producer was mended")
	wantRefused(t, err, `resolved by "ines" at `)
	_, err = resolve("stl-1", string(first.PayloadHash)[3:20], "ines", "something else")
	wantRefused(t, err, `resolved by "ines" at `)

	// The other conflict, the only open one, must be named.
	for _, r := range [][2]string{{"ines", "the producer was mended"}, {"bert", "n"}} {
		_, err = resolve("stl-1", "", r[0], r[1])
		if several, is := errors.AsType[*ledger.Several](err); !is || len(several.Conflicts) != 2 {
			t.Errorf("one is closed, one is open and none is named: %v", err)
		}
	}
	closed, err = resolve("stl-1", string(second.PayloadHash), "ines", "a mistake")
	if err != nil || closed.PayloadHash != second.PayloadHash {
		t.Errorf("%+v, %v", closed, err)
	}
	after := w.snapshot()
	if len(before.Movements) != len(after.Movements) || len(after.Reversals) != 0 || len(after.Conflicts) != 2 {
		t.Errorf("the ledger has changed: %d movements, %d reversals", len(after.Movements), len(after.Reversals))
	}
	// A further delivery leaves the conflict closed.
	w.deliver(w.message(`{"settlement_id":"stl-1","account_id":"b","amount_cents":1}`), settle.OutcomeConflict)
	_, err = resolve("stl-1", string(second.PayloadHash), "bert", "n")
	wantRefused(t, err, `resolved by "ines" at `)
	// A settlement's only conflict needs no hash.
	only := w.deliver(w.message(`{"settlement_id":"stl-2","account_id":"b","amount_cents":1}`), settle.OutcomeConflict)
	for range 2 {
		closed, err = resolve("stl-2", "", "ines", "a mistake")
		if err != nil || closed.PayloadHash != only.PayloadHash {
			t.Errorf("%+v, %v", closed, err)
		}
	}
	_, err = resolve("stl-2", "", "bert", "a mistake")
	wantRefused(t, err, `resolved by "ines" at `)
	// A repeated command does not close a newer conflict.
	third := w.deliver(w.message(`{"settlement_id":"stl-1","account_id":"c","amount_cents":1}`), settle.OutcomeConflict)
	_, err = resolve("stl-1", "", "ines", "a mistake")
	if several, is := errors.AsType[*ledger.Several](err); !is || len(several.Conflicts) != 3 {
		t.Errorf("given again: %v", err)
	}
	if closed, err = resolve("stl-1", string(third.PayloadHash), "ines", "a mistake"); err != nil || closed.PayloadHash != third.PayloadHash {
		t.Errorf("named: %+v, %v", closed, err)
	}
}
