// Package bank requests credit transfers from a bank over HTTP, and classifies the
// answers. [Client] implements [transfer.Bank]; a [Profile] describes one bank.
//
// After most faults the client cannot know whether the bank has the transfer.
// Common HTTP clients hide that: they repeat a request, follow a redirect, or turn
// a timeout into a failure. Here one call is at most one exchange, and a result is
// uncertain, the zero value, unless the answer proves another class.
//
// # A send
//
//	no header can have been written: DNS, refused, dial, TLS          not_sent
//	any fault after that                                              uncertain
//	2xx, whole, echoes key, amount, currency, creditor; status known  accepted
//	2xx, whole, amount, currency or creditor differ                   manual
//	any other 2xx                                                     uncertain
//	400 402 403 422, a problem on the profile's reject list           rejected
//	the same when an earlier send can have reached the bank           uncertain
//	401, other 403, 413 414 431                                       held
//	425 429                                                           retry_later
//	everything else: other 4xx, 3xx, 5xx                              uncertain
//
// A 409 is not a failure: at some banks it means that the transfer exists.
//
// # A status request
//
//	200, exactly one transfer, whole and equal to the instruction  the meaning of its status word
//	200 with an empty list, or 404 with the not-found problem      not_found
//	200, more than one transfer, or one that differs               manual
//	everything else                                                unknown
//
// The profile says whether the empty list and the 404 count. A status word that the
// profile does not list is pending, with a warning as the answer's detail.
//
// # Why net/http alone
//
// The Go clients that banks publish create a random idempotency key for each call,
// and some repeat a request on 409 by themselves: after a crash and a redelivery
// that is a second payout. net/http too repeats a request with an Idempotency-Key
// when a kept-alive connection breaks. [New] explains how this client prevents it.
//
// # Secrets
//
// The details of answers are fixed texts. They quote neither the body nor the
// creditor account, the reference or the token. A [Secret] prints as a placeholder.
package bank
