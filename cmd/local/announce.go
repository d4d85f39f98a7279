package main

import (
	"encoding/base64"
	"fmt"
	"strings"
	"text/template"

	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// samplePayout is what the help's examples settle, and bankPayout what they have
// the bank pay. The payouts of docs/operating.md have other IDs: both can be tried in one run.
const (
	sampleID     = "stl-1001"
	samplePayout = `{"settlement_id":"` + sampleID + `","account_id":"reserve-claims","amount_cents":4731}`
	bankID       = "stl-8480"
	bankPayout   = `{"settlement_id":"` + bankID + `","account_id":"reserve-claims","amount_cents":18250,"creditor_account":"cp-19"}`
)

// help is printed after the ready line. Its commands can be copied as they are.
var help = template.Must(template.New("help").Parse(`
Settle Once runs on this machine until it is interrupted (Ctrl-C).
{{if .Memory}}
Publish a message (no emulators: the ledger is in memory, the topic in this process):

  curl -s {{.PublishURL}} -d '{{.Payout}}'
{{else}}
Publish every line of a file as a message:

  PUBSUB_EMULATOR_HOST={{.PubSubEmulatorHost}} go run ./cmd/settlectl publish FILE --topic {{.Topic}}
{{end}}
Deliver one message yourself, as Pub/Sub pushes it, and see the answer:

  curl -s {{.SettleURL}} -H 'Content-Type: application/json' \
    -d '{"message":{"messageId":"1","data":"{{.Base64}}"},"subscription":"projects/local/subscriptions/curl"}'

Publish a payout that the bank has to pay: it has a creditor_account. (Accounts with which the fake
bank goes wrong on purpose: {{.BadCreditors}}.)
{{if .Memory}}
  curl -s {{.PublishURL}} -d '{{.BankPayout}}'
{{else}}
  echo '{{.BankPayout}}' |
    PUBSUB_EMULATOR_HOST={{.PubSubEmulatorHost}} go run ./cmd/settlectl publish - --topic {{.Topic}}
{{end}}
See the bank's own ledger, and move that transfer by hand (ACCP, ACSC, RJCT, RETURNED):

  curl -s -H 'Authorization: Bearer {{.BankToken}}' {{.BankURL}}/admin/ledger
  curl -s -H 'Authorization: Bearer {{.BankToken}}' {{.BankURL}}/admin/status \
    -d '{"client_reference":"{{.BankKey}}","status":"RETURNED"}'

ReconcileBank asks the bank 15 s after a send, or BANK_VISIBILITY_LAG where that is longer, and about a confirmed
transfer once a day.
{{if .SpannerEmulatorHost}}
Look into the ledger, and decide what waits for a person ('go run ./cmd/settlectl --help' has the rest):

  export SPANNER_EMULATOR_HOST={{.SpannerEmulatorHost}} SPANNER_DATABASE={{.Database}}
  export BANK_URL={{.BankURL}} BANK_TOKEN={{.BankToken}}
  go run ./cmd/settlectl list movements
  go run ./cmd/settlectl show ` + bankID + `

Have the bank asked about what is due, without waiting for the next run of ReconcileBank; what is not due yet says when it is:

  go run ./cmd/settlectl reconcile --due
  go run ./cmd/settlectl reconcile ` + bankID + `
{{end}}
`))

// announce prints the ready line, for scripts, and the help, for people.
func announce(line ready, s streams) error {
	text, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("encode the ready line: %w", err)
	}
	if _, err := s.out.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("write the ready line to standard output: %w", err)
	}
	err = help.Execute(s.err, struct {
		ready

		Payout, Base64, BankPayout, BankKey, BankToken, BadCreditors string
	}{
		line, samplePayout, base64.StdEncoding.EncodeToString([]byte(samplePayout)),
		bankPayout, transfer.InstructionKey(bankID).String(), bankToken, strings.Join(badCreditors(), ", "),
	})
	if err != nil {
		return fmt.Errorf("write the help to standard error: %w", err)
	}
	return nil
}

// projectOf returns P of projects/P/….
func projectOf(name string) string {
	project, _, _ := strings.Cut(strings.TrimPrefix(name, "projects/"), "/")
	return project
}
