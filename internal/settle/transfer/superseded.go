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

// SupersededKey is an idempotency key that an instruction had before people
// decided to send it again under a new one. The bank can still come up with a
// transfer under it, so it is asked about in every question about the instruction.
type SupersededKey struct {
	// Key is the key that was given up.
	Key uuid.UUID
	// At is when; a commit timestamp.
	At time.Time
}

// KeyOfGeneration returns the idempotency key of a settlement's instruction in
// its n-th generation, counted from 1. The first is [InstructionKey]. No
// settlement ID has a # in it, so that no two settlements have a key in common.
func KeyOfGeneration(settlementID string, n int) uuid.UUID {
	if n <= 1 {
		return InstructionKey(settlementID)
	}
	return uuid.NewSHA1(instructionNamespace, []byte(settlementID+"#"+strconv.Itoa(n)))
}

// keySince is when the instruction got the key that it has.
func (in Instruction) keySince() time.Time {
	if n := len(in.Superseded); n > 0 {
		return in.Superseded[n-1].At
	}
	return in.CreatedAt
}

// earlierMayHaveReached reports whether a send before the one that was counted last
// can have reached the bank, under whatever key: what was sent under a key that was
// given up may have been executed.
func (in Instruction) earlierMayHaveReached() bool { return in.Sends > 1 || len(in.Superseded) > 0 }

// Statuses is what the status API said of an instruction. The zero value is
// unknown.
type Statuses struct {
	// Current is about the key that the instruction has.
	Current StatusResult
	// Superseded is about each key that it had, in their order.
	Superseded []StatusResult
	// Later is about each of [Instruction.LaterKeys], where they were asked about.
	Later []StatusResult
}

// LaterKeys are the idempotency keys that the instruction can still get, in their
// order. None was ever sent by what the row says; where the database was restored to
// an earlier time, the row may have forgotten it.
func (in Instruction) LaterKeys() []uuid.UUID {
	var keys []uuid.UUID
	for n := len(in.Superseded) + 2; n <= maxSuperseded+1; n++ {
		keys = append(keys, KeyOfGeneration(in.SettlementID, n))
	}
	return keys
}

// AskStatuses asks about every key that an instruction has or had, all at once: it
// takes no longer than one question. status is a bank's [Bank.Status].
func AskStatuses(ctx context.Context, status func(context.Context, StatusRequest) StatusResult, in Instruction) Statuses {
	return askStatuses(ctx, status, in, nil)
}

// AskAllStatuses asks about [Instruction.LaterKeys] too.
func AskAllStatuses(ctx context.Context, status func(context.Context, StatusRequest) StatusResult, in Instruction) Statuses {
	return askStatuses(ctx, status, in, in.LaterKeys())
}

func askStatuses(ctx context.Context, status func(context.Context, StatusRequest) StatusResult, in Instruction, later []uuid.UUID) Statuses {
	var (
		said      Statuses
		questions sync.WaitGroup
		panics    = make(chan any, len(in.Superseded)+len(later))
	)
	ask := func(key uuid.UUID, to *StatusResult) {
		questions.Go(func() {
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
	questions.Wait()
	select {
	case p := <-panics:
		panic(p) // where the caller can outlive it
	default:
		return said
	}
}

// any reports whether the bank says reading of any key.
func (s Statuses) any(reading StatusReading) bool { return s.count(reading) > 0 }

// count is of how many keys the bank says reading.
func (s Statuses) count(reading StatusReading) int {
	n := 0
	for _, said := range slices.Concat([]StatusResult{s.Current}, s.Superseded, s.Later) {
		if said.Reading == reading {
			n++
		}
	}
	return n
}

// known reports whether the bank's status of every key of the instruction is.
func (s Statuses) known(in Instruction) bool { return s.Unknown(in) == "" }

// Unknown says of which key the bank's status is not known; empty for none.
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

// supersededAlive says which superseded key can have moved money, or can yet;
// empty for none.
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

// unsettling reports whether the step that comes next would see something for
// which people had to be asked.
func (s Statuses) needsReview() bool {
	return s.Current.Reading == StatusManual || s.Current.Reading == StatusAttention || s.supersededAlive() != ""
}
