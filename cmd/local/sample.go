package main

import (
	"bytes"
	"cmp"
	_ "embed" // for the sample
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

//go:embed sample.jsonl
var sampleFile []byte

// row is a message of the sample, and what is expected to become of it.
type row struct {
	Name string `json:"name"`
	// Data is the message: the value as it stands in the file, or the text of a
	// JSON string for what is no JSON object.
	Data jsontext.Value `json:"data"`
	// Publish is how often it is published, each time under a new message ID.
	// Defaults to 1.
	Publish int `json:"publish"`
	// LoseAnswers is how many answers to each of these messages get lost.
	LoseAnswers int `json:"lose_answers"`

	// Expect is the outcome of the first delivery: applied, duplicate, conflict
	// or quarantined. Later ones are duplicates where it is applied, and have the
	// same outcome otherwise.
	Expect string `json:"expect"`
	// Fields are the members that a conflict names.
	Fields []string `json:"fields"`
	// Reason and Member are those of a quarantined message.
	Reason payout.Reason `json:"reason"`
	Member string        `json:"member"`
	// Way is the states that the bank instruction goes through, its last one at the
	// end of the demo; empty for a payout that no bank pays. Sends is how often it
	// may have reached the bank.
	Way   []transfer.State `json:"way"`
	Sends int64            `json:"sends"`
}

// parseSample reads a file of rows, one a line.
func parseSample(file []byte) ([]row, error) {
	var rows []row
	for line := range bytes.Lines(file) {
		var r row
		if err := json.Unmarshal(line, &r, json.RejectUnknownMembers(true)); err != nil {
			return nil, fmt.Errorf("read line %d of the sample: %w", len(rows)+1, err)
		}
		switch outcomeNamed(r.Expect) {
		case settle.OutcomeUnknown:
			return nil, fmt.Errorf("read line %d of the sample: expect is %q; give applied, duplicate, conflict or quarantined", len(rows)+1, r.Expect)
		case settle.OutcomeApplied, settle.OutcomeDuplicate, settle.OutcomeConflict, settle.OutcomeQuarantined:
		}
		r.Publish = cmp.Or(r.Publish, 1)
		rows = append(rows, r)
	}
	return rows, nil
}

// outcomeNamed returns the outcome of a name; OutcomeUnknown for any other text.
func outcomeNamed(name string) settle.Outcome {
	for o := settle.OutcomeApplied; o <= settle.OutcomeQuarantined; o++ {
		if o.String() == name {
			return o
		}
	}
	return settle.OutcomeUnknown
}

// message returns the bytes that are published.
func (r row) message() ([]byte, error) {
	if r.Data.Kind() != jsontext.KindString {
		return r.Data, nil
	}
	text, err := jsontext.AppendUnquote(nil, r.Data)
	if err != nil {
		return nil, fmt.Errorf("read the data of %q: %w", r.Name, err)
	}
	return text, nil
}

// settlementID returns the settlement that r is about, or "" for none: it is read
// leniently, since it only decides about the order of publishing.
func (r row) settlementID() string {
	var p struct {
		SettlementID string `json:"settlement_id"`
	}
	_ = json.Unmarshal(r.Data, &p) // a malformed one is about no settlement
	return p.SettlementID
}

// chains groups the indexes of rows by settlement. A row about none is a chain of
// its own.
func chains(rows []row) [][]int {
	var all [][]int
	bySettlement := map[string]int{}
	for i, r := range rows {
		id := r.settlementID()
		chain, known := bySettlement[id]
		if !known || id == "" {
			chain = len(all)
			bySettlement[id] = chain
			all = append(all, nil)
		}
		all[chain] = append(all[chain], i)
	}
	return all
}

// publications is how many messages rows make.
func publications(rows []row) (n int) {
	for _, r := range rows {
		n += r.Publish
	}
	return n
}
