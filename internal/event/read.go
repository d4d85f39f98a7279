package event

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	cloudevent "github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

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

// Read reads the Pub/Sub message of a request. It always returns a delivery: one
// without a Pub/Sub message has a Refusal, the body itself as its data, and
// everything else that could be read. The ce-* headers of such a request become its
// attributes, so that nothing of the event is lost.
//
// The delivery of a refused request shares body; any other has its own memory.
func Read(header http.Header, body []byte) (d settle.Delivery) {
	var err error
	message := cehttp.NewMessage(header, nil)
	switch message.ReadEncoding() {
	case binding.EncodingBinary:
		// The body is the data of a binary event as it stands; the SDK reads the attributes.
		var e *cloudevent.Event
		if e, err = toEvent(message); err == nil {
			d, err = readPush(body, e)
		}
	case binding.EncodingStructured:
		d, err = readStructured(message, body)
	case binding.EncodingBatch:
		err = errBatch
	case binding.EncodingUnknown, binding.EncodingEvent:
		switch {
		case claimsToBeEvent(header):
			err = errNoVersion
		case len(body) == 0:
			err = errNoBody
		default:
			d, err = readPush(body, nil)
		}
	}
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

// Limits on what comes beside the data. Pub/Sub keeps to smaller ones: 1,024
// bytes for an ordering key, 100 attributes of 256 + 1,024 bytes. A request that
// exceeds them does not come from Pub/Sub; it is refused here, because what fits
// into no column and into no log line would be delivered for ever.
const (
	maxNameBytes      = 1024
	maxAttributesSize = 128 << 10
)

var (
	errNoMessage  = errors.New(`the push body has no "message" object; expected the wrapped form of a Pub/Sub push`)
	errBadBase64  = errors.New("message.data is not a string of standard base64 with padding")
	errOutOfRange = errors.New("the push body has names or attributes longer than Pub/Sub allows")
)

// pushBody is what Pub/Sub sends, alone or in a CloudEvent. Members that the
// platform may add are skipped; duplicate members, invalid UTF-8 and other
// letter case are not accepted by the JSON library.
type pushBody struct {
	Message         *pushMessage `json:"message"`
	Subscription    string       `json:"subscription"`
	DeliveryAttempt int          `json:"deliveryAttempt"`
}

// pushMessage has some members under two names; Pub/Sub gives both the same
// value.
type pushMessage struct {
	Data             base64Data        `json:"data"`
	Attributes       map[string]string `json:"attributes"`
	MessageID        string            `json:"messageId"`
	MessageIDOld     string            `json:"message_id"`
	PublishTime      string            `json:"publishTime"`
	PublishTimeOld   string            `json:"publish_time"`
	OrderingKey      string            `json:"orderingKey"`
	OrderingKeySnake string            `json:"ordering_key"`
}

// readPush reads the push body that a request or an event carries; e is nil where
// there is no event. The event's ID and time stand in for absent ones of the message.
// With an error the delivery holds the members before the fault.
func readPush(body []byte, e *cloudevent.Event) (d settle.Delivery, err error) {
	var push pushBody
	switch {
	case len(body) == 0:
		err = errNoEventData
	default:
		if err = json.Unmarshal(body, &push); err != nil {
			err = describe(err)
		}
	}
	d = settle.Delivery{Attempt: max(push.DeliveryAttempt, 0), Message: settle.Message{Subscription: push.Subscription}}
	size := 0
	if m := push.Message; m != nil {
		d.Message.ID = cmp.Or(m.MessageID, m.MessageIDOld)
		// A publish time that cannot be read or stored is unknown: no payout depends on it.
		if published, err := time.Parse(time.RFC3339Nano, cmp.Or(m.PublishTime, m.PublishTimeOld)); err == nil && published.UTC().Year() > 0 && published.UTC().Year() <= 9999 {
			d.Message.PublishTime = published.UTC()
		}
		d.Message.OrderingKey = cmp.Or(m.OrderingKey, m.OrderingKeySnake)
		d.Message.Attributes = m.Attributes
		d.Message.Data = m.Data.bytes
		for name, value := range m.Attributes {
			size += len(name) + len(value)
		}
	}
	longest := max(len(d.Message.ID), len(d.Message.Subscription), len(d.Message.OrderingKey))
	switch {
	case size > maxAttributesSize || longest > maxNameBytes:
		d, err = settle.Delivery{}, errOutOfRange
	case err != nil:
	case push.Message == nil:
		err = errNoMessage
	case push.Message.Data.faulty:
		err = errBadBase64
	}
	if err != nil && len(body) > 0 {
		d.Message.Fingerprint = rawMessage(body)
	}
	if e == nil {
		return d, err
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

// rawMessage returns the message of a push body as it stands there. The rest of
// the body counts the attempts, so that no two deliveries of a message have the
// same one. Nil where there is no such message.
func rawMessage(body []byte) []byte {
	var push struct {
		Message jsontext.Value `json:"message"`
	}
	lenient := json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err := json.Unmarshal(body, &push, lenient); err != nil {
		return nil
	}
	return push.Message
}

// describe says what is wrong with a push body. The library's own text quotes
// the body, so that only positions and known names are taken from its errors.
func describe(err error) error {
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return fmt.Errorf("byte %d of the push body: a member stands twice; which is meant cannot be known", syntactic.ByteOffset)
		}
		return fmt.Errorf("byte %d of the push body: not JSON in UTF-8", syntactic.ByteOffset)
	}
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		return fmt.Errorf("the push body has another form than Pub/Sub's: %s has a value of the wrong kind",
			knownMember(string(semantic.JSONPointer)))
	}
	return errors.New("the push body is not JSON")
}

// knownMember returns the member that pointer leads to, as far as its name is
// one of Pub/Sub's.
func knownMember(pointer string) string {
	const attributes = "/message/attributes"
	switch {
	case pointer == "":
		return "the body itself"
	case strings.HasPrefix(pointer, attributes+"/"):
		return "an attribute" // its name is the producer's
	}
	return strings.ReplaceAll(pointer[1:], "/", ".")
}

// base64Data is the data of a message. A string that is not base64 is noted and
// does not end the reading, so that the ID of such a message is still found.
type base64Data struct {
	bytes  []byte
	faulty bool
}

var strictBase64 = base64.StdEncoding.Strict()

// UnmarshalJSONFrom implements [json.UnmarshalerFrom].
func (d *base64Data) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	value, err := dec.ReadValue()
	if err != nil {
		return err //nolint:wrapcheck // the library adds the position
	}
	switch value.Kind() {
	case jsontext.KindNull:
		return nil
	case jsontext.KindString:
	default:
		d.faulty = true
		return nil
	}
	text := []byte(value[1 : len(value)-1])
	if bytes.IndexByte(text, '\\') >= 0 {
		// encoding/base64 skips line breaks, which can only come from escapes.
		if text, err = jsontext.AppendUnquote(nil, value); err != nil || bytes.ContainsAny(text, "\r\n") {
			d.faulty = true
			return nil
		}
	}
	decoded := make([]byte, strictBase64.DecodedLen(len(text)))
	n, err := strictBase64.Decode(decoded, text)
	d.bytes, d.faulty = decoded[:n], err != nil
	return nil
}
