// Package event serves the functions' HTTP requests.
//
// It separates the platform's formats from payouts. [Read] converts a request into a
// [settle.Delivery]. [Handler] passes it to the function's work and converts the result
// into the answer, by which Pub/Sub acknowledges or redelivers the message.
//
// # Requests
//
//	CloudEvent, binary      ce-* headers, the push body as the request's body
//	CloudEvent, structured  application/cloudevents+json, the push body as data or data_base64
//	Pub/Sub push            the push body alone, without ce-specversion, ce-id, ce-type or ce-source
//	unwrapped push          x-goog-pubsub-* headers, the message's data as the body
//
// Any other request is quarantined whole: it becomes a delivery that is refused as
// [payout.ReasonUnsupportedEvent], with the body as its data. An HTTP error would make
// Pub/Sub redeliver it until its retention ends.
//
// Reading is bounded, whatever the request holds: tokens and bytes are counted before
// anything is built of them. Reading ends with the request's budget.
//
// # Answers
//
//	200  the outcome is committed: applied, duplicate, conflict or quarantined
//	400  the body ended early
//	405  not a POST
//	408  the body did not arrive within [BodyTimeout]
//	413  the body is over [MaxBodyBytes], or no quarantine row can hold it
//	500  no commit is known, or the message is not for this function
//	503  the instance is shutting down, or the caller has disconnected
//
// Pub/Sub acknowledges on 200 only. It redelivers any other message, and dead-letters it
// after the subscription's maximum of delivery attempts.
//
// # Secrets
//
// No answer and no log line contains the payload, attributes, creditor account,
// reference or metadata, a refusal's detail, which may quote the message, or the value
// of a panic.
//
// # Why not functions.CloudEvent
//
// The Functions Framework's adaptor for CloudEvents passes all requests of an instance
// through one unbuffered channel. A request that is cancelled at the wrong moment makes
// every later one hang. So this package uses the CloudEvents SDK only to read requests.
package event
