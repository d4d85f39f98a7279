// Package jsoncases is one suite of JSON inputs, hostile ones above all, that
// every JSON reader of the program has to pass.
//
// The package exists because the program reads JSON from four parties (who
// pushes, who publishes, the bank, and who writes a bank's profile) and in each
// place money depends on there being one way to read it. The inputs stand in
// testdata/cases.jsonl, a line each:
//
//	name      y_, n_ or i_, the class, and a few words
//	input     the bytes, in pieces: text, {"hex": …}, or {"repeat": text, "times": n}
//	verdict   accept or refuse, as JSON: what any reader of the program must say
//	document  what the payout decoder says to the input as a whole message
//	metadata  what it says to a payout with the input as a value in its metadata
//	why       the reason for the verdict
//
// y_ has to be accepted by every JSON parser and n_ refused; i_ is what RFC 8259
// leaves to the parser, and there the verdict is this program's own choice.
// document and metadata are a reason code, or payout.
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

// leastCases is below the number of cases in the table: a table that is cut off
// must not pass.
const leastCases = 600

// Case is one input with its verdicts.
type Case struct {
	Name string `json:"name"`
	// Input is the JSON text, or what is sent in its place.
	Input Input `json:"input"`
	// Verdict is "accept" or "refuse".
	Verdict string `json:"verdict"`
	// Document and Metadata are reason codes of the payout decoder, or "payout".
	Document string `json:"document"`
	Metadata string `json:"metadata"`
	Why      string `json:"why"`
}

// WellFormed reports whether the input is JSON to this program.
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
	if len(cases) < leastCases {
		tb.Fatalf("%d cases: the table is cut off", len(cases))
	}
	return cases
}

// Input is the bytes of a case.
type Input []byte

// UnmarshalJSON implements json.Unmarshaler: it puts the pieces together.
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
