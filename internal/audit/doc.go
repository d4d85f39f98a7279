// Package audit checks a whole Settle Once database, as fsck checks a file
// system: every row of every table against the rules of package snapshot, as of
// one timestamp, without changing anything.
//
// # How it reads
//
// Nothing that must be true is about two settlements, and the rows of one share
// the hash of its settlement ID as the first part of their primary keys. So the
// space of these hashes is cut into equal shares, one for each worker, and a
// worker goes through its share in pages: some hundred movements in the order of
// their keys, then the rows of every other table in just that range of keys,
// which makes whole settlements of them. A page is all that a worker holds,
// whatever the size of the database; the conflicts of a settlement, whose number
// nothing bounds, are judged one by one as they come, and so are the messages in
// quarantine.
//
// Spanner's own partitions (PartitionRead) would not do: each table has others,
// and nothing tells where they begin.
//
// Hashes are spread evenly. How far a worker has come in its share is therefore
// how much of the rows it has seen, and nobody has to count them beforehand.
//
// All reads name the same timestamp, so that what is settled meanwhile does not
// look like a fault. Spanner keeps old versions for the database's version
// retention period, an hour where nothing else is said: a run that takes longer
// than that fails.
package audit
