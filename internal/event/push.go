package event

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/settleonce/settleonce/internal/settle"
)

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

// readPush reads a push body. With an error the delivery holds what was read
// before the fault was met.
func readPush(body []byte) (settle.Delivery, error) {
	var push pushBody
	err := json.Unmarshal(body, &push)
	if err != nil {
		err = describe(err)
	}
	d, err := push.delivery(err)
	if err != nil {
		d.Message.Fingerprint = rawMessage(body)
	}
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

// delivery returns what was read, and what is wrong with it: err if there is one.
func (push pushBody) delivery(err error) (settle.Delivery, error) {
	d := settle.Delivery{Attempt: max(push.DeliveryAttempt, 0), Message: settle.Message{Subscription: push.Subscription}}
	if m := push.Message; m != nil {
		d.Message.ID = firstOf(m.MessageID, m.MessageIDOld)
		d.Message.PublishTime = readTime(firstOf(m.PublishTime, m.PublishTimeOld))
		d.Message.OrderingKey = firstOf(m.OrderingKey, m.OrderingKeySnake)
		d.Message.Attributes = m.Attributes
		d.Message.Data = m.Data.bytes
	}
	switch {
	case !withinLimits(d.Message):
		return settle.Delivery{}, errOutOfRange
	case err != nil:
		return d, err
	case push.Message == nil:
		return d, errNoMessage
	case push.Message.Data.faulty:
		return d, errBadBase64
	}
	return d, nil
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func withinLimits(m settle.Message) bool {
	size := 0
	for name, value := range m.Attributes {
		size += len(name) + len(value)
	}
	return size <= maxAttributesSize &&
		len(m.ID) <= maxNameBytes && len(m.Subscription) <= maxNameBytes && len(m.OrderingKey) <= maxNameBytes
}

// readTime reads a publish time. One that cannot be read is unknown and no
// reason to refuse the message: nothing of a payout depends on it.
func readTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return storable(t)
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
	if value.Kind() != jsontext.KindNull {
		d.read(value)
	}
	return nil
}

// read decodes a value, which is faulty if it is not a string.
func (d *base64Data) read(value jsontext.Value) {
	if value.Kind() != jsontext.KindString {
		d.faulty = true
		return
	}
	d.decode(value)
}

func (d *base64Data) decode(quoted jsontext.Value) {
	text := []byte(quoted[1 : len(quoted)-1])
	if bytes.IndexByte(text, '\\') >= 0 {
		var err error
		// encoding/base64 skips line breaks, which can only come from escapes.
		if text, err = jsontext.AppendUnquote(nil, quoted); err != nil || bytes.ContainsAny(text, "\r\n") {
			d.faulty = true
			return
		}
	}
	decoded := make([]byte, strictBase64.DecodedLen(len(text)))
	n, err := strictBase64.Decode(decoded, text)
	d.bytes, d.faulty = decoded[:n], err != nil
}
