package fakebank_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/settleonce/settleonce/internal/test/fakebank"
)

// The answer to the first send is lost and the bank executes an hour later, after
// everybody was told that there is no transfer.
func Example() {
	clock := fakebank.NewClock(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
	bank := fakebank.New(nil, clock.Now, fakebank.Options{}) // in a test: t instead of nil
	defer bank.Close()

	const key = "bcb7c10c-019a-5ca0-b0b1-23cf6e23a1a6"
	bank.Expect("stl-8472", key)
	bank.Script(key, fakebank.Plan{
		Attempts: []fakebank.Attempt{{Execute: fakebank.ExecuteLate, LateBy: time.Hour, Answer: fakebank.AnswerReset}},
	})
	pipe := fakebank.NewPipe() // or bank.Start, for a real socket
	go func() { _ = bank.Serve(pipe) }()
	client := &http.Client{Transport: &http.Transport{DialContext: pipe.DialContext, DisableKeepAlives: true}}

	body := `{"client_reference":"` + key + `","amount_minor":4731,"currency":"USD",` +
		`"debtor_account":"reserve-claims","creditor_account":"cp-19","remittance":"claim 19-4431"}`
	r, _ := http.NewRequest(http.MethodPost, "http://bank/v1/credit-transfers", strings.NewReader(body)) //nolint:noctx // an example
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err == nil {
		_ = resp.Body.Close()
	}
	fmt.Println("answered:", err == nil, "executed:", len(bank.Ledger()))

	clock.Advance(time.Hour)
	for _, t := range bank.Ledger() {
		fmt.Println("executed:", t.Settlement, t.AmountMinor, t.Currency, t.Status, t.ExecutedAt.Format(time.TimeOnly))
	}
	fmt.Println("violations:", len(bank.Violations()))
	// Output:
	// answered: false executed: 0
	// executed: stl-8472 4731 USD ACSC 13:00:00
	// violations: 0
}
