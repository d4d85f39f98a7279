// Package settle decides the outcome of a payout message: applied, duplicate,
// conflict or quarantined.
//
// The decisions need no database, network or clock. [payout.Decode] reads a payout
// message, [payout.Hash] identifies its content, [Judge] compares a settlement with
// the stored one of the same settlement ID, and [Service] runs the steps in order. A
// [Store] keeps the rows; its contract stands on the interface.
//
// # The life of a delivery
//
//	data ──Decode──▶ refused ──▶ Store.Quarantine ─────────▶ quarantined
//	   │                │ only the currency is absent, and it is settled ──▶ duplicate
//	   │
//	   └──▶ payout ──Hash──▶ Store.Settle
//	                           │ nothing stored ───────────▶ applied
//	                           │ same hash, own receipt ───▶ applied
//	                           │ same hash ────────────────▶ duplicate
//	                           └ other hash ───────────────▶ conflict
//
// Each of the four outcomes is committed before it is returned, and the message can
// be acknowledged. Any other end is an error: Pub/Sub redelivers the message, and the
// redelivery finds the rows of the earlier delivery. No row marks a settlement as in
// progress, so a crash leaves none to clean up.
package settle
