package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"golang.org/x/time/rate"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

func TestRangesTileTheSpace(t *testing.T) {
	t.Parallel()
	first, last := make([]byte, sha256.Size), bytes.Repeat([]byte{0xff}, sha256.Size)
	if position(first) != 0 || position(last) != space-1 || firstKey(space) != nil || successor(last) != nil {
		t.Errorf("the space is from %d to %d, then %x and %x", position(first), position(last), firstKey(space), successor(last))
	}
	if got := keyRange(firstKey(0), nil); got.Kind != spanner.ClosedClosed || !slices.Equal(got.End[0].([]byte), last) {
		t.Errorf("the last range is %+v", got)
	}
	key := sha256.Sum256([]byte("stl-8472"))
	if at := position(key[:]); bytes.Compare(firstKey(at), key[:]) > 0 || bytes.Compare(firstKey(at+1), key[:]) <= 0 {
		t.Errorf("key %x is not between %x and %x", key, firstKey(at), firstKey(at+1))
	}
	if next := successor([]byte{1, 2, 0xff, 0xff}); !slices.Equal(next, []byte{1, 3, 0, 0}) {
		t.Errorf("after 0102ffff comes %x", next)
	}
}

func TestRowUnderTheWrongKey(t *testing.T) {
	t.Parallel()
	p := &page{settlements: map[string]*settlement{}}
	right := sha256.Sum256([]byte("stl-1"))
	if found := p.of(right[:], "stl-1").columnViolations(); len(found) != 0 {
		t.Errorf("the right key: %v", found)
	}
	if found := p.of([]byte("another"), "stl-1").columnViolations(); len(found) != 1 || found[0].Rule != RuleKey || found[0].SettlementID != "stl-1" {
		t.Errorf("another key: %v", found)
	}
}

func TestEveryRuleHasARemedy(t *testing.T) {
	t.Parallel()
	for _, rule := range Rules() {
		if remedies[rule] == "" || strings.ContainsFunc(string(rule), func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }) {
			t.Errorf("rule %q: remedy %q", rule, remedies[rule])
		}
	}
}

func TestTotalsOfTooManyAccounts(t *testing.T) {
	t.Parallel()
	all := totals{}
	for i := range maxAccounts + 500 {
		one := totals{}
		one.moved(settle.Movement{AccountID: string(rune('A'+i%26)) + strings.Repeat("x", i/26), Currency: "EUR", AmountCents: 1})
		all.add(one)
	}
	var movements int64
	for _, total := range all.sorted() {
		movements += total.Movements
	}
	other := all[totalKey{OtherAccounts, "EUR"}]
	if movements != maxAccounts+500 || len(all) != maxAccounts+1 || other == nil || other.Movements != 500 || other.Net().Int64() != 500 {
		t.Errorf("%d movements of %d accounts, others %+v", movements, len(all), other)
	}
}

func TestJudgeTheBanksAnswer(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	b := &Bank{Policy: transfer.Policy{KeyLifetime: 24 * time.Hour, VisibilityLag: 15 * time.Second}}
	const (
		uncertain, accepted, confirmed = transfer.StateUncertain, transfer.StateAccepted, transfer.StateConfirmed
		rejected, returned, manual     = transfer.StateRejected, transfer.StateReturned, transfer.StateManual
	)
	for _, tt := range []struct {
		state   transfer.State
		says    transfer.StatusReading
		watched verdict // while the reconciler still asks
		left    verdict // when it no longer does
	}{
		{uncertain, transfer.StatusNotFound, pending, pending},
		{uncertain, transfer.StatusConfirmed, pending, violation},
		{uncertain, transfer.StatusManual, violation, violation},
		{accepted, transfer.StatusPending, same, same},
		{accepted, transfer.StatusConfirmed, pending, violation},
		{accepted, transfer.StatusManual, violation, violation},
		{confirmed, transfer.StatusConfirmed, same, same},
		{confirmed, transfer.StatusNotFound, pending, pending},
		{confirmed, transfer.StatusReturned, pending, violation},
		{confirmed, transfer.StatusRejected, violation, violation},
		{confirmed, transfer.StatusManual, violation, violation},
		{rejected, transfer.StatusRejected, same, same},
		{rejected, transfer.StatusNotFound, same, same},
		{rejected, transfer.StatusConfirmed, violation, violation},
		{rejected, transfer.StatusPending, pending, pending},
		{returned, transfer.StatusReturned, same, same},
		{returned, transfer.StatusConfirmed, violation, violation},
		{returned, transfer.StatusNotFound, pending, pending},
		{manual, transfer.StatusConfirmed, pending, pending},
	} {
		in := transfer.Instruction{SettlementID: "stl-1", State: tt.state, Sends: 1, CreatedAt: now, LastSentAt: now, ResendNotAfter: now.Add(time.Hour), FinalAt: now, AcceptedAt: now}
		for next, want := range map[time.Time]verdict{now: tt.watched, {}: tt.left} {
			in.NextCheckAt = next
			got, why := b.judge(in, transfer.StatusResult{Reading: tt.says}, transfer.Interval{Began: now, Ended: now})
			if got != want || (why == "") != (got == same) {
				t.Errorf("%s, the bank says %s, looked at next %v: %d %q, want %d", tt.state, tt.says, next, got, why, want)
			}
		}
	}
}

func TestRunEndsAfterUnansweredRequests(t *testing.T) {
	t.Parallel()
	says := transfer.StatusUnknown
	v := &verifier{options: Options{
		Found: func(Finding) error { return nil },
		Bank: &Bank{
			Status: func(context.Context, transfer.StatusRequest) transfer.StatusResult {
				return transfer.StatusResult{Reading: says}
			},
			Limiter: rate.NewLimiter(rate.Inf, 1), Now: time.Now,
		},
	}}
	v.sum.Violations, v.sum.Pending = map[Rule]int64{}, map[Rule]int64{}
	in := transfer.Instruction{State: transfer.StateManual}
	for i := 1; i < maxUnanswered; i++ {
		if err := v.askBank(t.Context(), in); err != nil {
			t.Fatalf("question %d: %v", i, err)
		}
	}
	says = transfer.StatusConfirmed
	if err := v.askBank(t.Context(), in); err != nil || v.sum.Pending[RuleBank] != 1 {
		t.Fatalf("answered: %v, %+v", err, v.sum)
	}
	says = transfer.StatusUnknown
	var err error
	for range maxUnanswered {
		if err != nil {
			t.Fatalf("before the last question: %v", err)
		}
		err = v.askBank(t.Context(), in)
	}
	if err == nil || v.sum.Unanswered != 2*maxUnanswered-1 {
		t.Errorf("%v after %d unanswered questions", err, v.sum.Unanswered)
	}
	v.options.Bank.Limiter = rate.NewLimiter(1, 0) // allows no request
	asked := v.sum.Asked
	if err := v.askBank(t.Context(), in); err == nil || v.sum.Asked != asked {
		t.Errorf("%v, and asked %d times in spite of the limit", err, v.sum.Asked-asked)
	}
}
