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

// required is the beginning of a payout message with all required members.
const required = `{"settlement_id":"a","account_id":"b","amount_cents":1`

// reasonOf decodes a message and returns the reason of the refusal, or "payout".
func reasonOf(message []byte) (payout.Payout, string) {
	p, err := payout.Decode(message, "USD")
	if refusal, refused := errors.AsType[*payout.Refusal](err); refused {
		return payout.Payout{}, string(refusal.Reason)
	}
	return p, "payout"
}

// illFormed are the reasons for a message that is not JSON to this program.
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

// TestJSONSuite puts the cases into every position of a value in a payout message.
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

// plainAmount is the rule of amount_cents, as a regular expression.
var plainAmount = regexp.MustCompile(`^[ \t\r\n]*[1-9][0-9]{0,14}[ \t\r\n]*$`)

// TestJSONSuiteReasons compares the reasons for each case, as a message and as a value
// in metadata, with the table. As an amount only plain digits are accepted.
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
