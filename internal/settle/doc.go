// Package settle decides what becomes of a payout message: it is applied,
// recognised as a duplicate, recorded as a conflict or kept in quarantine.
//
// The package exists so that these decisions stand in one place, without a
// database, a network or a clock: [payout.Decode] reads a payout message, [payout.Hash]
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
// # Words
//
// A settlement ID is the producer's business key of a payout; a Pub/Sub message
// ID is not, since a payout that is published again gets another one. A receipt
// proves that a settlement ID was processed; a movement is the effect on the
// ledger. A replay is a delivery whose settlement ID is already settled with the
// same payload hash.
package settle
