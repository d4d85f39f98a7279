package event

import (
	"net/http"
	"regexp"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/test/jsoncases"
)

// knownDetails matches every detail of a refusal. Any other text may quote the event.
var knownDetails = regexp.MustCompile(`^(the request has no data; expected a Pub/Sub push body, alone or in a CloudEvent` +
	`|the event has more than 1024 ce- headers` +
	`|the body has more than 65536 JSON tokens, or more than 2097152 bytes beside the message's data` +
	`|the event is a batch of CloudEvents; expected a single one` +
	`|the request has ce- headers without a known ce-specversion; expected 1\.0` +
	`|the event's type is not google\.cloud\.pubsub\.topic\.v1\.messagePublished` +
	`|the event is not a well-formed CloudEvent(: (id|source|type|datacontenttype|dataschema|subject|schemaurl|datacontentencoding|, )+)?` +
	`|the structured CloudEvent is not one JSON value in UTF-8 without duplicate members` +
	`|the structured CloudEvent has both data and data_base64; the intended value is unknown` +
	`|data_base64 of the structured CloudEvent is not a string of standard base64 with padding` +
	`|the push body has no "message" object; expected the wrapped form of a Pub/Sub push` +
	`|message\.data is not a string of standard base64 with padding` +
	`|the push body has names or attributes longer than Pub/Sub allows` +
	`|byte [0-9]+ of the push body: (not JSON in UTF-8|duplicate member; the intended value is unknown)` +
	`|the push body is not JSON` +
	`|the push body does not have Pub/Sub's format: (the body itself|an attribute|subscription|deliveryAttempt|message` +
	`|message\.(attributes|messageId|message_id|publishTime|publish_time|orderingKey|ordering_key)) has a value of the wrong kind)$`)

// FuzzRead checks that Read never panics, loses no data, quotes nothing of the event, and
// returns only storable text.
func FuzzRead(f *testing.F) {
	seed := func(h http.Header, body string) {
		_, odd := h["Ce-"]
		f.Add(h.Get("Content-Type"), h.Get("Ce-Specversion"), h.Get("Ce-Id"), h.Get("Ce-Type"), h.Get("Ce-Source"), h.Get("Ce-Time"), odd, []byte(body))
	}
	seed(nil, payoutPush)
	seed(binaryHeaders(), payoutPush)
	seed(structuredHeaders, structured(`"data":`+payoutPush))
	seed(structuredHeaders, structured(`"data_base64":"e30="`))
	for _, u := range unsupported {
		if len(u.body) < 1<<10 {
			seed(u.header, u.body)
		}
	}
	for _, c := range jsoncases.Cases(f) {
		member := `,"new":` + string(c.Input) + `}`
		switch {
		case len(c.Input) > 1<<10, c.Name[0] != 'i': // only cases on which parsers disagree
		case c.Class() == "encoding", c.Class() == "number":
			seed(structuredHeaders, structured(`"data":{"message":{"data":"e30="}`+member))
		default:
			seed(nil, `{"message":{"data":"e30="}`+member)
		}
	}
	f.Fuzz(func(t *testing.T, contentType, version, id, kind, source, eventTime string, odd bool, body []byte) {
		header := make(http.Header)
		for name, value := range map[string]string{
			"Content-Type": contentType, "Ce-Specversion": version, "Ce-Id": id,
			"Ce-Type": kind, "Ce-Source": source, "Ce-Time": eventTime,
		} {
			if value != "" {
				header[name] = []string{value}
			}
		}
		if odd {
			header["Ce-"] = []string{""}
		}
		before := string(body)
		d := read(t, header, body)
		if string(body) != before {
			t.Fatalf("body was changed to %q", body)
		}
		if diff := cmp.Diff(d, read(t, header, body)); diff != "" {
			t.Fatalf("read again (-first +second):\n%s", diff)
		}
		checkStorable(t, d)
		if d.Refusal != nil {
			checkKept(t, d, body)
			return
		}
		checkRoundTrip(t, d)
	})
}

func checkStorable(t *testing.T, d settle.Delivery) {
	t.Helper()
	texts := []string{d.Message.ID, d.Message.Subscription, d.Message.Source, d.Message.OrderingKey}
	for _, text := range texts {
		if len(text) > maxNameBytes {
			t.Errorf("text of %d bytes", len(text))
		}
	}
	size := 0
	for name, value := range d.Message.Attributes {
		texts = append(texts, name, value)
		size += len(name) + len(value)
	}
	if d.Refusal == nil && size > maxAttributesSize {
		t.Errorf("attributes of %d bytes", size)
	}
	for _, text := range texts {
		if !utf8.ValidString(text) {
			t.Errorf("%q is not UTF-8", text)
		}
	}
	if p := d.Message.PublishTime; p.Year() < 1 || p.Year() > 9999 || d.Attempt < 0 {
		t.Errorf("publish time %v, attempt %d", p, d.Attempt)
	}
}

func checkKept(t *testing.T, d settle.Delivery, body []byte) {
	t.Helper()
	if d.Refusal.Reason != payout.ReasonUnsupportedEvent || d.Refusal.Member != "" {
		t.Errorf("refusal %+v", *d.Refusal)
	}
	if !knownDetails.MatchString(d.Refusal.Detail) {
		t.Errorf("unknown detail %q", d.Refusal.Detail)
	}
	if string(d.Message.Data) != string(body) {
		t.Errorf("data %q, want the body %q", d.Message.Data, body)
	}
	if len(d.Message.Fingerprint) > len(body) {
		t.Errorf("fingerprint %q of the body %q", d.Message.Fingerprint, body)
	}
}

// checkRoundTrip encodes an accepted delivery as a push body and reads it.
func checkRoundTrip(t *testing.T, d settle.Delivery) {
	t.Helper()
	message := map[string]any{
		"data": d.Message.Data, "attributes": d.Message.Attributes, "messageId": d.Message.ID, "orderingKey": d.Message.OrderingKey,
	}
	if !d.Message.PublishTime.IsZero() {
		message["publishTime"] = d.Message.PublishTime
	}
	body, err := json.Marshal(map[string]any{"message": message, "subscription": d.Message.Subscription, "deliveryAttempt": d.Attempt})
	if err != nil {
		t.Fatalf("encode delivery: %v", err)
	}
	d.Message.Source = d.Message.Subscription // of a push body alone
	if diff := cmp.Diff(d, read(t, nil, body), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("delivery read from %q (-want +got):\n%s", body, diff)
	}
}
