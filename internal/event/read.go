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

// The faults of an event. The text becomes the refusal's detail in the quarantine table
// and quotes nothing of the event.
var (
	errNoBody      = errors.New("the request has no body; expected a CloudEvent or a Pub/Sub push body")
	errBatch       = errors.New("the event is a batch of CloudEvents; expected a single one")
	errNoVersion   = errors.New("the request has ce- headers without a known ce-specversion; expected 1.0")
	errOtherType   = errors.New("the event's type is not " + TypeMessagePublished)
	errMalformed   = errors.New("the event is not a well-formed CloudEvent")
	errNotStrict   = errors.New("the structured CloudEvent is not one JSON value in UTF-8 without duplicate members")
	errTwiceData   = errors.New("the structured CloudEvent has both data and data_base64; the intended value is unknown")
	errBadData     = errors.New("data_base64 of the structured CloudEvent is not a string of standard base64 with padding")
	errNoEventData = errors.New("the event has no data; expected a Pub/Sub push body")
)

// Read reads the Pub/Sub message of a request. It always returns a delivery. One without
// a Pub/Sub message has a Refusal, the body as its data, the ce-* headers as its
// attributes, and the other members as far as they are readable.
//
// The delivery of a refused request shares body; any other has its own memory.
func Read(header http.Header, body []byte) (d settle.Delivery) {
	var err error
	message := cehttp.NewMessage(header, nil)
	switch message.ReadEncoding() {
	case binding.EncodingBinary:
		// The body is the data of a binary event; the SDK reads only the attributes.
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

// claimsToBeEvent reports whether a request that is no CloudEvent to the SDK has headers
// of one.
func claimsToBeEvent(header http.Header) bool {
	for _, name := range [...]string{"Ce-Specversion", "Ce-Id", "Ce-Type", "Ce-Source"} {
		if _, ok := header[name]; ok {
			return true
		}
	}
	return false
}

// toEvent reads an event with the SDK. The SDK panics on some malformed events, for
// instance on a header named "Ce-". Such an event has to be quarantined: Pub/Sub would
// redeliver a request that panics, and it would panic again.
func toEvent(message *cehttp.Message) (e *cloudevent.Event, err error) {
	defer func() {
		if p := recover(); p != nil {
			e, err = nil, errMalformed
		}
	}()
	// The SDK's errors quote the event, so only the names of faulty attributes are used.
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

// faultyAttributes names the attributes that break the CloudEvents specification. The
// SDK validates only the specification's own attributes, so the text quotes nothing of
// the event.
func faultyAttributes(faults cloudevent.ValidationError) string {
	var names []string
	for _, name := range [...]string{"id", "source", "type", "datacontenttype", "dataschema", "subject", "schemaurl", "datacontentencoding"} {
		if _, ok := faults[name]; ok {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// eventID converts an event's ID into a message ID. A header may hold any bytes: invalid
// UTF-8 is replaced, which lengthens the ID. One that is then too long is dropped.
func eventID(id string) string {
	id = strings.ToValidUTF8(id, "\uFFFD")
	if len(id) > maxNameBytes {
		return ""
	}
	return id
}

// eventHeaders returns the ce-* headers; nil for none. A header may hold any bytes.
// Invalid UTF-8 is replaced, because a column of text would refuse it in each delivery.
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

// storable returns t in UTC, or the zero time if t is outside the years 1 to 9999, the
// range of Spanner and JSON.
func storable(t time.Time) time.Time {
	t = t.UTC()
	if y := t.Year(); y < 1 || y > 9999 {
		return time.Time{}
	}
	return t
}

// Limits on names and attributes. Pub/Sub's own limits are smaller: 1,024 bytes for an
// ordering key, 100 attributes of 256 + 1,024 bytes. Longer ones would exceed a column,
// and Pub/Sub would redeliver the request again and again.
const (
	maxNameBytes      = 1024
	maxAttributesSize = 128 << 10
)

var (
	errNoMessage  = errors.New(`the push body has no "message" object; expected the wrapped form of a Pub/Sub push`)
	errBadBase64  = errors.New("message.data is not a string of standard base64 with padding")
	errOutOfRange = errors.New("the push body has names or attributes longer than Pub/Sub allows")
)

// pushBody is Pub/Sub's push body, alone or as the data of a CloudEvent. Unknown members
// are ignored; the JSON library refuses duplicate members, invalid UTF-8 and other letter
// case.
type pushBody struct {
	Message         *pushMessage `json:"message"`
	Subscription    string       `json:"subscription"`
	DeliveryAttempt int          `json:"deliveryAttempt"`
}

// pushMessage has some members under two names with the same value.
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

// readPush reads the push body of a request or of the event e; e is nil for none. The
// event's ID and time replace absent ones of the message. Beside an error the delivery
// holds the members before the fault.
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

// rawMessage returns the unparsed message of a push body; nil for none. The whole body
// differs between deliveries of one message, because it counts the attempts.
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

// describe returns the fault of a push body. The library's own text quotes the body, so
// only its position and known names are used.
func describe(err error) error {
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return fmt.Errorf("byte %d of the push body: duplicate member; the intended value is unknown", syntactic.ByteOffset)
		}
		return fmt.Errorf("byte %d of the push body: not JSON in UTF-8", syntactic.ByteOffset)
	}
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		return fmt.Errorf("the push body does not have Pub/Sub's format: %s has a value of the wrong kind",
			knownMember(string(semantic.JSONPointer)))
	}
	return errors.New("the push body is not JSON")
}

// knownMember names the member at pointer, without the producer's names of attributes.
func knownMember(pointer string) string {
	const attributes = "/message/attributes"
	switch {
	case pointer == "":
		return "the body itself"
	case strings.HasPrefix(pointer, attributes+"/"):
		return "an attribute"
	}
	return strings.ReplaceAll(pointer[1:], "/", ".")
}

// base64Data is the data of a message. Invalid base64 sets faulty and does not end the
// reading, so the ID of such a message is still read.
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
		// encoding/base64 skips line breaks. Only escapes can contain them.
		if text, err = jsontext.AppendUnquote(nil, value); err != nil || bytes.ContainsAny(text, "\r\n") {
			d.faulty = true
			return nil //nolint:nilerr // faulty reports it
		}
	}
	decoded := make([]byte, strictBase64.DecodedLen(len(text)))
	n, err := strictBase64.Decode(decoded, text)
	d.bytes, d.faulty = decoded[:n], err != nil
	return nil
}
