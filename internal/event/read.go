package event

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/binding"
	cloudevent "github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
)

// pubsubService begins the source of an event of Pub/Sub, before the topic's full name.
const pubsubService = "//pubsub.googleapis.com/"

// TypeMessagePublished is the type of the CloudEvents that carry a Pub/Sub
// message.
const TypeMessagePublished = "google.cloud.pubsub.topic.v1.messagePublished"

// The faults of an event. The text becomes the refusal's detail in the quarantine table
// and quotes nothing of the event.
var (
	errNoBody      = errors.New("the request has no data; expected a Pub/Sub push body, alone or in a CloudEvent")
	errBatch       = errors.New("the event is a batch of CloudEvents; expected a single one")
	errNoVersion   = errors.New("the request has ce- headers without a known ce-specversion; expected 1.0")
	errOtherType   = errors.New("the event's type is not " + TypeMessagePublished)
	errMalformed   = errors.New("the event is not a well-formed CloudEvent")
	errNotStrict   = errors.New("the structured CloudEvent is not one JSON value in UTF-8 without duplicate members")
	errTwiceData   = errors.New("the structured CloudEvent has both data and data_base64; the intended value is unknown")
	errUnwrapped   = errors.New("the body is the data of an unwrapped push")
	errManyHeaders = errors.New("the event has more than " + strconv.Itoa(maxEventHeaders) + " ce- headers")
	errBadData     = errors.New("data_base64 of the structured CloudEvent is not a string of standard base64 with padding")
)

// pubsubHeader begins the names of the headers in which an unwrapped push with metadata
// has the message's members. Their format is that of the push body's members.
const pubsubHeader = "X-Goog-Pubsub-"

// Read reads the Pub/Sub message of a request. A delivery without a Pub/Sub message has a
// Refusal, the body as its data, the ce-* headers as its attributes, and the other members
// as far as they are readable. The error wraps the cause of the end of ctx; there is no
// other error.
//
// The delivery of a refused request or an unwrapped push shares body; any other has its
// own memory.
func Read(ctx context.Context, header http.Header, body []byte) (d settle.Delivery, err error) {
	var e *cloudevent.Event
	var fault error
	push := body // also the data of a binary event, of which the SDK reads only the attributes
	switch cehttp.NewMessage(header, nil).ReadEncoding() {
	case binding.EncodingBinary:
		e, fault = toEvent(ctx, header)
	case binding.EncodingStructured:
		e, push, fault = readStructured(ctx, body)
	case binding.EncodingBatch:
		fault = errBatch
	case binding.EncodingUnknown, binding.EncodingEvent:
		switch {
		case header.Get(pubsubHeader+"Message-Id") != "":
			fault = errUnwrapped // also where the data looks like a push body
		case claimsToBeEvent(header):
			fault = errNoVersion
		}
	}
	if fault == nil {
		d, fault = readPush(ctx, push)
	}
	if e != nil { // its ID and time replace absent ones of the message
		if d.Message.ID == "" {
			d.Message.ID = storableName(e.ID())
		}
		if d.Message.PublishTime.IsZero() {
			d.Message.PublishTime = storable(e.Time())
		}
		if topic, ok := strings.CutPrefix(e.Source(), pubsubService); ok && len(topic) <= maxNameBytes && utf8.ValidString(topic) {
			d.Message.Source = topic
		}
		d.TraceParent, _ = e.Extensions()[traceparent].(string)
	}
	switch {
	case ctx.Err() != nil:
		return settle.Delivery{}, fmt.Errorf("read the request: %w", context.Cause(ctx))
	case fault != nil && header.Get(pubsubHeader+"Message-Id") != "":
		d = unwrapped(header, body)
	case fault != nil:
		refuse(&d, header, body, fault)
	}
	d.Message.Source = cmp.Or(d.Message.Source, d.Message.Subscription)
	return d, nil
}

