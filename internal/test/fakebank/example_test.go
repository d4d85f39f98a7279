package fakebank_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/settleonce/settleonce/internal/test/fakebank"
)

// The bank resets the connection instead of answering the first send, and executes
// it an hour later.
func Example() {
	clock := fakebank.NewClock(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
	bank := fakebank.New(nil, clock.Now, fakebank.Options{}) // in a test: t instead of nil
	defer bank.Close()

	const key = "bcb7c10c-019a-5ca0-b0b1-23cf6e23a1a6"
	bank.Expect("stl-8472", key)
	bank.Script(key, fakebank.Plan{
		Attempts: []fakebank.Attempt{{Execute: fakebank.ExecuteLate, LateBy: time.Hour, Answer: fakebank.AnswerReset}},
	})
	url, err := bank.Start(context.Background())
	if err != nil {
		panic(err)
	}

	body := `{"client_reference":"` + key + `","amount_minor":4731,"currency":"USD",` +
		`"debtor_account":"reserve-claims","creditor_account":"cp-19","remittance":"claim 19-4431"}`
	r, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, url+"/v1/credit-transfers", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
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
