package settle

import (
	"time"

	"github.com/google/uuid"
)

// InstructionState is the state of a bank instruction.
type InstructionState string

const (
	// InstructionNone is the zero value: the settlement has no instruction.
	InstructionNone InstructionState = ""
	// InstructionUncertain means the transfer may or may not have reached the bank.
	// Every instruction begins here, in the commit that creates the movement, so
	// that a crash at any later point leaves the right state behind.
	InstructionUncertain InstructionState = "uncertain"
)

// Instruction is the credit transfer that a bank is asked for. Key and Body are
// made once, from the payout, and never change: asking again with them is
// harmless.
type Instruction struct {
	// Key is the idempotency key, see [InstructionKey].
	Key uuid.UUID
	// Body is the request body, byte for byte.
	Body []byte
	// NextCheckAt is when the instruction is looked at next.
	NextCheckAt time.Time
}

// instructionNamespace is the namespace of idempotency keys: the UUID version 5
// of urn:settleonce:bank-instruction in the URL namespace.
var instructionNamespace = uuid.NewSHA1(uuid.NameSpaceURL, []byte("urn:settleonce:bank-instruction"))

// InstructionKey returns the idempotency key of a settlement's instruction. It
// depends on the settlement ID alone: whoever asks, and after whatever crash,
// asks with the same key.
func InstructionKey(settlementID string) uuid.UUID {
	return uuid.NewSHA1(instructionNamespace, []byte(settlementID))
}
