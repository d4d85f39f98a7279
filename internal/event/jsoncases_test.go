package event

import (
	"net/http"
	"strings"
	"testing"

	"github.com/settleonce/settleonce/internal/test/jsoncases"
)

// readVerdict reads requests with the given header.
func readVerdict(header http.Header) func([]byte) jsoncases.Verdict {
	structured := header.Get("Content-Type") == structuredHeaders.Get("Content-Type")
	return func(body []byte) jsoncases.Verdict {
		d := Read(header, body)
		if d.Refusal == nil {
			return jsoncases.Taken
		}
		illFormed := d.Refusal.Detail == errNotStrict.Error()
		if !structured { // otherwise it is what the data holds that is no JSON
			illFormed = d.Refusal.Detail == errNoBody.Error() ||
				strings.Contains(d.Refusal.Detail, "not JSON in UTF-8") || strings.Contains(d.Refusal.Detail, "a member stands twice")
		}
		if illFormed {
			return jsoncases.IllFormed
		}
		return jsoncases.OtherFault
	}
}

// TestJSONSuite: the readers of push bodies and of structured events, in every
// place where a value can stand. What is well-formed has to be taken by both: the
// CloudEvents SDK has a JSON reader of its own.
func TestJSONSuite(t *testing.T) {
	const message = `{"message":{"messageId":"7","data":"e30="`
	place := func(name string, header http.Header, before, after string, sound jsoncases.Verdict) jsoncases.Reader {
		return jsoncases.Reader{Name: name, Before: before, After: after, Sound: sound, Read: readVerdict(header)}
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

// TestJSONSuiteAttributes: a text that a message has as an attribute is read as
// what it says, and nothing but a string is.
func TestJSONSuiteAttributes(t *testing.T) {
	t.Parallel()
	for _, c := range jsoncases.Cases(t) {
		d := Read(nil, []byte(`{"message":{"attributes":{"k":`+string(c.Input)+`}}}`))
		text := strings.HasPrefix(strings.TrimLeft(string(c.Input), " \t\r\n"), `"`)
		null := strings.Trim(string(c.Input), " \t\r\n") == "null" // the library's nothing; Pub/Sub sends none
		if taken := d.Refusal == nil; taken != (c.WellFormed() && (text || null)) {
			t.Errorf("%s: refusal %+v (%s)", c.Name, d.Refusal, c.Why)
		}
	}
}
