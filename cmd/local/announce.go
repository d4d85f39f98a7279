package main

import (
	"encoding/base64"
	"fmt"
	"strings"
	"text/template"

	"github.com/go-json-experiment/json"
)

// samplePayout is what the help's examples settle.
const samplePayout = `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731}`

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
{{if .SpannerRESTURL}}
Look into the ledger:

  CLOUDSDK_AUTH_DISABLE_CREDENTIALS=true CLOUDSDK_CORE_PROJECT={{.Project}} \
  CLOUDSDK_API_ENDPOINT_OVERRIDES_SPANNER={{.SpannerRESTURL}}/ \
    gcloud spanner databases execute-sql settleonce --instance=local \
    --sql='SELECT settlement_id, account_id, amount_cents, currency, recorded_at FROM ledger_movements'
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

		Payout, Base64, Project string
	}{line, samplePayout, base64.StdEncoding.EncodeToString([]byte(samplePayout)), projectOf(line.Database)})
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
