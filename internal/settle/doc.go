// Package settle decides what becomes of a payout message: it is applied,
// recognised as a duplicate, recorded as a conflict or kept in quarantine.
//
// The package exists so that these decisions stand in one place, without a
// database, a network or a clock: [Decode] reads a payout message, [PayloadHash]
// identifies its content, [Judge] compares an incoming settlement with what is
// stored under its settlement ID, and [Service] puts the steps in order. What
// has to be kept is kept by a [Store], whose contract stands on the interface.
//
// # The life of a delivery
//
//	data ──Decode──▶ refused ──▶ Store.Quarantine ─────────▶ quarantined
//	   │
//	   └──▶ payout ──Hash──▶ Store.Settle
//	                           │ nothing stored ───────────▶ applied
//	                           │ same hash, own receipt ───▶ applied
//	                           │ same hash ────────────────▶ duplicate
//	                           └ other hash ───────────────▶ conflict
//
// Every one of the four outcomes is committed before it is returned, and is
// final for the delivery: the message can be acknowledged. Anything else is an
// error, the message is delivered again, and a delivery that comes again meets
// what the earlier one left behind. There is no in-progress marker that a crash
// could leave standing.
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
// Two people leave it, by [Policy.Decide], to confirmed, rejected or returned, or back
// to uncertain under a new idempotency key; the decision is an observation like any
// other, and what the bank contradicts is no decision. A key that was given up stays
// watched: every question about the instruction asks about it too, no send is made
// without such a question, and a transfer under it makes the instruction manual.
//
// The machine is the table in transitions.go and the pure functions of [Policy];
// [Stepper] makes one exchange with the bank between two transactions, and is what
// deliveries and the reconciler both call.
//
// # Words
//
// A settlement ID is the producer's business key of a payout; a Pub/Sub message
// ID is not, since a payout that is published again gets another one. A receipt
// proves that a settlement ID was processed; a movement is the effect on the
// ledger. A replay is a delivery whose settlement ID is already settled with the
// same payload hash.
package settle
