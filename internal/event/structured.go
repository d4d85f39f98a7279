package event

import (
	"bytes"
	"errors"
	"io"
	"mime"

	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/settleonce/settleonce/internal/settle"
)

// readStructured reads a structured event. As with a binary one, the SDK gets the
// attributes only. Its own reader of such an event takes the last of two equal
// members and the last of data and data_base64, takes a number for base64, fails
// on numbers beyond the range of a float, and depends on the order of the members.
func readStructured(message *cehttp.Message, body []byte) (settle.Delivery, error) {
	attributes, data, err := splitStructured(body)
	if err != nil {
		return settle.Delivery{}, err
	}
	message.BodyReader = io.NopCloser(bytes.NewReader(attributes))
	e, err := toEvent(message)
	if err != nil {
		return settle.Delivery{}, err
	}
	pushBody, err := data.pushBody(e.DataContentType())
	if err != nil {
		return settle.Delivery{}, err
	}
	return readPush(pushBody, e)
}

// eventData is the data of a structured event as it stands there. At most one of
// the two is set.
type eventData struct{ value, base64 jsontext.Value }

// splitStructured takes a structured event apart into the event without its data,
// members in the order of their names, and the data.
func splitStructured(body []byte) (attributes []byte, data eventData, err error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		if _, syntactic := errors.AsType[*jsontext.SyntacticError](err); syntactic {
			return nil, eventData{}, errNotStrict
		}
		return nil, eventData{}, errMalformed // JSON, but no object
	}
	data = eventData{value: members["data"], base64: members["data_base64"]}
	if data.value != nil && data.base64 != nil {
		return nil, eventData{}, errTwiceData
	}
	delete(members, "data")
	delete(members, "data_base64")
	if attributes, err = json.Marshal(members, json.Deterministic(true)); err != nil {
		return nil, eventData{}, errMalformed // cannot be: what was read can be written
	}
	return attributes, data, nil
}

// pushBody returns the push body that the data holds: base64, JSON as it stands,
// or where the event calls its data something else than JSON the text of a string.
// It is empty where there is no data.
func (d eventData) pushBody(contentType string) ([]byte, error) {
	if d.base64 != nil {
		var decoded base64Data
		if err := json.Unmarshal(d.base64, &decoded); err != nil || decoded.faulty || d.base64.Kind() != jsontext.KindString {
			return nil, errBadData
		}
		return decoded.bytes, nil
	}
	if d.value.Kind() == jsontext.KindString && !isJSON(contentType) {
		text, err := jsontext.AppendUnquote(nil, d.value)
		if err != nil {
			return nil, errMalformed // cannot be: it was read as a string
		}
		return text, nil
	}
	return d.value, nil
}

// isJSON reports whether data of that content type stands in a structured event
// as JSON; without a content type it does.
func isJSON(contentType string) bool {
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err != nil || mediaType == "application/json" || mediaType == "text/json"
}
