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

// sampleMessage is a message of the sample with its expected results.
type sampleMessage struct {
	Name string `json:"name"`
	// Data is the message's data. A JSON string stands for its decoded text, so that a
	// sample can hold invalid JSON.
	Data jsontext.Value `json:"data"`
	// Publish is the number of publications, each with a new message ID. Defaults
	// to 1.
	Publish int `json:"publish"`
	// DropAnswers is the number of dropped answers for each publication.
	DropAnswers int `json:"drop_answers"`

	// Expect is the outcome of the first delivery: applied, duplicate, conflict or
	// quarantined. After applied the next deliveries are duplicates; the other
	// outcomes stay the same.
	Expect settle.Outcome `json:"expect"`
	// Fields are the differing members of a conflict.
	Fields []string `json:"fields"`
	// Reason and Member are the quarantine reason and the faulty member.
	Reason payout.Reason `json:"reason"`
	Member string        `json:"member"`
	// States are the states of the bank instruction, in order; empty for a payout
	// without a creditor account.
	States []transfer.State `json:"states"`
	// Sends is the number of sends that may have reached the bank.
	Sends int64 `json:"sends"`
}

// parseSample reads a file with one message a line.
func parseSample(file []byte) ([]sampleMessage, error) {
	var messages []sampleMessage
	for line := range bytes.Lines(file) {
		var m sampleMessage
		if err := json.Unmarshal(line, &m, json.RejectUnknownMembers(true)); err != nil {
			return nil, fmt.Errorf("read line %d of the sample: %w", len(messages)+1, err)
		}
		m.Publish = cmp.Or(m.Publish, 1)
		messages = append(messages, m)
	}
	return messages, nil
}

// payload returns the data to publish.
func (m sampleMessage) payload() ([]byte, error) {
	if m.Data.Kind() != jsontext.KindString {
		return m.Data, nil
	}
	text, err := jsontext.AppendUnquote(nil, m.Data)
	if err != nil {
		return nil, fmt.Errorf("read the data of %q: %w", m.Name, err)
	}
	return text, nil
}

// settlementID returns the settlement ID in the data; empty for malformed data.
func (m sampleMessage) settlementID() string {
	var payout struct {
		SettlementID string `json:"settlement_id"`
	}
	_ = json.Unmarshal(m.Data, &payout)
	return payout.SettlementID
}

// bySettlement groups the indexes of messages by settlement. A message without
// settlement ID is a group of its own.
func bySettlement(messages []sampleMessage) [][]int {
	var groups [][]int
	groupOf := map[string]int{}
	for i, m := range messages {
		id := m.settlementID()
		group, known := groupOf[id]
		if !known || id == "" {
			group = len(groups)
			groupOf[id] = group
			groups = append(groups, nil)
		}
		groups[group] = append(groups[group], i)
	}
	return groups
}

// publications returns the number of publications of all messages.
func publications(messages []sampleMessage) (n int) {
	for _, m := range messages {
		n += m.Publish
	}
	return n
}
