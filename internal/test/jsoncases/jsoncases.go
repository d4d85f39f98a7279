// Package jsoncases is a table of JSON inputs, most of them hostile, that every JSON
// reader of the program must handle alike.
//
// The program reads JSON from Pub/Sub, producers, the bank, and the authors of bank
// profiles. Two readers that disagree about one text could move money twice, or to the
// wrong account. testdata/cases.jsonl has a line for each input:
//
//	name      y_, n_ or i_, the class, and a few words
//	input     the bytes, in pieces: text, {"hex": …}, or {"repeat": text, "times": n}
//	verdict   accept or refuse, for each reader of the program
//	document  the payout decoder's result for the input as a whole message
//	metadata  its result for a payout with the input as a value in its metadata
//	why       the reason for the verdict
//
// Every JSON parser must accept y_ and refuse n_. RFC 8259 leaves i_ to the parser; the
// verdict is this program's own choice. document and metadata are a reason code, or
// payout.
package jsoncases

import (
	"bytes"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

//go:embed testdata/cases.jsonl
var table []byte

// minCases is a little below the number of cases, so that a truncated table fails.
const minCases = 600

// Case is one input with its verdicts.
type Case struct {
	Name string `json:"name"`
	// Input may be invalid JSON, or invalid UTF-8.
	Input Input `json:"input"`
	// Verdict is "accept" or "refuse".
	Verdict string `json:"verdict"`
	// Document and Metadata are reason codes of the payout decoder, or "payout".
	Document string `json:"document"`
	Metadata string `json:"metadata"`
	Why      string `json:"why"`
}

// WellFormed reports whether the program must read the input as JSON.
func (c Case) WellFormed() bool { return c.Verdict == "accept" }

// Class is the second word of the name.
func (c Case) Class() string { return strings.SplitN(c.Name, "_", 3)[1] }

// Cases returns all cases, each with bytes of its own.
func Cases(tb testing.TB) []Case {
	tb.Helper()
	var cases []Case
	for line := range bytes.Lines(table) {
		var c Case
		if err := json.Unmarshal(line, &c, json.RejectUnknownMembers(true)); err != nil {
			tb.Fatalf("case %d: %v", len(cases)+1, err)
		}
		cases = append(cases, c)
	}
	if len(cases) < minCases {
		tb.Fatalf("%d cases: the table is truncated", len(cases))
	}
	return cases
}

// Input is the bytes of a case.
type Input []byte

// UnmarshalJSON implements json.Unmarshaler. It joins the pieces.
func (in *Input) UnmarshalJSON(pieces []byte) error {
	var values []jsontext.Value
	if err := json.Unmarshal(pieces, &values); err != nil {
		return fmt.Errorf("read pieces: %w", err)
	}
	*in = Input{}
	for _, value := range values {
		piece, err := readPiece(value)
		if err != nil {
			return err
		}
		*in = append(*in, piece...)
	}
	return nil
}

func readPiece(value jsontext.Value) ([]byte, error) {
	if value.Kind() == jsontext.KindString {
		var text string
		err := json.Unmarshal(value, &text)
		return []byte(text), err
	}
	var piece struct {
		Hex    string `json:"hex"`
		Repeat string `json:"repeat"`
		Times  int    `json:"times"`
	}
	if err := json.Unmarshal(value, &piece, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("read piece: %w", err)
	}
	raw, err := hex.DecodeString(piece.Hex)
	return append(raw, strings.Repeat(piece.Repeat, piece.Times)...), err
}
