// Package fakebank is a fake bank: an [http.Handler] that speaks the contract of
// the generic bank profile and makes faults on request.
//
// Its ledger is the oracle of the tests. A bank's answers do not prove how often
// money moved: [Bank.Ledger] lists every executed transfer, whatever the answers
// said.
//
// # Endpoints
//
//	POST /v1/credit-transfers                          a send
//	GET  /v1/credit-transfers?client_reference=<uuid>  a status request
//	GET  /admin/ledger                                 the ledger and the violations
//	POST /admin/status                                 changes a status, as Bank.Settle does
//
// The admin paths are for tests that run in another process than the bank.
//
// # The life of a send
//
//  1. The exchange can end before the bank reads the transfer ([Attempt].Before,
//     BeforeStatus).
//  2. The bank checks token, headers and body, strictly.
//  3. The bank can refuse ([Attempt].Reject). It does so before it looks up the
//     key, as banks do that check limits first. So a refusal can follow an
//     execution, and proves nothing about earlier sends.
//  4. A known key is answered by the [KeyPolicy] and executes nothing.
//  5. The bank executes the transfer: now, later or never ([Attempt].Execute).
//  6. The bank answers, or fails to ([Attempt].AfterStatus, Answer).
//
// # Scripts
//
// A [Plan] scripts the faults of a transfer: one [Attempt] for each send, one
// [Step] for each status request, and the treatment of known keys. The zero Plan
// is a bank without faults. The bank takes the plan of the creditor account
// ([Bank.ScriptCreditor]), or else [Bank.Default].
//
// # Time
//
// The bank has no timers. A late execution is due at a time of the injected clock,
// and the next call of any kind makes it up, with its due time. So the same bank
// serves a test that sets its own [Clock] and a local run in real time.
//
// # Violations
//
// The bank checks every request and execution against the [Rule] list. A violation
// fails the test at once, without any assertion in the test.
package fakebank
