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
// Otherwise a read-write transaction reads what is stored, by key and with locks,
// lets settle.Judge decide, and writes what it decided in its commit. The
// transaction alone is complete and right; the first attempt is the same
// decision in one round trip for the common case.
//
//	             ┌────────────────────────┐ committed
//	Settle ────▶ │ Commit (single use)    │──────────────▶ applied
//	             └────────────────────────┘
//	   ALREADY_EXISTS │       │ answer lost
//	                  │       ▼
//	                  │  ┌────────────────────────┐ stored, nothing to write
//	                  │  │ strong read, own ctx   │──────▶ applied, duplicate
//	                  │  └────────────────────────┘
//	                  ▼       ▼ not stored, or a conflict to write
//	             ┌────────────────────────┐ committed
//	             │ read-write transaction │──────▶ applied, duplicate, conflict
//	             └────────────────────────┘
//	                  │ answer lost: the strong read again, then ErrOutcomeUnknown
//
// # Lost answers
//
// A commit whose answer is lost may have gone through, whatever the error code.
// Only codes by which Spanner states a refusal count as one; everything else is
// followed by a read. The read has a context of its own, because the caller's
// deadline is often what ended; only a caller that has gone away altogether is
// not read for, since the message is delivered again anyway. A receipt with this delivery's ID is this delivery's own
// commit: the outcome is applied, and not a duplicate of itself. The same
// happens inside the client library, which repeats a commit on UNAVAILABLE and
// runs a whole transaction function again on a broken stream.
//
// # What was considered beside it
//
// A status column with "in progress" would need a second commit for "done", and
// a crash between the two leaves a row that says neither. A check before the
// insert in a transaction of its own is a race. DML would cost a round trip a
// statement, where buffered mutations travel with the commit.
package spannerstore
