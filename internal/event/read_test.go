package event

import (
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
)

const (
	payoutJSON   = `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731,"currency":"EUR"}`
	subscription = "projects/p/subscriptions/payouts"
	topic        = "projects/p/topics/payouts"
)

// payoutPush is a push body of Pub/Sub and Eventarc.
var payoutPush = `{"message":{"data":"` + base64.StdEncoding.EncodeToString([]byte(payoutJSON)) + `",` +
	`"attributes":{"origin":"claims"},"messageId":"2070443601311540","message_id":"2070443601311540",` +
	`"publishTime":"2026-11-02T09:30:00.123456789Z","publish_time":"2026-11-02T09:30:00.123456789Z",` +
	`"orderingKey":"reserve-claims"},"subscription":"` + subscription + `","deliveryAttempt":3}`

// payoutDelivery is the delivery of payoutPush alone. In an event its source is the topic.
var payoutDelivery = settle.Delivery{
	Attempt: 3,
	Message: settle.Message{
		ID:           "2070443601311540",
		Subscription: subscription,
		Source:       subscription,
		PublishTime:  time.Date(2026, 11, 2, 9, 30, 0, 123456789, time.UTC),
		OrderingKey:  "reserve-claims",
		Attributes:   map[string]string{"origin": "claims"},
		Data:         []byte(payoutJSON),
	},
}

// read reads a request in a context that does not end.
func read(tb testing.TB, header http.Header, body []byte) settle.Delivery {
	tb.Helper()
	d, err := Read(tb.Context(), header, body)
	if err != nil {
		tb.Error(err)
	}
	return d
}

func headers(pairs ...string) http.Header {
	h := make(http.Header)
	for pair := range slices.Chunk(pairs, 2) {
		h.Set(pair[0], pair[1])
	}
	return h
}

// binaryHeaders are the headers of a binary CloudEvent, with changes; a change
// to "" removes the header.
func binaryHeaders(changes ...string) http.Header {
	h := headers(
		"Content-Type", "application/json",
		"Ce-Id", "2070443601311540",
		"Ce-Source", "//pubsub.googleapis.com/projects/p/topics/payouts",
		"Ce-Specversion", "1.0",
		"Ce-Type", TypeMessagePublished,
		"Ce-Time", "2026-11-02T09:30:00.5Z",
	)
	maps.Copy(h, headers(changes...))
	for name, values := range h {
		if values[0] == "" {
			delete(h, name)
		}
	}
	return h
}

var structuredHeaders = headers("Content-Type", "application/cloudevents+json; charset=utf-8")

// structured returns a structured CloudEvent that ends with the given members.
func structured(members string) string {
	return `{"specversion":"1.0","id":"2070443601311540","type":"` + TypeMessagePublished +
		`","source":"//pubsub.googleapis.com/projects/p/topics/payouts","time":"2026-11-02T09:30:00.5Z",` + members + `}`
}

