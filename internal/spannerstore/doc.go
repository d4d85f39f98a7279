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
// Then a strong read by key, without locks, gets the stored rows, and settle.Judge
// decides. A movement and its hash never change, so a duplicate or a conflict stays one.
// A duplicate needs no write, a new conflict one insert. Apart from the refused insert,
// deliveries of a settled payout take no locks and abort no transaction.
//
// A known conflict needs a higher count. A read-write transaction reads again with locks,
// calls settle.Judge and writes its decision. This transaction is correct for any stored
// rows. The shorter paths give the same decision, and fall back to it in every other
// case, also after a failed read.
//
// A conflict's count can be one too high: the answer to its insert was lost, the client
// library repeated the insert, and another delivery was counted in between. Then the
// first delivery no longer recognises its own row.
//
//	             ┌────────────────────────┐ committed
//	Settle ────▶ │ Commit that inserts    │──────────────▶ applied
//	             └────────────────────────┘
//	                  │ ALREADY_EXISTS, or the answer was lost
//	                  ▼
//	             ┌────────────────────────┐ nothing to write
//	        ┌──▶ │ strong read            │──────────────▶ duplicate; applied, by this delivery
//	        │    └────────────────────────┘
//	        │         │ a new conflict  │ a known one, or nothing is stored
//	        │         ▼                 ▼
//	        │    ┌──────────────┐  ┌────────────────────────┐ committed
//	        │    │ Commit that  │  │ read-write transaction │────▶ applied, duplicate,
//	        │    │ inserts it   │  └────────────────────────┘      conflict
//	        │    └──────────────┘       │
//	        │         │ committed: conflict
//	        └─────────┴─────────────────┘ ALREADY_EXISTS, or the answer was lost: a few times,
//	                                      then ErrOutcomeUnknown
//
// # Lost answers
//
// A commit without an answer may have succeeded. Only the error codes of a definite
// refusal count as one; after every other error the store reads the rows. The read has
// its own context, because the caller's deadline may be over. The store does not read for
// a cancelled caller, whose message Pub/Sub redelivers anyway. A receipt with this
// delivery's ID proves its own commit: the outcome is applied, not duplicate. The client
// library loses answers too: it repeats a commit on UNAVAILABLE, and runs a transaction
// function again after a broken stream.
//
// # Due instructions
//
// The reconciler's two indexes begin with a shard of 16 values, because an index that
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
// For due instructions, one read per shard and index took 48 sequential RPCs in each run
// of the reconciler; now two queries suffice. One read of 16 ranges would exhaust its
// limit in the first shards. One query ordered by time over all shards would let a stuck
// shard hold up the others, and the planner could sort all due rows.
package spannerstore
