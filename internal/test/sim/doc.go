// Package sim runs the real settling code in random orders of events, against models
// of Pub/Sub, of the store's faults and of a bank, and checks the whole state after
// every step.
//
// The promises hold for all orders: a crash between two lines, a lost answer, a
// redelivery after the receipt expired, a transfer executed after a "not found".
// Examples cannot cover them.
//
// # A sequence
//
// One to four instances of settle.Service, transfer.Stepper and transfer.Reconciler
// share one memstore. Instances start, crash and stop at any step, and each has its
// own clock offset. The code under test acts on the world through two interfaces,
// Store and Bank. A call of Store is the exchanges of spannerstore: the first read of a
// redelivery, the commit, and the read after a lost answer. Every exchange is parked until
// the sequence resumes it, so the sequence draws the next one and its outcome:
//
//   - A commit can succeed, be aborted and run again, fail, succeed and lose its
//     answer, run again after a lost answer, or commit after its caller got an error.
//   - A dead connection carries no answer until the limit of the attempt, whether the
//     commit arrived or not.
//   - A read can fail, or return the rows of some time ago.
//   - A request to the bank can stay unwritten, be lost, or arrive at once or late.
//     Its answer can be read, damaged, lost, or read much later.
//   - A crash fails all parked and later calls of the instance. Nothing else leaves
//     an instance, so that equals its death where each call was parked.
//
// [PubSub] stands between the producer and the instances. It pushes messages in any
// order and at any time, also concurrently and after their acknowledgement, counts
// attempts, ends a push at the ack deadline, loses answers, dead-letters, and seeks
// back; dead letters are published again. The producer publishes new payouts, the
// same bytes again, the same payout in another encoding, another payout under a known
// settlement ID, that one again, and invalid messages.
//
// Time is virtual (testing/synctest) and passes only where the sequence advances it;
// the deadlines of contexts use it too. All effects happen in the goroutine that
// draws; the goroutines of the code under test only decide on their next call. So a
// seed gives one history, under the race detector too, and TestOneSeedOneHistory
// checks that.
//
// At the end the faults stop, some late commits happen, all messages and dead letters
// are delivered, and a reconciler runs until nothing is due. Some sequences then seek
// back to their first message, which must change nothing.
//
// # Checks
//
//   - After every step: each settlement ID has one receipt and one movement, with the
//     content of the first settled message; instructions, reversals and the bank's
//     ledger agree; the bank has executed at most one transfer; every send was
//     allowed; each recorded conflict and quarantined message has one row, which is never
//     written again, and is called known only after a commit recorded it.
//   - At every acknowledgement: the store holds the effect of the message. The
//     producer knows the effect; the oracle never asks the code under test for it.
//   - At every 500: a fault was drawn that explains it.
//   - At the end: every message is acknowledged and has its effect, nothing is due,
//     and the ledger agrees with the bank's.
//
// # Seeds and stories
//
//	make sim                   60 seconds of fresh seeds, and all kept stories
//	make sim SECONDS=600       longer
//	make sim SEED=123          the sequence of one seed
//
// The test shrinks a failure: it drops steps and replaces choices by the simplest
// value as long as the same promise is broken. It prints the result as a story, with
// the command that repeats it, and writes it to testdata/stories. After `git add`,
// TestKept plays it in every run. A story lists its choices by name, and the events as
// comments. A choice that a story does not name takes the simplest value, so that new
// choices do not invalidate old stories. A story with an unknown choice fails the test.
//
// A property-testing library would shrink and keep random numbers instead. Their
// meaning shifts with the first one that is left out, so little could be left out, and
// no old failure would replay.
//
// # Assumptions about a bank
//
// The guarantee covers banks that keep these rules, and [Bank] keeps no others:
//
//   - The bank remembers a key for Lifetime from its first arrival, and makes no second
//     transfer meanwhile. Then it forgets the key, and the same request is a new
//     transfer.
//   - A written request arrives within a fifth of Lifetime less [Slack], or never. A
//     fifth is the time that transfer leaves between the last send and the end of
//     Lifetime. The bank can execute hours or days after the arrival, also after its
//     status API answered "not found".
//   - A refused request is not executed. A refusal proves something about the
//     settlement only if no earlier request can have reached the bank: the model also
//     refuses known keys, as banks do that check limits first.
//   - The status API can be silent, late by any time or outdated, can lose a transfer
//     and can show another one. If it shows the transfer, the outcome was true when the
//     API read it, except for [Processing].RejectedFirst. Such a transfer must end
//     manual and critical.
//   - An instance can pause for any time, but not between its check of the lease and the
//     send that follows. A send has its own deadline.
//   - Clocks of instances differ from the store's by at most [MaxSkew], also after they
//     are set.
//
// # Faults of a bank
//
// The instances see a bank as the adapter, internal/bank, reads it. So a fault here is a
// name and the adapter's reading; TestSendFaults and TestStatusFaults compare that with
// the real adapter against internal/test/fakebank.
//
//	before the bank reads
//	  refused, TLS failure, breaker open        unsentFaults: not_sent
//	  hangs up, 3xx, 401, 403, 408, 425, 429,
//	  503; Retry-After                          unreadFaults
//	  hangs                                     a parked send at its deadline; "is lost"
//	the execution
//	  yes, rejected, late, returned             Processing
//	  no                                        "is lost", "is accepted and forgotten", Stuck
//	  late: after the client gave up            "arrives late"
//	  late: after a not found                   "executes late", "executes unseen"
//	  the bank crashes after the execution      "arrives, and the bank goes down"
//	the answer
//	  reset, closed, cut three ways, {}, null,
//	  HTML, 204, error object, trailing junk,
//	  5 MiB, 1xx, 500, unknown word, other key  answerFaults: uncertain
//	  other amount, currency or creditor        answerFaults: manual; OtherAmount where it is true
//	  hangs                                     a parked send at its deadline
//	the key
//	  replayed, whatever the body               Bank.Replays
//	  409 exists, 409 in progress, 400
//	  duplicate, cached 500, locked             knownKeyFaults
//	  422 for another body                      impossible: another body breaks a promise at once
//	  lifetime                                  Bank.Lifetime
//	status requests
//	  lag                                       ShownAfter
//	  empty list, typed 404                     notFoundFaults
//	  HTML 404, 400, 401, 429, 5xx, 3xx,
//	  damaged or no answer                      unknownFaults
//	  unknown word, two matches, other amount,
//	  currency or creditor                      wrongFaults
//	  alternating                               "is answered from the past"
//	  confirmed then returned                   ReturnedAfter
//	  rejected then confirmed                   RejectedFirst
//	the connection
//	  kept alive and broken on its second       impossible: the adapter opens a connection for
//	  request                                   every request; internal/bank tests that
package sim
