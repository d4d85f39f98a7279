package settle

import (
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

import "time"

// Outcome is what became of a delivery. The zero value, [OutcomeUnknown], is
// the one that must not be acknowledged.
type Outcome int

const (
	// OutcomeUnknown means that nothing is known to be committed. Deliver again.
	OutcomeUnknown Outcome = iota
	// OutcomeApplied means that this delivery settled the payout.
	OutcomeApplied
	// OutcomeDuplicate means that an earlier delivery settled the same payout.
	OutcomeDuplicate
	// OutcomeConflict means that the settlement ID is known with another payload hash.
	// Nothing moved; the conflict is recorded for investigation.
	OutcomeConflict
	// OutcomeQuarantined means that the message cannot be a payout. Nothing moved; the
	// message is kept whole.
	OutcomeQuarantined
)

// String returns the outcome's name in answers, logs and tables.
func (o Outcome) String() string {
	switch o {
	case OutcomeApplied:
		return "applied"
	case OutcomeDuplicate:
		return "duplicate"
	case OutcomeConflict:
		return "conflict"
	case OutcomeQuarantined:
		return "quarantined"
	case OutcomeUnknown:
		return "unknown"
	}
	return "unknown"
}

// Final reports whether the outcome is committed, so that the message can be
// acknowledged.
func (o Outcome) Final() bool { return o != OutcomeUnknown }

// Result is the outcome of a delivery with what is stored about it. It holds
// nothing of the payload but the settlement ID and the payload hash.
type Result struct {
	// Outcome is what became of the delivery.
	Outcome Outcome
	// SettlementID and PayloadHash are those of the delivered payout; empty for
	// a quarantined message.
	SettlementID string
	PayloadHash  payout.Hash
	// AppliedAt is the commit timestamp of the settlement's movement. Zero for a
	// quarantined message.
	AppliedAt time.Time
	// Instruction is the state of the settlement's bank instruction;
	// [transfer.StateNone] where none is wanted.
	Instruction transfer.State
	// Fields names the members in which a conflicting payout differs from the
	// settled one, in the order of the payout message's table.
	Fields []string
	// ReceiptExpired reports that the receipt is gone and the movement decided.
	ReceiptExpired bool
	// Refusal says why a message was quarantined; nil otherwise.
	Refusal *payout.Refusal
}
