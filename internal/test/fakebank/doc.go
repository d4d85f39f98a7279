// Package fakebank is a fake bank: an [http.Handler] that speaks the contract of
// the generic bank and can go wrong in every way that real ones were seen to.
//
// It exists because no answer of a bank proves by itself how often money moved.
// The fake bank's ledger does. It is the oracle of every test: whatever was lost,
// late or a lie on the way, [Bank.Ledger] says what was executed.
//
// # What it serves
//
//	POST /v1/credit-transfers                          one send
//	GET  /v1/credit-transfers?client_reference=<uuid>  one question
//	GET  /admin/ledger                                 the ledger and the violations
//	POST /admin/status                                 moves a transfer, as Bank.Settle does
//
// The admin paths are for tests that run in another process than the bank.
//
// # The life of a send
//
//  1. Before: the exchange can end before the bank looks at the transfer
//     ([Attempt].Before, BeforeStatus).
//  2. The token, the headers and the body are checked, strictly.
//  3. The bank can refuse ([Attempt].Reject). It does so before it looks at the
//     key, so that a refusal can follow an execution: a refusal proves nothing
//     about earlier sends.
//  4. The key: known keys are answered by the [KeyPolicy] and execute nothing.
//  5. The transfer is executed: now, later, or not ([Attempt].Execute).
//  6. After: the answer arrives, or something else does ([Attempt].AfterStatus,
//     Answer).
//
// # Scripts
//
// A [Plan] says what becomes of a transfer: one [Attempt] for each send, one
// [Step] for each question, and how the bank treats keys. The zero Plan is a good
// bank. Plans are looked up by key ([Bank.Script]), then by creditor account
// ([Bank.ScriptCreditor]); what has none follows [Bank.Random] if it was called,
// and [Bank.Default]. Random faults depend on the seed, the key and the attempt
// only, not on the order in which different keys come.
//
// # Time
//
// The bank has no timers. What is late is due at a time of the injected clock, and
// is done when the bank is next asked anything; it makes no difference to anyone
// outside. So the same bank serves a test that owns its clock ([Clock]), a
// synctest bubble and a local run in real time.
//
// # What it polices
//
// See [Rule]. A violation fails the test by itself, at once. There is no way to
// forget to look.
//
// # Connections
//
// Faults of the connection itself (refused, silent, a failed TLS handshake, a
// kept-alive connection that breaks) are made by [Bank.Listener], which [Bank.Serve]
// and [Bank.Start] use. [Pipe] is a listener in memory, for synctest. Only
// HTTP/1.1 is served: most faults take the connection over.
package fakebank
