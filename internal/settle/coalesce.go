package settle

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// coalesceLimit is how long a delivery waits for others of its settlement. It is many
// times what a settlement takes. After it the delivery goes to the store beside
// them: a call that hangs must not be what the others fail by.
const coalesceLimit = 2 * time.Second

// inflight lets the deliveries of one settlement ID that are here at the same time
// go to the store one after another, and tells those that have waited what was
// found out meanwhile. A settlement that is delivered many times at once so takes
// one place at the database, and not as many as would keep others from it.
//
// It saves work and decides nothing: other instances of the program have lines of
// their own, and only the store can tell who was first. The zero value is ready.
type inflight struct {
	mu   sync.Mutex
	byID map[string]*line // that can be joined
}

// line is where deliveries of one settlement ID wait.
type line struct {
	waiting int           // those inside, under lines.mu
	turn    chan struct{} // holds one token; who has taken it may use settled
	// settled is what the delivery learned that found the payout settled, or
	// settled it: the outcome is applied or duplicate. Zero: none has.
	settled Result
}

// settle calls store when the turn of s comes. Where another delivery found the
// same payout settled while s waited, s is a duplicate: a settlement stays as it
// is, so that what was true of it is still true. shared then is true, and the
// state of the bank instruction is as the other one found it.
//
// A conflict is recorded by each delivery itself, since each is counted. After an
// error the next one tries, as if nobody had been there.
func (l *inflight) settle(ctx context.Context, s Settlement, store func() (Result, error)) (result Result, shared bool, err error) {
	own := l.enter(s.Payout.SettlementID)
	defer l.leave(s.Payout.SettlementID, own)
	turn := own.wait(ctx)
	if turn {
		defer func() { own.turn <- struct{}{} }()
	}
	if ctx.Err() != nil {
		return Result{}, false, fmt.Errorf("wait for another delivery of the settlement: %w", context.Cause(ctx))
	}
	if !turn {
		result, err = store()
		return result, false, err
	}
	if own.settled.Outcome.Final() && own.settled.PayloadHash == s.Hash {
		result = own.settled
		result.Outcome = OutcomeDuplicate
		return result, true, nil
	}
	result, err = store()
	if err == nil && (result.Outcome == OutcomeApplied || result.Outcome == OutcomeDuplicate) {
		own.settled = result
		l.close(s.Payout.SettlementID, own) // who comes later asks the store
	}
	return result, false, err
}

// wait waits for the turn, up to lineLimit and the end of ctx, and reports whether
// it has come.
func (own *line) wait(ctx context.Context) (turn bool) {
	select {
	case <-own.turn:
		return true
	default:
	}
	limit := time.NewTimer(coalesceLimit)
	defer limit.Stop()
	select {
	case <-own.turn:
		return true
	case <-limit.C:
	case <-ctx.Done():
	}
	return false
}

func (l *inflight) enter(settlementID string) *line {
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

func (l *inflight) leave(settlementID string, own *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own.waiting--; own.waiting == 0 && l.byID[settlementID] == own {
		delete(l.byID, settlementID)
	}
}

// close lets nobody join any more.
func (l *inflight) close(settlementID string, own *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID[settlementID] == own {
		delete(l.byID, settlementID)
	}
}
