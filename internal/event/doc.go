// Package event is the way from an HTTP request to an outcome and back to an
// HTTP answer.
//
// The package exists because of two things that must not depend on each other:
// what the platform sends, and what becomes of a payout. [Read] turns whatever
// stands in a request into a [settle.Delivery], [Handler] hands it over and
// turns the outcome into the answer that tells Pub/Sub to acknowledge or to
// deliver again, and nothing in between knows about payouts.
//
// # What is read
//
//	CloudEvent, binary      ce-* headers, the push body as the request's body
//	CloudEvent, structured  application/cloudevents+json, the push body as data or data_base64
//	Pub/Sub push            the push body alone, wrapped, without any ce-* header
//
// A request that is none of these is not an HTTP error. Answering it with one
// would make Pub/Sub deliver it until its retention ends; so it becomes a
// delivery that is refused as [payout.ReasonUnsupportedEvent], with the request's
// body as its data, and ends in quarantine, where it is kept whole.
//
// # What is answered
//
//	200  the outcome is committed: applied, duplicate, conflict or quarantined
//	400  the body broke off while it was read
//	405  not a POST
//	408  the body did not come in whole within [BodyTimeout]
//	413  the body is over [MaxBodyBytes], or no quarantine row can hold it
//	500  nothing is known to be committed
//	503  the instance is shutting down, or the caller has gone away already
//
// Pub/Sub acknowledges on 200 only. Everything else is delivered again, and goes
// to the dead-letter topic after the subscription's number of attempts.
//
// # What is never told
//
// The payload, the attributes, the creditor account, the reference and the
// metadata are in no answer and in no log line, nor is a refusal's detail, which
// may quote the message, nor the value of a panic.
//
// # Why not functions.CloudEvent
//
// The Functions Framework's adaptor for CloudEvents passes all requests of an
// instance through one unbuffered channel, and a request that is cancelled at the
// wrong moment makes every later one hang. The CloudEvents SDK is therefore used
// for reading only, one request at a time.
package event
