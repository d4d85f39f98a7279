package main

import (
	"encoding/base64"
	"fmt"
	"strings"
	"text/template"

	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/term"
)

// The payouts of the help's commands. docs/operating.md uses other settlement IDs, so that
// a reader can try both in one run.
const (
	sampleID     = "stl-1001"
	samplePayout = `{"settlement_id":"` + sampleID + `","account_id":"reserve-claims","amount_cents":4731}`
	bankID       = "stl-8480"
	bankPayout   = `{"settlement_id":"` + bankID + `","account_id":"reserve-claims","amount_cents":18250,"creditor_account":"cp-19"}`
)

// ready is the line on standard output that names the addresses of all parts.
type ready struct {
	Ready               bool   `json:"ready"`
	SettleURL           string `json:"settle_url"`
	ReconcileURL        string `json:"reconcile_url"`
	BankURL             string `json:"bank_url"`
	SpannerEmulatorHost string `json:"spanner_emulator_host"`
	SpannerRESTURL      string `json:"spanner_rest_url,omitzero"` // absent for a running emulator
	Database            string `json:"database"`
	PubSubEmulatorHost  string `json:"pubsub_emulator_host"`
	Topic               string `json:"topic"`
	// OtherTopics are those of --topic.
	OtherTopics []string `json:"other_topics,omitempty"`
}

func (sys *system) ready(topics []string) ready {
	line := ready{
		Ready: true, SettleURL: sys.functionsURL + pathSettle, ReconcileURL: sys.functionsURL + pathReconcile, BankURL: sys.bankURL,
		SpannerEmulatorHost: sys.spanner.GRPC, SpannerRESTURL: sys.spanner.REST, Database: sys.database,
		PubSubEmulatorHost: sys.pubsub.Host, Topic: sys.topicName(topicPayouts),
	}
	for _, id := range topics {
		line.OtherTopics = append(line.OtherTopics, sys.topicName(id))
	}
	return line
}

var help = template.Must(template.New("help").Parse(`
Settle Once runs on this machine until interrupted (Ctrl-C).

Set the build tag of make, so that the Go commands below compile less:

  export GOFLAGS=-tags=disable_grpc_modules

Publish every line of a file as a message:

  PUBSUB_EMULATOR_HOST={{.PubSubEmulatorHost}} go run ./cmd/settlectl publish FILE --topic {{.Topic}}
{{range .OtherTopics}}Another topic is {{.}}.
{{end}}
Deliver one message as Pub/Sub pushes it, and see the answer:

  curl -s {{.SettleURL}} -H 'Content-Type: application/json' \
    -d '{"message":{"messageId":"1","data":"{{.Base64}}"},"subscription":"projects/local/subscriptions/curl"}'

Publish a payout that the bank has to pay: it has a creditor_account. (The fake bank fails on purpose
for these accounts: {{.BadCreditors}}.)

  echo '{{.BankPayout}}' |
    PUBSUB_EMULATOR_HOST={{.PubSubEmulatorHost}} go run ./cmd/settlectl publish - --topic {{.Topic}}

See the bank's own ledger, and set the status of that transfer (ACCP, ACSC, RJCT, RETURNED):

  curl -s -H 'Authorization: Bearer {{.BankToken}}' {{.BankURL}}/admin/ledger
  curl -s -H 'Authorization: Bearer {{.BankToken}}' {{.BankURL}}/admin/status \
    -d '{"client_reference":"{{.BankKey}}","status":"RETURNED"}'

ReconcileBank asks the bank 15 s after a send, or after BANK_VISIBILITY_LAG where that is longer, and
about a confirmed transfer once a day.

Read the ledger, and decide manual cases ('go run ./cmd/settlectl --help' lists all commands):

  export SPANNER_EMULATOR_HOST={{.SpannerEmulatorHost}} SPANNER_DATABASE={{.Database}}
  export BANK_URL={{.BankURL}} BANK_TOKEN={{.BankToken}}
  go run ./cmd/settlectl list movements
  go run ./cmd/settlectl show ` + bankID + `

Reconcile due instructions now; an instruction that is not due prints its due time:

  go run ./cmd/settlectl reconcile --due
  go run ./cmd/settlectl reconcile ` + bankID + `

`))

// announce prints the ready line for scripts, and help for people.
func announce(line ready, s term.Streams) error {
	text, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("encode the ready line: %w", err)
	}
	if _, err := s.Out.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("write the ready line to standard output: %w", err)
	}
	err = help.Execute(s.Err, struct {
		ready

		Base64, BankPayout, BankKey, BankToken, BadCreditors string
	}{
		line, base64.StdEncoding.EncodeToString([]byte(samplePayout)),
		bankPayout, transfer.InstructionKey(bankID).String(), bankToken, strings.Join(badCreditors(), ", "),
	})
	if err != nil {
		return fmt.Errorf("write the help to standard error: %w", err)
	}
	return nil
}
