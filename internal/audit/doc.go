// Package audit checks a whole Settle Once database, as fsck checks a file system:
// every row of every table against the rules, as of one timestamp, without changing
// anything. It also compares the bank instructions with the bank.
//
// # How it reads
//
// No rule is about two settlements, and the rows of a settlement share the hash of
// its ID as the first part of their primary keys. [Run] cuts the space of hashes into
// equal shares, one for each worker. A worker reads its share in pages: some hundred
// movements in the order of their keys, then the rows of every other table in the
// same range of keys. A page thus holds whole settlements, and a worker holds one page,
// whatever the size of the database. It judges conflicts, whose number has no bound,
// and quarantined messages one by one as it reads them.
//
// Spanner's own partitions (PartitionRead) would not do: they differ by table, and
// their bounds are hidden.
//
// Hashes are spread evenly, so a worker's position in its share is its progress.
//
// All reads name the same timestamp, so that settling meanwhile does not look like a
// fault. Spanner keeps old versions for the database's version retention period, an
// hour by default: a run that takes longer fails.
package audit
