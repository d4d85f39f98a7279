package payout_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/test/jsoncases"
)

// required begins a payout message that has what it needs.
const required = `{"settlement_id":"a","account_id":"b","amount_cents":1`

// reasonOf decodes a message, and returns the reason for which it is refused, and
// "payout" for none.
func reasonOf(message []byte) (payout.Payout, string) {
	p, err := payout.Decode(message, "USD")
	if refusal, refused := errors.AsType[*payout.Refusal](err); refused {
		return payout.Payout{}, string(refusal.Reason)
	}
	return p, "payout"
}

// illFormed are the reasons that say that a message is not JSON to this program.
var illFormed = []payout.Reason{payout.ReasonNotJSON, payout.ReasonEmptyData, payout.ReasonDuplicateField}

func verdictOf(message []byte) jsoncases.Verdict {
	_, reason := reasonOf(message)
	switch {
	case reason == "payout":
		return jsoncases.Taken
	case slices.Contains(illFormed, payout.Reason(reason)):
		return jsoncases.IllFormed
	}
	return jsoncases.OtherFault
}

// TestJSONSuite: the payout decoder, in every place where a value can stand.
func TestJSONSuite(t *testing.T) {
	reader := func(name, before, after string, sound jsoncases.Verdict) jsoncases.Reader {
		return jsoncases.Reader{Name: name, Before: before, After: after, Sound: sound, MaxBytes: payout.MaxMessageBytes, Read: verdictOf}
	}
	jsoncases.Run(
		t,
		reader("unknown member", required+`,"x":`, `}`, jsoncases.OtherFault),
		reader("unknown member first", `{"x":`, `,"settlement_id":"a"}`, jsoncases.OtherFault),
		reader("member of metadata", required+`,"metadata":{"k":`, `}}`, 0),
		reader("metadata", required+`,"metadata":`, `}`, 0),
		reader("reference", required+`,"reference":`, `}`, 0),
		reader("settlement_id", `{"account_id":"b","amount_cents":1,"settlement_id":`, `}`, 0),
		reader("amount_cents", `{"settlement_id":"a","account_id":"b","amount_cents":`, `}`, 0),
	)
}

// plainAmount is what amount_cents says of itself, written once more.
var plainAmount = regexp.MustCompile(`^[ \t\r\n]*[1-9][0-9]{0,14}[ \t\r\n]*$`)

// TestJSONSuiteReasons: the reason of every case, as the table states it, for the
// whole message and for a value in metadata; and that no other number than plain
// digits is an amount.
func TestJSONSuiteReasons(t *testing.T) {
	t.Parallel()
	for _, c := range jsoncases.Cases(t) {
		if _, reason := reasonOf(c.Input); reason != c.Document {
			t.Errorf("%s: %s, want %s (%s)", c.Name, reason, c.Document, c.Why)
		}
		p, reason := reasonOf(fmt.Appendf(nil, `%s,"metadata":{"k":%s}}`, required, c.Input))
		if len(c.Input) <= payout.MaxMessageBytes/2 && reason != c.Metadata {
			t.Errorf("%s in metadata: %s, want %s (%s)", c.Name, reason, c.Metadata, c.Why)
		}
		if reason == "payout" {
			var text string
			if err := json.Unmarshal(c.Input, &text); err != nil || p.Metadata["k"] != text {
				t.Errorf("%s in metadata: %q, want %q (%v)", c.Name, p.Metadata["k"], text, err)
			}
		}
		p, reason = reasonOf(fmt.Appendf(nil, `{"settlement_id":"a","account_id":"b","amount_cents":%s}`, c.Input))
		if plain := plainAmount.Match(c.Input); plain != (reason == "payout") {
			t.Errorf("%s as an amount: %s, read as %d", c.Name, reason, p.AmountCents)
		}
	}
}
