package event

import (
	"context"
	"errors"
	"mime"
	"net/http"

	cloudevent "github.com/cloudevents/sdk-go/v2/event"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// structuredEvent is a structured event. Other attributes are ignored.
type structuredEvent struct {
	SpecVersion     string `json:"specversion"`
	ID              string `json:"id"`
	Type            string `json:"type"`
	Source          string `json:"source"`
	Time            string `json:"time"`
	TraceParent     string `json:"traceparent"`
	DataContentType string `json:"datacontenttype"`
	Data            span   `json:"data"`
	DataBase64      span   `json:"data_base64"`
}

// span is the place of a value in a JSON text: it has the value without a copy.
type span struct{ from, to int64 }

// UnmarshalJSONFrom implements [json.UnmarshalerFrom].
func (s *span) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	value, err := dec.ReadValue()
	s.to = dec.InputOffset()
	s.from = s.to - int64(len(value))
	return err //nolint:wrapcheck // the library adds the position
}

// of returns the value in the text; nil for none.
func (s *span) of(text []byte) jsontext.Value {
	if s.to == 0 {
		return nil
	}
	return text[s.from:s.to:s.to]
}

// readStructured reads a structured event: its attributes, as if they were the headers of
// a binary event, and the push body in its data. The SDK's own reader of structured events
// accepts duplicate members, data beside data_base64 and a number as base64, and bounds
// nothing.
func readStructured(ctx context.Context, body []byte) (e *cloudevent.Event, push []byte, err error) {
	if err := checkBounds(ctx, body); err != nil {
		return nil, nil, err
	}
	var read structuredEvent
	if err := json.Unmarshal(body, &read); err != nil {
		if _, syntactic := errors.AsType[*jsontext.SyntacticError](err); syntactic {
			return nil, nil, errNotStrict
		}
		return nil, nil, errMalformed // JSON of another form
	}
	header := make(http.Header)
	for name, value := range map[string]string{
		"Ce-Specversion": read.SpecVersion, "Ce-Id": read.ID, "Ce-Type": read.Type, "Ce-Source": read.Source,
		"Ce-Time": read.Time, "Ce-Traceparent": read.TraceParent,
	} {
		if value != "" {
			header[name] = []string{value}
		}
	}
	if e, err = toEvent(ctx, header); err != nil {
		return nil, nil, err
	}
	if push, err = read.pushBody(body); err != nil {
		return nil, nil, err
	}
	return e, push, nil
}

// pushBody returns the push body in the data of the event: decoded base64, JSON, or the
// text of a string if the content type is not JSON. It is empty without data.
func (read *structuredEvent) pushBody(event []byte) (push []byte, err error) {
	value, encoded := read.Data.of(event), read.DataBase64.of(event)
	switch {
	case value != nil && encoded != nil:
		return nil, errTwiceData
	case encoded != nil:
		if encoded.Kind() != jsontext.KindString || json.Unmarshal(encoded, &push) != nil {
			return nil, errBadData
		}
		return push, nil
	case value.Kind() == jsontext.KindString && !isJSON(read.DataContentType):
		return jsontext.AppendUnquote(nil, value) // no error: it was read as a string
	}
	return value, nil
}

// isJSON reports whether the data of a structured event is JSON by its content type. An
// absent content type means JSON.
func isJSON(contentType string) bool {
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err != nil || mediaType == "application/json" || mediaType == "text/json"
}
