package transfer

import (
	"context"
	"time"
)

// Store keeps bank instructions.
//
// A store is shared: several instances of the program work on the same data at the
// same time, and any of them can die between any two of its steps. All methods are
// safe for concurrent use. A nil error means that the returned change is committed.
// Any other error than that of decide and [ErrNoInstruction] means that nothing is
// known: the change may be committed, may be committed later, or may never be.
type Store interface {
	// Change changes the bank instruction of a settlement: in one
	// atomic step it reads the instruction, lets decide work out the change, and
	// stores everything that the change says, or nothing if decide fails. It
	// returns the change that was stored, and decide's error as it is. Without an
	// instruction it fails with [ErrNoInstruction].
	//
	// decide is pure. It can be called several times, each time with what is
	// stored then, which after a lost answer can be its own change.
	Change(ctx context.Context, settlementID string, decide func(Instruction) (Change, error)) (Change, error)

	// Due returns the settlement IDs of up to limit instructions that have to be
	// looked at by now, in no particular order. It reads nothing about
	// instructions that are not due.
	Due(ctx context.Context, now time.Time, limit int) ([]string, error)

	// Backlog tells how far the bank instructions are behind.
	Backlog(ctx context.Context) (Backlog, error)
}

// Backlog is what is still open at the bank.
type Backlog struct {
	// UncertainSince is when the oldest uncertain instruction was created; zero
	// for none.
	UncertainSince time.Time
	// NextDue is when the next instruction is due, which can be in the past; zero
	// for none.
	NextDue time.Time
	// Manual counts the instructions that wait for a person, up to [MaxManual].
	Manual int
}

// MaxManual is the most that a backlog counts to: what it costs to look must not
// grow with what people leave undone.
const MaxManual = 1000
