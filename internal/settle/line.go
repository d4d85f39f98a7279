package settle

import (
	"context"
	"fmt"
	"sync"
)

// lines lets the deliveries of one settlement ID that are here at the same time
// go to the store one after another, and tells those that have waited what is
// known by then. A settlement that is delivered a thousand times at once so
// takes one place at the database and not a thousand, from which others would be
// kept; and as long as one of its deliveries waits, it costs the database
// nothing more.
//
// It saves work and decides nothing: other instances of the program have lines of
// their own, and only the store can tell who was first. The zero value is ready.
type lines struct {
	mu   sync.Mutex
	byID map[string]*line
}

// line is where the deliveries of one settlement ID wait. It is there as long as
// one of them is.
type line struct {
	waiting int           // those inside and their number, under lines.mu
	turn    chan struct{} // holds one token; who has taken it may use settled
	// settled is what the last delivery learned that found the payout settled or
	// settled it: the outcome is applied or duplicate. Zero: nobody has.
	settled Result
}

// settle lets s be settled when its turn comes. Where another delivery of the same
// payout found it settled in the meantime, s is a duplicate: a settlement stays
// as it is, so that what was true of it is still true. shared then is true, and
// the state of the bank instruction is as the other one found it.
//
// A conflict is recorded by each delivery itself, since each is counted. After an
// error the next one tries, as if nobody had been there.
func (l *lines) settle(ctx context.Context, s Settlement, settle func(context.Context, Settlement) (Result, error)) (result Result, shared bool, err error) {
	own := l.enter(s.Payout.SettlementID)
	defer l.leave(s.Payout.SettlementID, own)
	select {
	case <-own.turn:
	case <-ctx.Done():
		return Result{}, false, fmt.Errorf("wait for another delivery of the settlement: %w", context.Cause(ctx))
	}
	defer func() { own.turn <- struct{}{} }()
	if own.settled.Outcome.Final() && own.settled.PayloadHash == s.Hash {
		result = own.settled
		result.Outcome = OutcomeDuplicate
		return result, true, nil
	}
	result, err = settle(ctx, s)
	if err == nil && (result.Outcome == OutcomeApplied || result.Outcome == OutcomeDuplicate) {
		own.settled = result
	}
	return result, false, err
}

func (l *lines) enter(settlementID string) *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID == nil {
		l.byID = make(map[string]*line)
	}
	own := l.byID[settlementID]
	if own == nil {
		own = &line{turn: make(chan struct{}, 1)}
		own.turn <- struct{}{}
		l.byID[settlementID] = own
	}
	own.waiting++
	return own
}

func (l *lines) leave(settlementID string, own *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own.waiting--; own.waiting == 0 {
		delete(l.byID, settlementID)
	}
}
