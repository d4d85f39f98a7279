package event

import (
	"net/http"
	"strings"
	"testing"

	"github.com/settleonce/settleonce/internal/test/jsoncases"
)

// readVerdict reads requests with the given header.
func readVerdict(t *testing.T, header http.Header) func([]byte) jsoncases.Verdict {
	structured := header.Get("Content-Type") == structuredHeaders.Get("Content-Type")
	return func(body []byte) jsoncases.Verdict {
		d := read(t, header, body)
		if d.Refusal == nil {
			return jsoncases.Taken
		}
		illFormed := d.Refusal.Detail == errNotStrict.Error()
		if !structured { // of a structured event these details are about the data
			illFormed = d.Refusal.Detail == errNoBody.Error() ||
				strings.Contains(d.Refusal.Detail, "not JSON in UTF-8") || strings.Contains(d.Refusal.Detail, "duplicate member")
		}
		if illFormed {
			return jsoncases.IllFormed
		}
		return jsoncases.OtherFault
	}
}

// TestJSONSuite puts the cases into every position of a value in a push body and in a
// structured event. Both readers have to accept well-formed ones, although the
// CloudEvents SDK has its own JSON reader.
func TestJSONSuite(t *testing.T) {
	const message = `{"message":{"messageId":"7","data":"e30="`
	place := func(name string, header http.Header, before, after string, sound jsoncases.Verdict) jsoncases.Reader {
		return jsoncases.Reader{Name: name, Before: before, After: after, Sound: sound, Read: readVerdict(t, header)}
	}
	event := strings.TrimSuffix(structured(`"data":`), "}")
	jsoncases.Run(
		t,
		place("push, unknown member", nil, message+`},"new":`, `}`, jsoncases.Taken),
		place("push, unknown member first", nil, `{"new":`, `,"message":{"messageId":"7"}}`, jsoncases.Taken),
		place("push, unknown member of message", nil, message+`,"new":`, `}}`, jsoncases.Taken),
		place("push, message", nil, `{"message":`, `}`, 0),
		place("push, data", nil, `{"message":{"data":`, `}}`, 0),
		place("push, messageId", nil, `{"message":{"messageId":`, `}}`, 0),
		place("push, publishTime", nil, `{"message":{"publishTime":`, `}}`, 0),
		place("push, attributes", nil, `{"message":{"attributes":`, `}}`, 0),
		place("push, attribute", nil, `{"message":{"attributes":{"k":`, `}}}`, 0),
		place("push, subscription", nil, message+`},"subscription":`, `}`, 0),
		place("push, deliveryAttempt", nil, message+`},"deliveryAttempt":`, `}`, 0),
		place("binary, unknown member", binaryHeaders(), message+`},"new":`, `}`, jsoncases.Taken),
		place("structured, in the data", structuredHeaders, event+message+`},"new":`, `}}`, jsoncases.Taken),
		place("structured, in the data before the rest", structuredHeaders,
			`{"data":`+message+`},"new":`, `},`+strings.TrimPrefix(structured(`"subject":"s"`), "{"), jsoncases.Taken),
		place("structured, data", structuredHeaders, event, `}`, 0),
		place("structured, data_base64", structuredHeaders, structured(`"data_base64":`)[:len(structured(`"data_base64":`))-1], `}`, 0),
		place("structured, extension", structuredHeaders, `{"new":`, `,`+strings.TrimPrefix(structured(`"data":`+message+`}}`), "{"), 0),
		place("structured, id", structuredHeaders, `{"id":`, `,"specversion":"1.0","data":`+message+`}}}`, 0),
		place("structured, specversion", structuredHeaders, `{"id":"1","specversion":`, `}`, 0),
	)
}

// TestJSONSuiteAttributes checks that an attribute's string is decoded exactly, and that
// no other value is accepted.
func TestJSONSuiteAttributes(t *testing.T) {
	t.Parallel()
	for _, c := range jsoncases.Cases(t) {
		d := read(t, nil, []byte(`{"message":{"attributes":{"k":`+string(c.Input)+`}}}`))
		text := strings.HasPrefix(strings.TrimLeft(string(c.Input), " \t\r\n"), `"`)
		null := strings.Trim(string(c.Input), " \t\r\n") == "null" // the library reads null as absent; Pub/Sub does not send it
		if taken := d.Refusal == nil; taken != (c.WellFormed() && (text || null)) {
			t.Errorf("%s: refusal %+v (%s)", c.Name, d.Refusal, c.Why)
		}
	}
}
