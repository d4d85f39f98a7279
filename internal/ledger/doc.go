// Package ledger answers questions about a Settle Once database, and changes the
// rows that people look after. [Reader] shows one settlement, lists rows, follows
// commits and sums up accounts; it only reads. [Operator] decides about manual bank
// instructions, steps due ones, resolves conflicts and releases quarantined messages.
//
// # Cost
//
//	question                     read by
//	one settlement               keys: its rows lie in one split
//	conflicts, quarantine, open  settlement_conflicts_open, quarantined_messages_open
//	uncertain                    bank_instructions_uncertain
//	manual                       bank_instructions_manual
//	movements, closed cases,     the table, by commit timestamp
//	tail, reports
//
// # Lists
//
// A list is newest first, of any length. [Reader] asks for the next page by the key
// after the last row. It never uses OFFSET, so the last page costs as much as the
// first. All pages are read at one timestamp. The index of manual instructions leaves out all others, so
// settling a payout does not write to it.
//
// # No index on the ledger by time
//
// Every settling commit would have to write an index on ledger_movements by time,
// in a split of its own: a payout without a bank now needs one Paxos group, and
// would need two. Queries by time compare the commit timestamp with a value instead,
// which lets Spanner skip storage that was written earlier. Recent rows are cheap to
// find that way. A list of all movements scans the ledger once a page.
package ledger
