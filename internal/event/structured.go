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

// readStructured reads a structured event. The SDK gets only the attributes, because its
// own reader accepts duplicate members, data beside data_base64 and a number as base64,
// fails on numbers beyond the range of a float, and depends on the order of members.
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

// eventData is the unparsed data of a structured event. At most one field is set.
type eventData struct{ value, base64 jsontext.Value }

// splitStructured separates a structured event into the data and the other members,
// sorted by name.
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
		return nil, eventData{}, errMalformed // unreachable: a read value can be written
	}
	return attributes, data, nil
}

// pushBody returns the push body in the data: decoded base64, JSON, or the text of a
// string if the content type is not JSON. It is empty without data.
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
			return nil, errMalformed // unreachable: it was read as a string
		}
		return text, nil
	}
	return d.value, nil
}

// isJSON reports whether the data of a structured event is JSON by its content type. An
// absent content type means JSON.
func isJSON(contentType string) bool {
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err != nil || mediaType == "application/json" || mediaType == "text/json"
}