func TestReadForms(t *testing.T) {
	t.Parallel()
	encoded := base64.StdEncoding.EncodeToString([]byte(payoutPush))
	tests := []struct {
		name   string
		header http.Header
		body   string
	}{
		{"push body", headers("Content-Type", "application/json"), payoutPush},
		{"push body without a content type", nil, payoutPush},
		{"push body with members of a later platform", nil, strings.Replace(payoutPush, `{"message"`, `{"new":{"x":[1]},"message"`, 1)},
		{"push body with old names only", nil, strings.NewReplacer(
			`"messageId":"2070443601311540",`, "", `"publishTime":"2026-11-02T09:30:00.123456789Z",`, "",
			"orderingKey", "ordering_key").Replace(payoutPush)},
		{"push body with escapes in the data", nil, strings.Replace(payoutPush, `"data":"e`, `"data":"\u0065`, 1)},
		{"binary", binaryHeaders(), payoutPush},
		{"binary with an extension", binaryHeaders("Ce-Partitionkey", "x"), payoutPush},
		{"structured with data", structuredHeaders, structured(`"data":` + payoutPush)},
		{
			"structured with data of a content type", structuredHeaders,
			structured(`"datacontenttype":"application/json","data":` + payoutPush),
		},
		{"structured with data_base64", structuredHeaders, structured(`"data_base64":"` + encoded + `"`)},
		{"structured with spaces", structuredHeaders, structured(` "data_base64" : "` + encoded + `" `)},
		{
			"structured with escaped slashes", structuredHeaders,
			structured(`"data_base64":"` + strings.ReplaceAll(encoded, "/", `\/`) + `"`),
		},
		{
			"structured with a number past every float", structuredHeaders,
			structured(`"data":` + strings.Replace(payoutPush, `{"message"`, `{"new":1e400,"message"`, 1)),
		},
		{
			"structured with data as text", structuredHeaders,
			structured(`"datacontenttype":"text/plain","data":` + strconv.Quote(payoutPush)),
		},
		{
			"structured with the kind of text after it", structuredHeaders,
			structured(`"data":` + strconv.Quote(payoutPush) + `,"datacontenttype":"text/plain"`),
		},
		{
			"structured with data of a content type that is JSON to others", structuredHeaders,
			structured(`"datacontenttype":"application/vnd.pubsub+json","data":` + payoutPush),
		},
		{
			"structured with data first", structuredHeaders,
			strings.Replace(structured(`"subject":"s"`), `{"specversion"`, `{"data":`+payoutPush+`,"specversion"`, 1),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want := payoutDelivery
			if tt.header != nil && !strings.HasPrefix(tt.name, "push") {
				want.Message.Source = topic
			}
			if diff := cmp.Diff(want, read(t, tt.header, []byte(tt.body))); diff != "" {
				t.Errorf("delivery (-want +got):\n%s", diff)
			}
		})
	}
}

// pubsubHeaders are the headers of an unwrapped push with metadata, with changes; a change
// to "" removes the header.
func pubsubHeaders(changes ...string) http.Header {
	h := headers(
		"Content-Type", "application/json",
		"X-Goog-Pubsub-Message-Id", "2070443601311540",
		"X-Goog-Pubsub-Publish-Time", "2026-11-02T09:30:00.123456789Z",
		"X-Goog-Pubsub-Subscription-Name", subscription,
		"X-Goog-Pubsub-Ordering-Key", "reserve-claims",
		"Authorization", "Bearer secret",
		"Origin", "claims",
	)
	maps.Copy(h, headers(changes...))
	maps.DeleteFunc(h, func(_ string, values []string) bool { return values[0] == "" })
	return h
}

func TestReadUnwrappedPush(t *testing.T) {
	t.Parallel()
	with := func(change func(d *settle.Delivery)) settle.Delivery {
		d := payoutDelivery
		d.Attempt, d.Message.Attributes = 0, nil // attributes look like headers of the transport
		change(&d)
		return d
	}
	for _, tt := range []struct {
		name   string
		header http.Header
		body   string
		want   settle.Delivery
	}{
		{"payout", pubsubHeaders(), payoutJSON, with(func(*settle.Delivery) {})},
		{"no payout", pubsubHeaders(), "settle this, please", with(func(d *settle.Delivery) { d.Message.Data = []byte("settle this, please") })},
		{"no data", pubsubHeaders(), "", with(func(d *settle.Delivery) { d.Message.Data = []byte{} })},
		{
			"attempt and trace", pubsubHeaders("X-Goog-Pubsub-Delivery-Attempt", "3", "Googclient_traceparent", "trace"), payoutJSON,
			with(func(d *settle.Delivery) { d.Attempt, d.TraceParent = 3, "trace" }),
		},
		{
			"attempt that is no number", pubsubHeaders("X-Goog-Pubsub-Delivery-Attempt", "third"), payoutJSON,
			with(func(*settle.Delivery) {}),
		},
		{
			"only the message ID", headers("X-Goog-Pubsub-Message-Id", "7"), payoutJSON,
			settle.Delivery{Message: settle.Message{ID: "7", Data: []byte(payoutJSON)}},
		},
		{
			"names that no column holds", pubsubHeaders("X-Goog-Pubsub-Message-Id", "a\xff", "X-Goog-Pubsub-Ordering-Key", strings.Repeat("k", 1025),
				"X-Goog-Pubsub-Publish-Time", "noon"), payoutJSON,
			with(func(d *settle.Delivery) {
				d.Message.ID, d.Message.OrderingKey, d.Message.PublishTime = "a\uFFFD", "", time.Time{}
			}),
		},
		{
			"attributes of a CloudEvent", pubsubHeaders("Ce-Type", "payout", "Ce-Id", "7"), payoutJSON,
			with(func(d *settle.Delivery) { d.Message.Attributes = map[string]string{"ce-type": "payout", "ce-id": "7"} }),
		},
		{"data like a wrapped body", pubsubHeaders(), payoutPush, with(func(d *settle.Delivery) { d.Message.Data = []byte(payoutPush) })},
		{"the event of a wrapped body", func() http.Header {
			h := pubsubHeaders()
			maps.Copy(h, binaryHeaders())
			return h
		}(), payoutPush, func() settle.Delivery {
			d := payoutDelivery
			d.Message.Source = topic
			return d
		}()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, read(t, tt.header, []byte(tt.body))); diff != "" {
				t.Errorf("delivery (-want +got):\n%s", diff)
			}
		})
	}
}

