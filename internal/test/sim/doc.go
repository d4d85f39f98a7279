// Package sim runs the real settling code against models of Pub/Sub, of the store's
// faults and of a bank, in orders that a test draws at random, and looks at the
// state after every step.
//
// It exists because the promises are promises about orders: a crash between two
// lines, an answer that is lost, a message that comes again after its receipt has
// expired, a transfer that is executed after the bank said that it does not know
// it. No list of examples covers them.
//
// # How a sequence runs
//
// settle.Service, transfer.Stepper and transfer.Reconciler are the real ones, in one to
// four instances over one memstore; instances start, crash and are stopped at any
// step, and each has a clock of its own. Everything they do to the world goes
// through two interfaces, Store and Bank, and every call of those is parked until
// the sequence lets it go on. What is drawn is then: which call goes on, and how. A
// commit can succeed, be aborted and run again, fail, succeed with its answer lost,
// be run again after a lost answer, or arrive after its caller was told that it
// failed. A request to the bank can stay unwritten, be lost, arrive at once or late,
// and its answer can be read, be damaged, be lost, or be read much later. An instance
// crashes by having all its calls, parked and future, refused: as nothing else can
// leave it, that is the same as its death, at exactly the point where each call was
// parked.
//
// [PubSub] is what stands between the producer and the instances. It pushes
// messages in any order and at any time, also twice at once and after they were
// acknowledged, counts attempts, ends a push at the ack deadline, loses answers,
// dead-letters, and is sought back; dead letters are published again. The producer
// publishes the bytes of new payouts, of the same again, of the same written
// otherwise, of another payout under a known settlement ID, and of what is no payout.
//
// Time is testing/synctest's: it passes only where the sequence says so, and the
// deadlines of contexts are in it. All effects happen in the one goroutine that
// draws, so that a seed gives one history; the goroutines of the code under test only
// decide what to ask for next. A test plays seeds twice and compares.
//
// At the end the faults stop, late commits come or do not, everything is delivered,
// dead letters too, and a reconciler runs until nothing is due. Then some sequences
// are sought back to their first message, and nothing may change.
//
// # What is checked
//
// After every step: one receipt and one movement for a settlement ID, as the first
// message that was settled said; instructions, reversals and the bank's ledger fit,
// and the bank has executed one transfer at most; every send was allowed; conflicts
// and messages in quarantine stay and are counted right. At every acknowledgement:
// what the message was acknowledged for is in the store at that moment, and is what
// the message means, which the producer knows and no code under test is asked. At
// every 500: something was wrong. At the end: every message is acknowledged and has
// its effect, nothing is due, and the ledger agrees with the bank's.
//
// # Seeds and stories
//
//	make sim                   60 seconds of fresh seeds, and all kept stories
//	make sim SECONDS=600       longer
//	make sim SEED=123          the sequence of one seed, once more
//
// A failure is shrunk: steps are left out and choices replaced by the simplest, as
// long as the same promise is broken. It is then told as a story, in words, with the
// command that draws it again, and written to testdata/stories, where `git add` keeps
// it: TestKept plays every story there. A story is its choices by name, and what
// happened as comments. It stays good when other things are drawn around it: what it
// does not say is the simplest. Where it speaks of what is not drawn any more, the
// test fails, and somebody has to look whether there is something left to keep.
//
// Choices by name are why this is no property test of a library: those shrink and
// keep the random numbers behind the choices, whose meaning shifts with the first that
// is left out, so that little is left out and old failures fit no more.
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
//   - The status API may be silent, late by any time and out of date, it may forget,
//     and it may show another transfer than the bank has. Where it shows the transfer,
//     what it says of the outcome was true when it looked, except for a transfer that
//     is [Fate.Lies]: rejected first and executed later. That one has to end as manual
//     and critical, and nothing else is excused by it.
//   - An instance may stop for any time, but not between its look at the lease and
//     the beginning of the send that follows at once. A send has its own deadline.
//   - Clocks of instances differ from the store's by [MaxSkew] at most, also when they
//     are set.
//
// # What a bank can do, and where it is drawn
//
// The instances see a bank as the adapter reads it, internal/bank. So a fault here is
// a name and what the adapter makes of it; TestSendFaults and TestStatusFaults make
// the fake bank of internal/test/fakebank do each on a real connection, and compare
// what the real adapter says.
//
//	before the bank looks
//	  refused, TLS failure, breaker open        Unsent: not_sent
//	  hangs up, 3xx, 401, 403, 408, 425, 429,
//	  503; Retry-After                          Unlooked, waits
//	  hangs                                     a parked send whose time runs out; "is lost"
//	the execution
//	  yes, rejected, late, returned             fates
//	  no                                        "is lost", "is accepted and forgotten", Fate.Stuck
//	  late: after the client gave up            "arrives late"
//	  late: after a not found                   "executes late", "executes unseen"
//	  the bank crashes after it executed        "arrives, and the bank goes down"
//	the answer
//	  reset, closed, cut three ways, {}, null,
//	  HTML, 204, error object, trailing junk,
//	  5 MiB, 1xx, 500, unknown word, other key  Damages: uncertain
//	  other amount, currency or creditor        Damages: manual; Fate.OtherAmount where it is true
//	  hangs                                     a parked send whose time runs out
//	the key
//	  replayed, also whatever the body          Bank.Replays
//	  409 exists, 409 in progress, 400
//	  duplicate, cached 500, locked             Repeats
//	  422 for another body                      cannot be: a send of other bytes than were stored
//	                                            first breaks a promise at once
//	  lifetime                                  Bank.Lifetime, in virtual time
//	questions
//	  lag                                       Fate.ShownAfter
//	  empty list, typed 404                     Forgotten, and whenever nothing is shown
//	  HTML 404, 400, 401, 429, 5xx, 3xx,
//	  damaged or no answer                      Unread: unknown
//	  unknown word, two matches, other amount,
//	  currency or creditor                      Misread
//	  flapping                                  "is answered from the past"
//	  confirmed then returned                   Fate.ReturnedAfter
//	  rejected then confirmed                   Fate.Lies
//	the connection
//	  kept alive and dropped on its second      cannot be: the adapter makes a connection for every
//	  request                                   request; internal/bank tests that
package sim