// refuse makes d the delivery of a request without a Pub/Sub message.
func refuse(d *settle.Delivery, header http.Header, body []byte, fault error) {
	d.Refusal = &payout.Refusal{Reason: payout.ReasonUnsupportedEvent, Detail: fault.Error()}
	d.Message.Data = body
	d.Message.Attributes = eventHeaders(header)
	d.Message.ID = cmp.Or(d.Message.ID, storableName(header.Get("Ce-Id")))
}

// unwrapped reads a push without a wrapper: the body is the message's data. Pub/Sub writes
// the attributes as headers too, where only the ce-* ones differ from those of the
// transport.
func unwrapped(header http.Header, body []byte) settle.Delivery {
	member := func(name string) string { return storableName(header.Get(pubsubHeader + name)) }
	attempt, _ := strconv.Atoi(member("Delivery-Attempt")) // zero, unknown, where Pub/Sub does not write it
	published, _ := time.Parse(time.RFC3339Nano, member("Publish-Time"))
	return settle.Delivery{
		Attempt:     max(attempt, 0),
		TraceParent: header.Get(publisherTraceparent),
		Message: settle.Message{
			ID: member("Message-Id"), Subscription: member("Subscription-Name"), PublishTime: storable(published),
			OrderingKey: member("Ordering-Key"), Attributes: eventHeaders(header), Data: body,
		},
	}
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

// maxEventHeaders bounds the ce-* headers of an event. Eventarc sends five.
const maxEventHeaders = 1024

// toEvent reads the attributes of a binary event with the SDK. The SDK panics on some
// malformed events, for instance on a header named "Ce-". Such an event has to be
// quarantined: Pub/Sub would redeliver a request that panics, and it would panic again.
func toEvent(ctx context.Context, header http.Header) (e *cloudevent.Event, err error) {
	defer func() {
		if p := recover(); p != nil {
			e, err = nil, errMalformed
		}
	}()
	count := 0
	for name := range header {
		if strings.HasPrefix(name, "Ce-") {
			count++
		}
	}
	if count > maxEventHeaders {
		return nil, errManyHeaders
	}
	// The SDK's errors quote the event, so only the names of faulty attributes are used.
	if e, err = binding.ToEvent(ctx, cehttp.NewMessage(header, nil)); err != nil {
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

// storableName converts a header's value into a name of a message. A header may hold any
// bytes: invalid UTF-8 is replaced, which lengthens the name. One that is then too long is
// dropped.
func storableName(name string) string {
	name = strings.ToValidUTF8(name, "\uFFFD")
	if len(name) > maxNameBytes {
		return ""
	}
	return name
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

// Limits on a JSON text, checked before anything is built of it. Only the message's data
// can be longer, and only without escapes. The largest attributes, with an escape for each
// byte, have 768 KiB.
const (
	maxTokens    = 1 << 16
	maxDataSize  = 1 << 20 // from here on data is not counted
	maxOtherSize = 2 << 20
)

var (
	errTooMuch    = fmt.Errorf("the body has more than %d JSON tokens, or more than %d bytes beside the message's data", maxTokens, maxOtherSize)
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
	Data             jsontext.Value    `json:"data"` // invalid base64 does not end the reading, so the ID is still read
	Attributes       map[string]string `json:"attributes"`
	MessageID        string            `json:"messageId"`
	MessageIDOld     string            `json:"message_id"`
	PublishTime      string            `json:"publishTime"`
	PublishTimeOld   string            `json:"publish_time"`
	OrderingKey      string            `json:"orderingKey"`
	OrderingKeySnake string            `json:"ordering_key"`
}

var strictBase64 = base64.StdEncoding.Strict()

// readPush reads a push body. Beside an error the delivery holds the members before the
// fault.
func readPush(ctx context.Context, body []byte) (d settle.Delivery, err error) {
	if len(body) == 0 {
		return d, errNoBody
	}
	var push pushBody
	if err = checkBounds(ctx, body); err == nil {
		if err = json.Unmarshal(body, &push); err != nil {
			err = describe(err)
		}
	}
	m := cmp.Or(push.Message, &pushMessage{})
	d = settle.Delivery{Attempt: max(push.DeliveryAttempt, 0), Message: settle.Message{
		ID: cmp.Or(m.MessageID, m.MessageIDOld), Subscription: push.Subscription,
		OrderingKey: cmp.Or(m.OrderingKey, m.OrderingKeySnake), Attributes: m.Attributes,
	}}
	// A publish time that cannot be read or stored is unknown: no payout depends on it.
	if published, err := time.Parse(time.RFC3339Nano, cmp.Or(m.PublishTime, m.PublishTimeOld)); err == nil && published.UTC().Year() > 0 && published.UTC().Year() <= 9999 {
		d.Message.PublishTime = published.UTC()
	}
	badData := len(m.Data) > 0 && m.Data.Kind() != jsontext.KindNull
	if m.Data.Kind() == jsontext.KindString {
		text := m.Data[1 : len(m.Data)-1]
		badData = false
		if bytes.IndexByte(text, '\\') >= 0 {
			text, _ = jsontext.AppendUnquote(nil, m.Data) // no error: it was read as a string
			badData = bytes.ContainsAny(text, "\r\n")     // encoding/base64 skips line breaks
		}
		n, err := strictBase64.Decode(text, text) // in place: the result is shorter than the text read so far
		d.Message.Data, badData = text[:n], badData || err != nil
	}
	size, longest := 0, max(len(d.Message.ID), len(d.Message.Subscription), len(d.Message.OrderingKey))
	for name, value := range m.Attributes {
		size += len(name) + len(value)
	}
	switch {
	case size > maxAttributesSize || longest > maxNameBytes:
		d, err = settle.Delivery{}, errOutOfRange
	case err != nil:
	case push.Message == nil:
		err = errNoMessage
	case badData:
		err = errBadBase64
	}
	if err != nil {
		d.Message.Fingerprint = rawMessage(body)
	}
	return d, err
}

// checkBounds returns an error if a JSON text has too many tokens or bytes, or ctx ends. It
// builds nothing, and leaves faults of the syntax to the reader that follows. The library
// bounds the depth by 10,000.
func checkBounds(ctx context.Context, text []byte) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true))
	var before, others int64
	for tokens := 1; ; tokens++ {
		if _, err := dec.ReadToken(); err != nil {
			return nil //nolint:nilerr // left to the reader
		}
		after := dec.InputOffset()
		if after-before < maxDataSize || !isData(dec, text[before:after]) {
			others += after - before
		}
		switch {
		case tokens > maxTokens || others > maxOtherSize:
			return errTooMuch
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case dec.StackDepth() == 0:
			return nil
		}
		before = after
	}
}

// isData reports whether the last token is the data of a push body, alone or in a
// structured event, or of a structured event, in base64 without escapes.
func isData(dec *jsontext.Decoder, token []byte) bool {
	if parent, names := dec.StackIndex(dec.StackDepth()); parent == jsontext.KindBeginObject && names%2 == 1 {
		return false // a name: its pointer would be as long
	}
	for _, b := range token {
		if b == '\\' || b >= utf8.RuneSelf {
			return false
		}
	}
	at := dec.StackPointer()
	return at == "/message/data" || at == "/data/message/data" || at == "/data_base64"
}

// rawMessage returns the unparsed message of a push body; nil unless it has exactly one
// that is an object. The whole body differs between deliveries of one message, because it
// counts the attempts. Without one the whole body is the identity.
func rawMessage(body []byte) (message []byte) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if begin, err := dec.ReadToken(); err != nil || begin.Kind() != jsontext.KindBeginObject {
		return nil
	}
	for dec.PeekKind() == jsontext.KindString {
		name, _ := dec.ReadToken()
		found := name.String() == "message"
		value, err := dec.ReadValue()
		switch {
		case err != nil, found && (message != nil || value.Kind() != jsontext.KindBeginObject):
			return nil
		case found:
			end := dec.InputOffset()
			message = body[end-int64(len(value)) : end]
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil
	}
	return message
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
