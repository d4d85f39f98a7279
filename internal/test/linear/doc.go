// Package linear checks that settling is linearizable: an order of the concurrent
// deliveries exists that agrees with time and explains every answer, although answers
// were lost and processes died.
//
// The other checks compare the rows at the end, and say nothing about answers. With
// correct rows, a producer may still have read applied twice, duplicate before anything
// was applied, or conflict with a payload that was never settled.
//
// # The sequential model
//
// For one settlement ID, one delivery at a time:
//
//	settled before │ delivered │ answer                              │ settled after
//	───────────────┼───────────┼─────────────────────────────────────┼──────────────
//	nothing        │ A         │ applied, with a commit timestamp    │ A
//	A              │ A         │ duplicate, with the same timestamp  │ A
//	A              │ B         │ conflict, with the same timestamp   │ A, and B is
//	               │           │ and the members in which B differs; │ recorded once
//	               │           │ known if B was recorded before      │
//
// A message that is no payout is quarantined and stored once, and known after that. A read
// of the database is an operation too: it returns the settled payload, the recorded
// conflicts or the message in quarantine, and their timestamps, which never change. The
// model does not use settle.Judge, which it checks.
//
// # Unknown outcomes
//
// A delivery that ended in an error, or whose process died, has taken effect, will take
// effect later, or never does. It is an operation without an end that allows every
// answer. The checker may place it anywhere after its beginning, also after all other
// operations, where its effect is not visible. Pub/Sub delivers the message again; that
// is another operation with another delivery ID: a duplicate if the lost one took
// effect, and applied if it did not. Nothing else may depend on the number of the delivery.
//
// An instance that lost an answer of the database may not know whether it recorded a
// finding itself. Such a delivery is doubtful: both values of known explain its answer.
//
// # How histories are made
//
// A [Workload] plays Pub/Sub. It delivers to stores in one process, each with a client
// of its own, or to processes that the test kills. A [History] records every delivery
// and its answer, and its Check hands the operations of each settlement ID to porcupine.
package linear
