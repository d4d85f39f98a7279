// Package transfer makes the steps of bank instructions. A bank instruction is the
// credit transfer of a settled payout.
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
// The commit of the movement creates the instruction in state uncertain. It stays
// uncertain until the bank's answer proves another state. Only the bank's status API
// makes it confirmed. rejected and returned insert the movement's reversal in the same
// transaction. manual waits for people: the bank may have forgotten the key, gave no
// final answer in 7 days, contradicts itself, or has a different transfer.
//
// Two people move a manual instruction by [Policy.Decide] to confirmed, rejected or
// returned. A decision that contradicts the bank's status is refused. There is no send
// under another idempotency key: the producer publishes a rejected payout again under a
// new settlement ID.
//
// The table in transitions.go and the methods of [Policy] decide without I/O.
// [Stepper] makes one exchange with the bank between two transactions, for deliveries
// and for the reconciler.
package transfer
