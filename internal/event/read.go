package event

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	cloudevent "github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
)

// TypeMessagePublished is the type of the CloudEvents that carry a Pub/Sub
// message.
const TypeMessagePublished = "google.cloud.pubsub.topic.v1.messagePublished"

// The faults of an event. Their text goes into the quarantine table as the
// refusal's detail; it says what is wrong and quotes nothing of the event.
var (
	errNoBody      = errors.New("the request has no body; expected a CloudEvent or a Pub/Sub push body")
	errBatch       = errors.New("the event is a batch of CloudEvents; expected a single one")
	errNoVersion   = errors.New("the request has ce- headers without a ce-specversion that is known; expected 1.0")
	errOtherType   = errors.New("the event's type is another than " + TypeMessagePublished)
	errMalformed   = errors.New("the event is no well-formed CloudEvent")
	errNotStrict   = errors.New("the structured CloudEvent is not one JSON value in UTF-8 without duplicate members")
	errTwiceData   = errors.New("the structured CloudEvent has both data and data_base64; which is meant cannot be known")
	errBadData     = errors.New("data_base64 of the structured CloudEvent is not a string of standard base64 with padding")
	errNoEventData = errors.New("the event has no data; expected a Pub/Sub push body")
)

// Read reads the Pub/Sub message out of a request with the given header and
// body. It always gives a delivery: one that is no Pub/Sub message has a Refusal,
// the body itself as its data, and whatever else could be read of it. The ce-*
// headers of such a request are its attributes, so that nothing of the event is
// lost.
//
// The delivery of a refused request shares body; any other has memory of its
// own.
func Read(header http.Header, body []byte) settle.Delivery {
	d, err := read(header, body)
	if err != nil {
		d.Refusal = &payout.Refusal{Reason: payout.ReasonUnsupportedEvent, Detail: err.Error()}
		d.Message.Data = body
		d.Message.Attributes = eventHeaders(header)
		if d.Message.ID == "" {
			d.Message.ID = eventID(header.Get("Ce-Id"))
		}
	}
	return d
}

func read(header http.Header, body []byte) (settle.Delivery, error) {
	message := cehttp.NewMessage(header, nil)
	switch message.ReadEncoding() {
	case binding.EncodingBinary:
		// The data of a binary event is the body as it stands: the SDK does not get it.
		e, err := toEvent(message)
		if err != nil {
			return settle.Delivery{}, err
		}
		return readEvent(e, body)
	case binding.EncodingStructured:
		return readStructured(message, body)
	case binding.EncodingBatch:
		return settle.Delivery{}, errBatch
	case binding.EncodingUnknown, binding.EncodingEvent:
	}
	switch {
	case claimsToBeEvent(header):
		return settle.Delivery{}, errNoVersion
	case len(body) == 0:
		return settle.Delivery{}, errNoBody
	}
	return readPush(body)
}

// claimsToBeEvent reports whether a request that the SDK does not take for a
// CloudEvent looks like one all the same.
func claimsToBeEvent(header http.Header) bool {
	for _, name := range [...]string{"Ce-Specversion", "Ce-Id", "Ce-Type", "Ce-Source"} {
		if _, ok := header[name]; ok {
			return true
		}
	}
	return false
}

// toEvent lets the SDK read an event. The SDK panics on some events that are not
// well-formed, for instance on a header named "Ce-". Such an event has to end in quarantine like any other: a request
// that panics is delivered again, and panics again.
func toEvent(message *cehttp.Message) (e *cloudevent.Event, err error) {
	defer func() {
		if p := recover(); p != nil {
			e, err = nil, errMalformed
		}
	}()
	// The SDK's errors quote the event, so only the names of the attributes in
	// which it is wrong are taken from them.
	if e, err = binding.ToEvent(context.Background(), message); err != nil {
		return nil, errMalformed
	}
	if err := e.Context.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %s", errMalformed, faultyAttributes(err))
	}
	if e.Type() != TypeMessagePublished {
		return nil, errOtherType
	}
	return e, nil
}

// faultyAttributes names the attributes in which an event breaks the CloudEvents
// specification. The SDK validates those of the specification only, so nothing
// of the event gets into the text.
func faultyAttributes(faults cloudevent.ValidationError) string {
	var names []string
	for _, name := range [...]string{"id", "source", "type", "datacontenttype", "dataschema", "subject", "schemaurl", "datacontentencoding"} {
		if _, ok := faults[name]; ok {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// readEvent reads the push body that a CloudEvent carries. The event's ID and
// time are the message's, which is of use where the body does not tell them.
func readEvent(e *cloudevent.Event, data []byte) (settle.Delivery, error) {
	var d settle.Delivery
	err := errNoEventData
	if len(data) > 0 {
		d, err = readPush(data)
	}
	if d.Message.ID == "" {
		d.Message.ID = eventID(e.ID())
	}
	if d.Message.PublishTime.IsZero() {
		d.Message.PublishTime = storable(e.Time())
	}
	d.TraceParent, _ = e.Extensions()[traceparent].(string)
	return d, err
}

// eventID returns an event's ID as the message's. A header may hold any bytes:
// invalid UTF-8 is replaced, which makes it longer. One that is too long to be a
// message's is left out.
func eventID(id string) string {
	id = strings.ToValidUTF8(id, "\uFFFD")
	if len(id) > maxNameBytes {
		return ""
	}
	return id
}

// eventHeaders returns the ce-* headers, or nil where there are none. A header
// may hold any bytes, and what cannot be stored as text would make the delivery
// fail for ever, so invalid UTF-8 is replaced.
func eventHeaders(header http.Header) map[string]string {
	var attributes map[string]string
	for name, values := range header {
		name = strings.ToLower(name)
		if !strings.HasPrefix(name, "ce-") {
			continue
		}
		if attributes == nil {
			attributes = make(map[string]string)
		}
		attributes[name] = strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD")
	}
	return attributes
}

// storable returns t in UTC, or the zero time if t is outside the years 1 to
// 9999, which is what Spanner and JSON can hold.
func storable(t time.Time) time.Time {
	t = t.UTC()
	if y := t.Year(); y < 1 || y > 9999 {
		return time.Time{}
	}
	return t
}
