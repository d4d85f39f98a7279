// Package ledger reads and changes what people look after in a Settle Once database. [Reader] answers what a person asks about a Settle Once database:
// what happened to a settlement, what waits for somebody, what is going on now,
// and what an account paid. It only reads.
//
// It exists so that nobody needs SQL at night, and so that what the questions cost
// the database is decided once, here:
//
//	question                     read by
//	one settlement               keys: its rows lie in one split
//	conflicts, quarantine, open  settlement_conflicts_open, quarantined_messages_open
//	uncertain                    bank_instructions_uncertain
//	manual                       bank_instructions_manual
//	movements, what is closed,   the table, by commit timestamp
//	what goes on, reports
//
// # Lists
//
// A list is newest first, of any length, and holds a page of rows for each shard of
// its index at a time: [Reader] asks every shard for its next page by the key after
// the last row, and takes the newest of what it has. Nothing is skipped by counting,
// so the last page costs as much as the first. All of a list is read at one
// timestamp. Manual instructions are few, but among millions that are not: their
// index, like the others, leaves everything else out, so that settling a payout
// does not write to it.
//
// # No index on the ledger by time
//
// An index on ledger_movements by time would have to be written by every commit
// that settles a payout, and lies in a split of its own: a commit that now needs one
// Paxos group, for a payout without a bank, would need two. Instead, queries by time
// compare the commit timestamp with a value, which lets Spanner leave out storage
// that was written before it. What was recorded lately is cheap to find that way,
// and a list of all movements reads the ledger once a page; so these pages are
// large.
package ledger
