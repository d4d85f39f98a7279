// Package sim runs the real settling code against a model bank, in orders that a
// test draws at random, and looks at the whole state after every step.
//
// It exists because the promises about banks are promises about orders: a crash
// between two lines, an answer that is lost, a transfer that is executed after
// the bank said that it does not know it. No list of examples covers them. The
// tests draw sequences of deliveries, redeliveries, crashes, faults, late commits,
// late executions, passing time and reconciler runs; the [Bank]'s ledger is the
// oracle.
//
// # How a sequence runs
//
// settle.Service, settle.Stepper and settle.Reconciler are the real ones, in two
// instances over one memstore. Everything they do to the world goes through two
// interfaces, Store and Bank, and every call of those is parked until the
// sequence lets it go on. What is drawn is then: which call goes on, and how. A
// commit can succeed, fail, succeed with its answer lost, be run again by the
// store after a lost answer, or arrive after its caller was told that it failed.
// A request to the bank can stay unwritten, be lost, arrive at once or late, and
// its answer can be read, be lost, or be read much later. An instance crashes by
// having all its calls, parked and future, refused: as nothing else can leave it,
// that is the same as its death, at exactly the point where each call was parked.
//
// Time is testing/synctest's: it passes only where the sequence says so, and the
// deadlines of contexts are in it. An instance's clock is that time and some
// seconds more or less. All effects happen in the one goroutine that draws, so
// that a seed gives one history; the goroutines of the code under test only
// decide what to ask for next.
//
// At the end the faults stop, a reconciler runs until nothing is due, and what
// the ledger of the bank and the store then say is compared.
//
// # What is assumed of a bank
//
// The guarantee is about banks that keep the following, and [Bank] keeps no more:
//
//   - A key that has arrived is remembered for Lifetime from its first arrival, and
//     meanwhile makes no second transfer. After that it is forgotten, and the same
//     request is another transfer.
//   - A request that was written arrives within a fifth of Lifetime less [Slack], or
//     never. A fifth is what settle leaves between the last send and the end of
//     Lifetime. When the bank executes it is not bounded: hours and days after it
//     arrived, and after the status API has said not found, are both allowed.
//   - A refusal means that the request was not taken. It proves something about the
//     settlement only where no earlier request can have reached the bank: the model
//     refuses keys that it knows, too, as banks do that check limits before keys.
//   - The status API may be silent, late by any time and out of date, and it may
//     forget. What it says of the outcome of a transfer was true when it looked,
//     except for a transfer that is [Fate.Lies]: rejected first and executed later.
//     That one has to end as manual and critical, and nothing else is excused by it.
//   - An instance may stop for any time, but not between its look at the lease and
//     the beginning of the send that follows at once. A send has its own deadline.
//   - Clocks of instances differ from the store's by [MaxSkew] at most.
package sim
