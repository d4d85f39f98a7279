// Package transfer decides the next step of a bank instruction, and makes it: the
// credit transfer that a settled payout asks a bank for.
//
// # The life of a bank instruction
//
//	            not found twice: the same key and bytes again
//	               ┌───┐
//	               │   ▼            the bank has it
//	settled ──▶ uncertain ─────────────────────────▶ accepted
//	             │ │ │ │                             │ │ │ │
//	  refused or │ │ │ └─────────┐  status API       │ │ │ │
//	  status API │ │ └─────────┐ └──▶ confirmed ◀────┘ │ │ │
//	             ▼ │           │       │ sent back     │ │ │
//	         rejected ◀────────┼───────┼───────────────┘ │ │
//	  executed   │ │           │       ▼                 │ │
//	  after all  │ │           └──▶ returned ◀───────────┘ │
//	             ▼ ▼                                       │
//	           manual ◀────────────────────────────────────┘
//
// A settlement's instruction begins uncertain, in the commit of the movement, and
// a result stays uncertain unless it is provably something else. confirmed comes
// only from the bank's status API. rejected and returned insert the movement's
// reversal in the same transaction. manual is for a person: the bank may have
// forgotten the key, gave no final answer in 7 days, contradicts itself, or has
// another transfer than the one that was asked for.
//
// Two people leave it, by [transfer.Policy.Decide], to confirmed, rejected or returned, or back
// to uncertain under a new idempotency key; the decision is an observation like any
// other, and what the bank contradicts is no decision. A key that was given up stays
// watched: every question about the instruction asks about it too, no send is made
// without such a question, and a transfer under it makes the instruction manual.
//
// The machine is the table in transitions.go and the pure functions of [transfer.Policy];
// [transfer.Stepper] makes one exchange with the bank between two transactions, and is what
// deliveries and the reconciler both call.
package transfer
