package transfer

import (
	"context"
	"time"
)

// Store keeps bank instructions.
//
// Several instances of the program work on the same data at the same time, and any of
// them can crash between two of its steps. All methods are safe for concurrent use. A
// nil error means that the returned change is committed. After an error other than
// decide's own and [ErrNoInstruction] the commit is unknown: the change may be
// committed, may be committed later, or never.
type Store interface {
	// Change changes the bank instruction of a settlement. In one atomic step it reads
	// the instruction, calls decide, and stores the whole change, or nothing if decide
	// fails. It returns the stored change, or decide's error unchanged. Without an
	// instruction it fails with [ErrNoInstruction].
	//
	// decide has no side effects. Change can call it several times, each time with the
	// stored instruction. After a lost answer that can be decide's own change.
	Change(ctx context.Context, settlementID string, decide func(Instruction) (Change, error)) (Change, error)

	// Due returns the settlement IDs of up to limit instructions that are due at now, in
	// no particular order. It reads no instruction that is not due.
	Due(ctx context.Context, now time.Time, limit int) ([]string, error)

	// Backlog returns the age and the number of open bank instructions.
	Backlog(ctx context.Context) (Backlog, error)
}

// Backlog summarises the open bank instructions.
type Backlog struct {
	// UncertainSince is the creation of the oldest uncertain instruction; zero for none.
	UncertainSince time.Time
	// NextDue is the earliest next step of all instructions, which can be in the past;
	// zero for none.
	NextDue time.Time
	// Manual counts the manual instructions, up to [MaxManual].
	Manual int
}

// MaxManual bounds the count of manual instructions, and so the cost of a backlog.
const MaxManual = 1000
