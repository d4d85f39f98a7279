// Package bank asks a bank for credit transfers over HTTP and reads what it says
// about them. [Client] implements [transfer.Bank]; what differs between banks is a
// [Profile].
//
// The package exists because the answer to "has the bank the transfer?" is
// mostly unknown, and common HTTP clients hide that: they repeat a request, follow
// a redirect, or turn a time-out into a failure. Here one call is one exchange,
// and whatever does not prove something else is uncertain, which is the zero
// value of every result.
//
// # A send
//
//	no header can have been written: DNS, refused, dial, TLS        not_sent
//	anything broke after that                                       uncertain
//	2xx, whole, echoes key, amount, currency, creditor; status known  accepted
//	2xx, whole, amount, currency or creditor differ                 manual
//	any other 2xx                                                   uncertain
//	400 402 403 422, a problem on the profile's reject list         rejected
//	the same when an earlier send can have reached the bank         uncertain
//	401, other 403, 413 414 431                                     held
//	425 429                                                         retry_later
//	everything else: other 4xx, 3xx, 5xx                            uncertain
//
// A 409 is not a failure: at some banks it means that the transfer exists.
//
// # A status question
//
//	200, exactly one transfer, whole and equal to ours              what its status word means
//	200 with an empty list, or 404 with the not-found problem       not_found
//	200, more than one transfer, or one that differs                manual
//	everything else                                                 unknown
//
// The empty list and the 404 count where the profile says so. A word that the
// profile does not know is pending, with a warning as the answer's detail.
//
// # Why net/http alone
//
// The Go clients that banks publish make a random idempotency key a call, and
// some repeat a request on 409 by themselves: after a crash and a redelivery that
// is a second payout. net/http repeats by itself too, when a kept-alive connection
// breaks and the request has an Idempotency-Key. [New] says how that is shut off.
//
// # What is never told
//
// The details of answers are fixed texts. They quote neither the body nor the
// creditor account, the reference or the token; a [Secret] never shows itself.
package bank
