// Package spannerstore implements settle.Store and transfer.Store on Cloud Spanner.
//
// One commit inserts the receipt and the ledger movement together, with primary keys
// derived from the settlement ID. A second delivery cannot insert them again.
//
// # The life of a settlement
//
// The first attempt takes one round trip. The Commit of a single-use read-write
// transaction inserts the movement, the receipt and, if needed, the bank instruction. It
// needs no read, because the primary keys check the settlement ID: for a known one
// Spanner answers ALREADY_EXISTS and writes nothing.
//
// Then reads by key, without locks, get the stored rows, and settle.Judge decides. A
// receipt of the same payload decides alone. Otherwise the movement and the conflict are
// read at the same time. Receipt and movement never change, so a duplicate or a conflict
// stays one, and the reads need no common timestamp. A duplicate or a known conflict
// needs no write, a new conflict one insert. Only Commits take locks: the
// refused insert, and the insert of a new conflict. The reads take none.
//
// A delivery that Pub/Sub marks as a redelivery begins with the receipt, because its
// payout is probably settled. Without a receipt it continues with the insert.
//
// In every other case a read-write transaction reads with locks, calls settle.Judge and
// writes its decision. This transaction is correct for any stored rows; the shorter paths
// give the same decision.
//
//	             ┌────────────────────────┐ committed
//	Settle ────▶ │ Commit that inserts    │──────────────▶ applied
//	             └────────────────────────┘
//	                  │ ALREADY_EXISTS, or the answer was lost
//	                  ▼
//	             ┌────────────────────────┐ the same payload
//	        ┌──▶ │ read the receipt       │──────────────▶ duplicate; applied, by this delivery
//	        │    └────────────────────────┘
//	        │         │ another payload, or no receipt
//	        │         ▼
//	        │    ┌────────────────────────┐ nothing to write
//	        │    │ read the movement      │──────────────▶ duplicate; known conflict
//	        │    │ and the conflict       │
//	        │    └────────────────────────┘
//	        │         │ a new conflict  │ nothing is stored
//	        │         ▼                 ▼
//	        │    ┌──────────────┐  ┌────────────────────────┐ committed
//	        │    │ Commit that  │  │ read-write transaction │────▶ applied, duplicate,
//	        │    │ inserts it   │  └────────────────────────┘      conflict
//	        │    └──────────────┘       │
//	        │         │ committed: conflict
//	        └─────────┴─────────────────┘ the answer was lost: a few times,
//	                                      then ErrOutcomeUnknown
//
// # Lost answers
//
// A commit without an answer may have succeeded. Only the error codes of a definite
// refusal count as one, and only if the request was sent once: the client library repeats
// a commit on UNAVAILABLE, and the refusal of the second says nothing about the first.
// After every other error the store reads the rows. The read has its own deadline,
// because the caller's may be over. The store does not read for a cancelled caller, whose
// message Pub/Sub redelivers anyway. A receipt with this delivery's ID proves its own
// commit: the outcome is applied, not duplicate.
//
// # Time and connections
//
// Each exchange with Spanner has a limit far below the delivery's budget. A connection can
// be dead without being closed, and a request on it waits until its deadline. After such a
// timeout the delivery continues on other connections of the client's pool, and other
// deliveries avoid the connection for a minute.
//
// A client has one session for days. When Spanner has deleted it, every request fails with
// the error detail ResourceInfo of type Session, and has done nothing. The store then
// opens another client and repeats the exchange within the same delivery. If it opened a
// client less than a minute ago, it waits first, longer each time. After other errors it
// keeps the client: gRPC reconnects by itself.
//
// # Due instructions
//
// The reconciler's two indexes begin with a shard of [Shards] values, because an index that
// begins with a time takes all writes at one end. One query covers all shards: each
// shard has a subquery with the shard as an equality, the index's order and a limit.
// Spanner can seek such a subquery and stop at the limit without sorting. The number of
// read rows does not grow with the backlog, or with final and later instructions. With
// FORCE_INDEX Spanner refuses the query if the index is missing, instead of scanning the
// table. The IS NOT NULL conditions are required for NULL_FILTERED indexes, by Spanner's
// documentation.
//
// The result takes rows from the shards in turn, at one timestamp, so a backlog in one
// shard does not starve the others.
//
// # Alternatives
//
// A column with the status "in progress" needs a second commit, and a crash between the
// two leaves a row without an outcome. A check in a transaction before the insert is a
// race. DML costs one round trip per statement; buffered mutations are part of the
// commit.
//
// For due instructions, one read per shard and index would take 64 RPCs an index; two
// queries suffice. One read of all shards' ranges would exhaust its limit in the first.
// One query ordered by time over all shards would let a stuck shard hold up the others,
// and the planner could sort all due rows.
package spannerstore
