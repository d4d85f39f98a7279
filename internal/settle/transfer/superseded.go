package transfer

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
)

// SupersededKey is an earlier idempotency key of an instruction that people have given a
// new one. The bank can still execute a transfer under it, so every status check of the
// instruction asks about it too.
type SupersededKey struct {
	Key uuid.UUID
	// At is the time of the decision.
	At time.Time
}

// KeyOfGeneration returns the n-th idempotency key of a settlement's instruction, from
// 1. The first is [InstructionKey]. Settlement IDs contain no #, so the keys of two
// settlements differ.
func KeyOfGeneration(settlementID string, n int) uuid.UUID {
	if n <= 1 {
		return InstructionKey(settlementID)
	}
	return uuid.NewSHA1(instructionNamespace, []byte(settlementID+"#"+strconv.Itoa(n)))
}

// keySince is the time at which the instruction got its present key.
func (in Instruction) keySince() time.Time {
	if n := len(in.Superseded); n > 0 {
		return in.Superseded[n-1].At
	}
	return in.CreatedAt
}

// earlierMayHaveReached reports whether a send before the latest counted one may have
// reached the bank, under the present or a superseded key.
func (in Instruction) earlierMayHaveReached() bool { return in.Sends > 1 || len(in.Superseded) > 0 }

// Statuses are the results of a status check of all keys of an instruction. The zero
// value is unknown.
type Statuses struct {
	// Current is the result for the present key.
	Current StatusResult
	// Superseded has the results for [Instruction.Superseded], in the same order.
	Superseded []StatusResult
	// Later has the results for [Instruction.LaterKeys]; nil if they were not asked about.
	Later []StatusResult
}

// LaterKeys are the idempotency keys that the instruction can still get, in order. By
// the row none was ever sent, but a restored database may have lost a send.
func (in Instruction) LaterKeys() []uuid.UUID {
	var keys []uuid.UUID
	for n := len(in.Superseded) + 2; n <= maxSuperseded+1; n++ {
		keys = append(keys, KeyOfGeneration(in.SettlementID, n))
	}
	return keys
}

// AskStatuses asks concurrently about the present and all superseded keys. status is a
// bank's [Bank.Status].
func AskStatuses(ctx context.Context, status func(context.Context, StatusRequest) StatusResult, in Instruction) Statuses {
	return askStatuses(ctx, status, in, nil)
}

// AskAllStatuses is [AskStatuses] with [Instruction.LaterKeys].
func AskAllStatuses(ctx context.Context, status func(context.Context, StatusRequest) StatusResult, in Instruction) Statuses {
	return askStatuses(ctx, status, in, in.LaterKeys())
}

func askStatuses(ctx context.Context, status func(context.Context, StatusRequest) StatusResult, in Instruction, later []uuid.UUID) Statuses {
	var (
		said     Statuses
		requests sync.WaitGroup
		panics   = make(chan any, len(in.Superseded)+len(later))
	)
	ask := func(key uuid.UUID, to *StatusResult) {
		requests.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panics <- p
				}
			}()
			transfer := in.Transfer
			transfer.Key = key
			*to = status(ctx, StatusRequest{Transfer: transfer})
		})
	}
	if len(in.Superseded) > 0 {
		said.Superseded = make([]StatusResult, len(in.Superseded))
	}
	for i, old := range in.Superseded {
		ask(old.Key, &said.Superseded[i])
	}
	if len(later) > 0 {
		said.Later = make([]StatusResult, len(later))
	}
	for i, key := range later {
		ask(key, &said.Later[i])
	}
	said.Current = status(ctx, StatusRequest{Transfer: in.Transfer})
	requests.Wait()
	select {
	case p := <-panics:
		panic(p) // in the caller's goroutine, which recovers
	default:
		return said
	}
}

func (s Statuses) any(reading StatusReading) bool { return s.count(reading) > 0 }

// count returns the number of keys with the reading.
func (s Statuses) count(reading StatusReading) int {
	n := 0
	for _, said := range slices.Concat([]StatusResult{s.Current}, s.Superseded, s.Later) {
		if said.Reading == reading {
			n++
		}
	}
	return n
}

// known reports whether the bank's status of the present and all superseded keys is
// known.
func (s Statuses) known(in Instruction) bool { return s.Unknown(in) == "" }

// Unknown names the first of these keys whose status is unknown; empty for none.
func (s Statuses) Unknown(in Instruction) string {
	if s.Current.Reading == StatusUnknown {
		return joinDetail("no clear answer", s.Current.Answer.Detail)
	}
	for i := range in.Superseded {
		if i >= len(s.Superseded) || s.Superseded[i].Reading == StatusUnknown {
			return fmt.Sprintf("no clear answer about superseded key %d", i+1)
		}
	}
	return ""
}

// supersededAlive names the first superseded key under which the bank may have moved or
// may move money; empty for none.
func (s Statuses) supersededAlive() string {
	for i, old := range s.Superseded {
		switch old.Reading {
		case StatusPending, StatusConfirmed, StatusManual, StatusAttention:
			return fmt.Sprintf("key %d is %s", i+1, old.Reading)
		case StatusUnknown, StatusNotFound, StatusRejected, StatusReturned:
		}
	}
	return ""
}

// needsReview reports whether the next step would move the instruction to manual.
func (s Statuses) needsReview() bool {
	return s.Current.Reading == StatusManual || s.Current.Reading == StatusAttention || s.supersededAlive() != ""
}