// Quarantine keeps one message of an identity. Bodies that bring different things must not
// share one.
func TestRefusedBodiesHaveTheirOwnIdentities(t *testing.T) {
	t.Parallel()
	for _, bodies := range [][2]string{
		{`{"message":null,"payout":1}`, `{"message":null,"payout":2}`},
		{`{"message":"a","payout":1}`, `{"message":"a","payout":2}`},
		{`{"message":{"messageId":"7"},"message":1}`, `{"message":{"messageId":"7"},"message":2}`},
		{`{"message":{"messageId":"7","data":7},"message":{"a":1}}`, `{"message":{"messageId":"7","data":7},"message":{"a":2}}`},
		{`{"message":{"data":7},"a":[}`, `{"message":{"data":7},"b":[}`},
		{`{"message":{"data":7}}{"a":1}`, `{"message":{"data":8}}{"a":1}`},
		{`{"payout":1}`, `{"payout":2}`},
	} {
		identities := map[string]bool{}
		for _, body := range bodies {
			d := read(t, http.Header{}, []byte(body))
			if d.Refusal == nil {
				t.Errorf("%s: not refused", body)
			}
			identities[settle.Quarantined{Message: d.Message}.Identity()] = true
		}
		if len(identities) != 2 {
			t.Errorf("%s and %s have one identity", bodies[0], bodies[1])
		}
	}
	again := [2]string{`{"message":{"messageId":"7","data":7},"deliveryAttempt":1}`, `{"message":{"messageId":"7","data":7},"deliveryAttempt":2}`}
	first, second := read(t, http.Header{}, []byte(again[0])), read(t, http.Header{}, []byte(again[1]))
	if (settle.Quarantined{Message: first.Message}).Identity() != (settle.Quarantined{Message: second.Message}).Identity() {
		t.Error("two deliveries of one message have different identities")
	}
}

