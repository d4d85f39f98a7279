// Package linear checks that settling is linearizable: that the answers to
// concurrent deliveries, whatever was lost and whoever died, are those that the
// deliveries would have got one after another, in an order that agrees with
// time.
//
// It exists because the usual check, one movement and one receipt in the end,
// says nothing about the answers. A producer that is told applied twice, or
// duplicate before anything was applied, or conflict with a payload that was
// never settled, has been lied to by a database that looks right.
//
// # The sequential model
//
// For one settlement ID, one delivery at a time:
//
//	settled so far │ delivered │ answer                              │ settled then
//	───────────────┼───────────┼─────────────────────────────────────┼─────────────
//	nothing        │ A         │ applied, with a commit timestamp    │ A
//	A              │ A         │ duplicate, with the same timestamp  │ A
//	A              │ B         │ conflict, with the same timestamp,  │ A, and B is
//	               │           │ names the members in which B differs│ on record
//
// A look at the database is an operation as well: it sees what is settled, when
// it was, and which payloads are on record as conflicts. The model is written
// without settle.Judge, which is part of what it checks.
//
// # Outcomes that nobody knows
//
// A delivery that ended in an error, or whose process died, took effect, or will
// at any later time, or never does. It is an operation that has no end and
// allows every answer: the checker may put it anywhere after its beginning, also
// behind everything else, where no one can tell whether it took effect. The
// message is delivered again, as Pub/Sub would, and that is another operation,
// of another delivery with an ID of its own: where the lost one took effect it is
// a duplicate, and where it did not it is applied.
//
// # How histories are made
//
// A [Workload] plays Pub/Sub, in front of whatever settles: stores in one
// process, each with a client of its own, or processes that are killed. A
// [History] records who asked what, and when the answer came, and its Check hands
// the operations of each settlement ID to porcupine.
package linear
