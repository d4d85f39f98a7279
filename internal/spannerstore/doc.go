// Package spannerstore is the settle.Store on Cloud Spanner.
//
// It exists because Spanner can do in one commit what makes a second delivery
// harmless: insert the receipt and the ledger movement together, under a primary
// key that is the settlement ID's.
//
// # The life of a settlement
//
// First attempt, one round trip: one Commit of a single-use read-write
// transaction inserts movement, receipt and, where one is wanted, the bank
// instruction. No read comes before it, since the primary keys do the checking:
// a known settlement ID answers ALREADY_EXISTS and nothing is written.
//
// Then a strong read without locks, by key, sees what is there, and settle.Judge
// decides. A movement is never changed or deleted, nor is its hash, so that what
// is a duplicate or a conflict stays one: a duplicate needs nothing more, and a
// conflict only another insert. But for the insert that is refused, deliveries of
// what is settled take no locks and abort nobody.
//
// A conflict that is recorded already has its count raised, and that is done in a
// read-write transaction, which reads again, with locks, lets settle.Judge decide,
// and writes what it decided in its commit. It alone is complete and right; the
// shorter ways come to the same decision, and whatever they meet that they cannot
// be sure of ends there. A read that fails after a refused insert ends there too.
//
// A conflict's count can be one too high: where the answer to its insert was lost,
// and another delivery of it was counted before the client library repeated the
// insert, the first no longer knows its own row.
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
// A commit whose answer is lost may have gone through, whatever the error code.
// Only codes by which Spanner states a refusal count as one; everything else is
// followed by the read. The read then has a context of its own, because the
// caller's deadline is often what ended; only a caller that has gone away
// altogether is not read for, since the message is delivered again anyway. A
// receipt with this delivery's ID is this delivery's own commit: the outcome is
// applied, and not a duplicate of itself. The same happens inside the client
// library, which repeats a commit on UNAVAILABLE and
// runs a whole transaction function again on a broken stream.
//
// # What is due
//
// The reconciler's two indexes begin with a shard of 16 values, because a time
// alone would put every write at one end. One query looks into all of them: for
// each shard a subquery with the shard as an equality, the index's own order and a
// limit. Spanner can seek such a subquery and stop at the limit. It need not sort,
// and what it reads does not grow with a backlog, nor with instructions that are
// final or due later. With FORCE_INDEX it refuses the query where the index is gone,
// instead of scanning the table. IS NOT NULL stands beside the comparison because it
// is what Spanner's documentation asks for before a NULL_FILTERED index is used.
//
// The shards are taken from in turn, so that a backlog in one does not starve the
// others, and all are seen at one timestamp.
//
// # What was considered beside it
//
// A status column with "in progress" would need a second commit for "done", and
// a crash between the two leaves a row that says neither. A check before the
// insert in a transaction of its own is a race. DML would cost a round trip a
// statement, where buffered mutations travel with the commit.
//
// For what is due: a read for each shard and index needs no SQL, and was 48 RPCs of a
// run of the reconciler, one after another, where two queries are enough. One read of
// 16 ranges applies its limit from the first shard on. A query of all shards that is
// ordered by time lets a shard that cannot be worked off hold up the others, and
// whether Spanner stops at the limit or sorts everything due is the planner's choice.
package spannerstore