func TestReadSource(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, source, want string }{
		{"topic", "//pubsub.googleapis.com/projects/p/topics/payouts", topic},
		{"another service", "//storage.googleapis.com/buckets/b", subscription},
		{"no topic", "//pubsub.googleapis.com/", subscription},
		{"invalid UTF-8", "//pubsub.googleapis.com/projects/p/topics/t?\xff", subscription},
		{"too long", "//pubsub.googleapis.com/" + strings.Repeat("t", 1025), subscription},
	} {
		if got := read(t, binaryHeaders("Ce-Source", tt.source), []byte(payoutPush)).Message.Source; got != tt.want {
			t.Errorf("%s: source %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := read(t, binaryHeaders(), []byte(`{"message":{"data":"%"}}`)).Message.Source; got != topic {
		t.Errorf("refused: source %q, want %q", got, topic)
	}
}

// A message at the bounds is read, one beyond them is quarantined whole.
func TestReadIsBounded(t *testing.T) {
	t.Parallel()
	tokens := func(n int) string { return `{"message":{"messageId":"7"},"x":[` + strings.Repeat("1,", n-1) + `1]}` }
	const beside = 10 // tokens of the objects, names, values and the array
	for _, tt := range []struct {
		name, body string
		taken      bool
	}{
		{"tokens", tokens(maxTokens - beside), true},
		{"a token more", tokens(maxTokens - beside + 1), false},
		{"other bytes", `{"message":{},"x":"` + strings.Repeat("x", maxOtherSize-21) + `"}`, true},
		{"an other byte more", `{"message":{},"x":"` + strings.Repeat("x", maxOtherSize-20) + `"}`, false},
		{"large data", `{"message":{"data":"` + strings.Repeat("QUJD", 3<<20) + `"}}`, true},
		{"large data in an array", `[{"message":{"data":"` + strings.Repeat("QUJD", 3<<20) + `"}}]`, false},
		{"large data with an escape", `{"message":{"data":"\u0051UJD` + strings.Repeat("QUJD", 3<<20) + `"}}`, false},
		{"escapes in small data", `{"message":{"data":"` + strings.Repeat(`\u0041`, 1<<16) + `"}}`, true},
		{"a large name", `{"message":{"` + strings.Repeat("x", 3<<20) + `":1}}`, false},
		{"large white space", `{"message":` + strings.Repeat(" ", 3<<20) + `{}}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for form, request := range map[string]struct {
				header http.Header
				body   string
			}{
				"alone": {nil, tt.body}, "binary": {binaryHeaders(), tt.body},
				"base64": {structuredHeaders, structured(`"data_base64":"` + base64.StdEncoding.EncodeToString([]byte(tt.body)) + `"`)},
			} {
				d := read(t, request.header, []byte(request.body))
				if taken := d.Refusal == nil; taken != tt.taken {
					t.Errorf("%s: taken %t (%v), want %t", form, taken, d.Refusal, tt.taken)
				}
				if !tt.taken && string(d.Message.Data) != request.body {
					t.Errorf("%s: %d bytes kept of %d", form, len(d.Message.Data), len(request.body))
				}
			}
		})
	}
	many := func(n int) http.Header {
		h := binaryHeaders()
		for i := range n - len(h) + 1 { // one is the content type
			h["Ce-X"+strconv.Itoa(i)] = []string{"1"}
		}
		return h
	}
	if d := read(t, many(maxEventHeaders), []byte(payoutPush)); d.Refusal != nil {
		t.Errorf("%d headers: %v", maxEventHeaders, d.Refusal)
	}
	if d := read(t, many(maxEventHeaders+1), []byte(payoutPush)); d.Refusal == nil || d.Refusal.Detail != errManyHeaders.Error() {
		t.Errorf("%d headers: %v", maxEventHeaders+1, d.Refusal)
	}
}

// A delivery whose budget ends while it is read is delivered again.
func TestReadEndsWithTheBudget(t *testing.T) {
	t.Parallel()
	for _, body := range []string{payoutPush, payoutJSON, "x", ""} {
		for _, header := range []http.Header{nil, binaryHeaders(), structuredHeaders, pubsubHeaders()} {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(context.DeadlineExceeded)
			if d, err := Read(ctx, header, []byte(body)); !errors.Is(err, context.DeadlineExceeded) || d.Message.Data != nil {
				t.Errorf("%.10s: %+v, %v", body, d, err)
			}
		}
	}
}

func TestReadIncompleteMessages(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body string
		want       settle.Delivery
	}{
		{"nothing at all", `{"message":{}}`, settle.Delivery{}},
		{"data is null", `{"message":{"data":null,"messageId":"1"}}`, settle.Delivery{Message: settle.Message{ID: "1"}}},
		{"data is empty", `{"message":{"data":"","messageId":"1"}}`, settle.Delivery{Message: settle.Message{ID: "1", Data: []byte{}}}},
		{"one byte of data", `{"message":{"data":"AA=="}}`, settle.Delivery{Message: settle.Message{Data: []byte{0}}}},
		{"second name only where the first is empty", `{"message":{"messageId":"","message_id":"2"}}`, settle.Delivery{Message: settle.Message{ID: "2"}}},
		{"invalid publish time", `{"message":{"publishTime":"yesterday"}}`, settle.Delivery{}},
		{"publish time out of range", `{"message":{"publishTime":"0001-01-01T00:00:00+10:00"}}`, settle.Delivery{}},
		{"publish time in the year 10000", `{"message":{"publishTime":"9999-12-31T23:59:59-01:00"}}`, settle.Delivery{}},
		{
			"publish time of another zone", `{"message":{"publishTime":"2026-11-02T10:00:00+01:00"}}`,
			settle.Delivery{Message: settle.Message{PublishTime: time.Date(2026, 11, 2, 9, 0, 0, 0, time.UTC)}},
		},
		{"negative attempt", `{"message":{},"deliveryAttempt":-1}`, settle.Delivery{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, read(t, nil, []byte(tt.body))); diff != "" {
				t.Errorf("delivery (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadTakesIDAndTimeOfTheEvent(t *testing.T) {
	t.Parallel()
	got := read(t, binaryHeaders(), []byte(`{"message":{"data":"e30="}}`))
	want := settle.Delivery{Message: settle.Message{
		ID:          "2070443601311540",
		Source:      topic,
		PublishTime: time.Date(2026, 11, 2, 9, 30, 0, 500_000_000, time.UTC),
		Data:        []byte(`{}`),
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("delivery (-want +got):\n%s", diff)
	}
}

// unsupported has a case for every fault of an event.
var unsupported = []struct {
	name   string
	header http.Header
	body   string
	detail string // part of the refusal's detail
	id     string // the readable message ID
}{
	{"empty body", nil, "", "no data", ""},
	{"white space", nil, " \n", "not JSON", ""},
	{"not JSON", nil, "settle this, please", "byte 0 of the push body: not JSON", ""},
	{"broken off", nil, payoutPush[:60], "push body: ", ""},
	{"followed by something", nil, payoutPush + "x", "not JSON", "2070443601311540"},
	{"byte order mark", nil, "\ufeff" + payoutPush, "not JSON", ""},
	{"invalid UTF-8", nil, `{"message":{"messageId":"1","attributes":{"a":"` + "\xff" + `"}}}`, "not JSON in UTF-8", "1"},
	{"array", nil, `[` + payoutPush + `]`, "the body itself has a value of the wrong kind", ""},
	{"null", nil, `null`, `no "message" object`, ""},
	{"no message", nil, `{"subscription":"s"}`, `no "message" object`, ""},
	{"message in another letter case", nil, `{"Message":{"messageId":"1"}}`, `no "message" object`, ""},
	{"message is null", nil, `{"message":null}`, `no "message" object`, ""},
	{"message is a string", nil, `{"message":"x"}`, "message has a value of the wrong kind", ""},
	{"unwrapped payout", nil, payoutJSON, `no "message" object`, ""},
	{"duplicate message", nil, `{"message":{"messageId":"1"},"message":{"messageId":"2"}}`, "duplicate member", "1"},
	{"duplicate data", nil, `{"message":{"messageId":"1","data":"e30=","data":"e30="}}`, "duplicate member", "1"},
	{"duplicate in an unknown member", nil, `{"message":{"messageId":"1"},"new":{"a":1,"a":2}}`, "duplicate member", "1"},
	{"data is not base64", nil, `{"message":{"data":"%%%","messageId":"1"}}`, "standard base64 with padding", "1"},
	{"data without padding", nil, `{"message":{"data":"e30","messageId":"1"}}`, "standard base64 with padding", "1"},
	{"data in URL base64", nil, `{"message":{"data":"_-__","messageId":"1"}}`, "standard base64 with padding", "1"},
	{"data with a line break", nil, `{"message":{"data":"e3\n0=","messageId":"1"}}`, "standard base64 with padding", "1"},
	{"data with loose bits", nil, `{"message":{"data":"e31=","messageId":"1"}}`, "standard base64 with padding", "1"},
	{"data is an object", nil, `{"message":{"data":{},"messageId":"1"}}`, "standard base64 with padding", "1"},
	{"message ID is a number", nil, `{"message":{"messageId":1}}`, "message.messageId has a value of the wrong kind", ""},
	{"attribute is a number", nil, `{"message":{"messageId":"1","attributes":{"secret":1}}}`, "an attribute has a value of the wrong kind", "1"},
	{"attempt is a fraction", nil, `{"message":{"messageId":"1"},"deliveryAttempt":1.5}`, "deliveryAttempt has a value of the wrong kind", "1"},
	{"too long message ID", nil, `{"message":{"messageId":"` + strings.Repeat("1", 1025) + `"}}`, "longer than Pub/Sub allows", ""},
	{"too long attributes", nil, `{"message":{"attributes":{"a":"` + strings.Repeat("1", 200<<10) + `"}}}`, "longer than Pub/Sub allows", ""},

	{"binary of another type", binaryHeaders("Ce-Type", "google.cloud.storage.object.v1.finalized"), payoutPush, "type is not google", "2070443601311540"},
	{"binary without ID", binaryHeaders("Ce-Id", ""), payoutPush, "not a well-formed CloudEvent: id", ""},
	{"binary without source", binaryHeaders("Ce-Source", ""), payoutPush, "not a well-formed CloudEvent: source", "2070443601311540"},
	{"binary without type", binaryHeaders("Ce-Type", ""), payoutPush, "not a well-formed CloudEvent: type", "2070443601311540"},
	{"binary without version", binaryHeaders("Ce-Specversion", ""), payoutPush, "without a known ce-specversion", "2070443601311540"},
	{"binary of an unknown version", binaryHeaders("Ce-Specversion", "2.0"), payoutPush, "without a known ce-specversion", "2070443601311540"},
	{"binary with an invalid time", binaryHeaders("Ce-Time", "noon"), payoutPush, "not a well-formed CloudEvent", "2070443601311540"},
	{"binary with an invalid extension", binaryHeaders("Ce-Foo-Bar", "x"), payoutPush, "not a well-formed CloudEvent", "2070443601311540"},
	{"binary with a header at which the SDK panics", binaryHeaders("Ce-", "x"), payoutPush, "not a well-formed CloudEvent", "2070443601311540"},
	{"binary without a body", binaryHeaders(), "", "no data", "2070443601311540"},
	{"binary with an unwrapped payout", binaryHeaders(), payoutJSON, `no "message" object`, "2070443601311540"},
	{"binary with bad base64", binaryHeaders(), `{"message":{"data":"%%%"}}`, "standard base64", "2070443601311540"},

	{"structured without a body", structuredHeaders, "", "structured CloudEvent is not one JSON value", ""},
	{"structured not JSON", structuredHeaders, "{", "structured CloudEvent is not one JSON value", ""},
	{"structured array", structuredHeaders, "[]", "not a well-formed CloudEvent", ""},
	{"structured of another type", structuredHeaders, strings.Replace(structured(`"data":{}`), "pubsub.topic", "storage", 1), "type is not google", ""},
	{"structured without version", structuredHeaders, `{"id":"1"}`, "not a well-formed CloudEvent", ""},
	{"structured without data", structuredHeaders, structured(`"subject":"s"`), "no data", "2070443601311540"},
	{"structured with duplicate data", structuredHeaders, structured(`"data":` + payoutPush + `,"data":` + payoutPush), "without duplicate members", ""},
	{"structured with both kinds of data", structuredHeaders, structured(`"data":` + payoutPush + `,"data_base64":"e30="`), "both data and data_base64", ""},
	{"structured with a number for base64", structuredHeaders, structured(`"data_base64":1`), "data_base64 of the structured", ""},
	{"structured with a number of base64 characters", structuredHeaders, structured(`"data_base64":1e1000`), "data_base64 of the structured", ""},
	{"structured with null for base64", structuredHeaders, structured(`"data_base64":null`), "data_base64 of the structured", ""},
	{"structured with bad base64", structuredHeaders, structured(`"data_base64":"%%%%"`), "data_base64 of the structured", ""},
	{"structured with base64 in lines", structuredHeaders, structured(`"data_base64":"e3\n0="`), "data_base64 of the structured", ""},
	{"structured with data that is null", structuredHeaders, structured(`"data":null`), `no "message" object`, "2070443601311540"},
	{"structured with an empty base64", structuredHeaders, structured(`"data_base64":""`), "no data", "2070443601311540"},
	{"structured null", structuredHeaders, "null", "not a well-formed CloudEvent", ""},
	{"structured with data that is no message", structuredHeaders, structured(`"data":"text"`), "the body itself has a value", "2070443601311540"},
	{"batch", headers("Content-Type", "application/cloudevents-batch+json"), `[]`, "batch", ""},
	{"structured in a format that is not JSON", headers("Content-Type", "application/cloudevents+avro"), "\x00\x01", "not JSON", ""},
}

func TestReadKeepsUnsupportedEvents(t *testing.T) {
	t.Parallel()
	for _, tt := range unsupported {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := read(t, tt.header, []byte(tt.body))
			if got.Refusal == nil {
				t.Fatalf("delivery is not refused: %+v", got)
			}
			if got.Refusal.Reason != payout.ReasonUnsupportedEvent || !strings.Contains(got.Refusal.Detail, tt.detail) {
				t.Errorf("refusal %s %q, want %s with %q", got.Refusal.Reason, got.Refusal.Detail, payout.ReasonUnsupportedEvent, tt.detail)
			}
			if string(got.Message.Data) != tt.body {
				t.Errorf("data %q, want the body %q", got.Message.Data, tt.body)
			}
			if got.Message.ID != tt.id {
				t.Errorf("message ID %q, want %q", got.Message.ID, tt.id)
			}
			for name := range tt.header {
				_, kept := got.Message.Attributes[strings.ToLower(name)]
				if isEvent := strings.HasPrefix(name, "Ce-"); kept != isEvent {
					t.Errorf("header %q kept: %t, want %t", name, kept, isEvent)
				}
			}
		})
	}
}

// The replacement of an invalid byte has three bytes.
func TestLongEventIDIsDropped(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, id, want string }{
		{"1024 bytes", strings.Repeat("1", 1024), strings.Repeat("1", 1024)},
		{"1025 bytes", strings.Repeat("1", 1025), ""},
		{"invalid UTF-8", "a\xffb", "a\uFFFDb"},
		{"too long after the replacement", strings.Repeat("a\xff", 512), ""},
	} {
		if got := read(t, binaryHeaders("Ce-Id", tt.id, "Ce-Type", "other"), []byte("x")).Message.ID; got != tt.want {
			t.Errorf("%s, refused: ID %q, want %q", tt.name, got, tt.want)
		}
		if got := read(t, binaryHeaders("Ce-Id", tt.id), []byte(`{"message":{}}`)); got.Refusal != nil || got.Message.ID != tt.want {
			t.Errorf("%s: ID %q, want %q (%v)", tt.name, got.Message.ID, tt.want, got.Refusal)
		}
	}
}

func TestReadKeepsHeadersAsText(t *testing.T) {
	t.Parallel()
	header := binaryHeaders("Ce-Type", "other\xff")
	header.Add("Ce-Subject", "one")
	header.Add("Ce-Subject", "two")
	got := read(t, header, nil).Message.Attributes
	if got["ce-type"] != "other\uFFFD" || got["ce-subject"] != "one, two" {
		t.Errorf("attributes %q", got)
	}
}

// The body contains the delivery attempt, which must not change the identity.
func TestUnsupportedEventKeepsItsIdentityAcrossRedeliveries(t *testing.T) {
	t.Parallel()
	identity := func(body string) string {
		d := read(t, headers("Content-Type", "application/json"), []byte(body))
		if d.Refusal == nil {
			t.Fatalf("not refused: %s", body)
		}
		return settle.Quarantined{Message: d.Message}.Identity()
	}
	const bad = `{"message":{"messageId":"7","data":"%%%"},"subscription":"s","deliveryAttempt":`
	if identity(bad+"1}") != identity(bad+"2}") {
		t.Error("another attempt has another identity")
	}
	const twice = `{"message":{"messageId":"7","data":"","data":""},"subscription":"s","deliveryAttempt":`
	if identity(twice+"1}") != identity(twice+"2}") {
		t.Error("another attempt with a duplicate member has another identity")
	}
	if identity(bad+"1}") == identity(strings.Replace(bad, "%%%", "%%", 1)+"1}") {
		t.Error("different data has the same identity")
	}
}
