package bank

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// The tests of this file are named after published faults of payment systems.

// The fault: an SDK created a new key for each call, or no key on the retry, and paid
// twice.
func TestOneKeyForEver(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, header string
		quoted       bool
		want         string
	}{
		{"plain", "Idempotency-Key", false, testTransfer.Key.String()},
		{"quoted", "Idempotency-Key", true, `"` + testTransfer.Key.String() + `"`},
		{"other header", "x-idempotency-key", false, testTransfer.Key.String()},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			bank := serve(t, false, reply(503, "", ""))
			config := testConfig(bank.url)
			config.Profile.KeyHeader, config.Profile.KeyQuoted = row.header, row.quoted
			for range 3 { // a new client each, as after a restart
				newClient(t, config).Send(t.Context(), sendRequest())
			}
			for _, r := range bank.stop() {
				if got := r.Header.Values(row.header); len(got) != 1 || got[0] != row.want {
					t.Errorf("%s: %q, want %q", row.header, got, row.want)
				}
			}
		})
	}
}

// The fault: a retry had an empty body.
func TestStoredBytesAreSentAsTheyAre(t *testing.T) {
	t.Parallel()
	overPlainAndTLS(t, func(t *testing.T, secure bool) {
		bank := serve(t, secure, cut)
		client := newClient(t, testConfig(bank.url))
		bodies := []string{testBody, testBody, "{ \"other\" :\u2028 1e400 }", "\x00\xff", strings.Repeat("x", 300<<10)}
		for _, body := range bodies {
			request := sendRequest()
			request.Body = []byte(body)
			client.Send(t.Context(), request)
			if string(request.Body) != body {
				t.Error("the stored bytes were changed")
			}
		}
		seen := bank.stop()
		if len(seen) != len(bodies) {
			t.Fatalf("the bank processed %d requests, want %d", len(seen), len(bodies))
		}
		for i, r := range seen {
			if r.body != bodies[i] || r.ContentLength != int64(len(bodies[i])) || len(r.TransferEncoding) > 0 {
				t.Errorf("send %d: %d bytes, Content-Length %d, want %d", i, len(r.body), r.ContentLength, len(bodies[i]))
			}
		}
	})
}

// The fault: a client read a timeout as failed, and the transfer had succeeded.
func TestTimeoutIsNotAFailure(t *testing.T) {
	t.Parallel()
	overPlainAndTLS(t, func(t *testing.T, secure bool) {
		bank := serve(t, secure, hang)
		config := testConfig(bank.url)
		config.SendTimeout, config.StatusTimeout = hangTimeout, hangTimeout
		client := newClient(t, config)
		got := client.Send(t.Context(), sendRequest())
		if got.Class != transfer.SendUncertain || got.Answer.Detail != detailTimeout {
			t.Errorf("class %v, answer %+v", got.Class, got.Answer)
		}
		if got := client.Status(t.Context(), statusRequest()); got.Reading != transfer.StatusUnknown {
			t.Errorf("reading %v", got.Reading)
		}
		if n := len(bank.stop()); n != 2 {
			t.Errorf("the bank processed %d requests, want 2", n)
		}
	})
}

// The fault: a client read every error as failed. Only a listed refusal ends a
// transfer, and only if no earlier send can have reached the bank.
func TestNoErrorMeansFailed(t *testing.T) {
	t.Parallel()
	client := newClient(t, testConfig("https://bank.example"))
	listed := []byte(`{"code":"insufficient_funds"}`)
	header := http.Header{"Content-Type": {"application/problem+json"}}
	for status := range 1000 {
		for _, body := range [][]byte{nil, []byte("{}"), []byte(`{"code":"other"}`), listed} {
			for _, earlier := range []bool{false, true} {
				request := sendRequest()
				request.EarlierMayHaveReached = earlier
				got := client.readSend(request, exchange{status: status, header: header, body: body})
				may := !earlier && bytes.Equal(body, listed) && (status == 400 || status == 402 || status == 403 || status == 422)
				if (got.Class == transfer.SendRejected) != may {
					t.Errorf("%d %s, earlier %v: %v", status, body, earlier, got.Class)
				}
			}
		}
	}
}

// dropSecond keeps connections open. It processes the first second request on a
// connection and breaks the connection without an answer. It answers every other
// request.
func dropSecond(status int, body string, dropped func()) script {
	broke := false // rawBank serves one connection at a time here
	return func(c net.Conn, n int) bool {
		if n == 2 && !broke {
			broke = true
			dropped()
			return cut(c, n)
		}
		reply(status, "", body)(c, n)
		return true
	}
}

// The fault: an HTTP client repeated a POST when a kept-alive connection broke.
func TestOneExchangeOnly(t *testing.T) {
	t.Parallel()
	overPlainAndTLS(t, func(t *testing.T, secure bool) {
		bank := serve(t, secure, dropSecond(201, goodTransfer, func() {}))
		client := newClient(t, testConfig(bank.url))
		first, second := client.Send(t.Context(), sendRequest()), client.Send(t.Context(), sendRequest())
		if first.Class != transfer.SendAccepted || second.Class != transfer.SendUncertain {
			t.Errorf("classes %v and %v, want accepted and uncertain", first.Class, second.Class)
		}
		seen := bank.stop()
		if len(seen) != 2 {
			t.Errorf("the bank processed %d requests for 2 calls", len(seen))
		}
		for _, r := range seen {
			if !r.Close {
				t.Error("the request does not ask to close the connection")
			}
		}
		bank = serve(t, secure, dropSecond(200, list(), func() {}))
		client = newClient(t, testConfig(bank.url))
		one, two := client.Status(t.Context(), statusRequest()), client.Status(t.Context(), statusRequest())
		if one.Reading != transfer.StatusNotFound || two.Reading != transfer.StatusUnknown {
			t.Errorf("readings %v and %v, want not_found and unknown", one.Reading, two.Reading)
		}
		if n := len(bank.stop()); n != 2 {
			t.Errorf("the bank processed %d requests for 2 status calls", n)
		}
	})
}

// TestCommonTransportSendsTwice shows the fault with the default transport: the bank
// processes the second call twice. If the bank then ends, the error is "connection
// refused", although the bank has processed the request. If this test fails, net/http
// has changed: check the reasons at New.
func TestCommonTransportSendsTwice(t *testing.T) {
	t.Parallel()
	post := func(t *testing.T, client *http.Client, url string) error {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(testBody))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", testTransfer.Key.String())
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	t.Run("processed twice", func(t *testing.T) {
		t.Parallel()
		bank := serve(t, false, dropSecond(201, goodTransfer, func() {}))
		transport := &http.Transport{}
		client := &http.Client{Transport: transport}
		for range 2 {
			if err := post(t, client, bank.url); err != nil {
				t.Fatal(err)
			}
		}
		transport.CloseIdleConnections()
		if n := len(bank.stop()); n != 3 {
			t.Errorf("the bank processed %d requests for 2 calls; expected net/http to make it 3", n)
		}
	})
	t.Run("processed and told refused", func(t *testing.T) {
		t.Parallel()
		bank := listen(t, false)
		bank.start(t, dropSecond(201, goodTransfer, func() { bank.listener.Close() }))
		client := &http.Client{Transport: &http.Transport{}}
		if err := post(t, client, bank.url); err != nil {
			t.Fatal(err)
		}
		err := post(t, client, bank.url)
		if err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("error %v; expected net/http to say that the connection was refused", err)
		}
		if n := len(bank.stop()); n != 2 {
			t.Errorf("the bank processed %d requests", n)
		}
	})
}

// The faults: JPY × 100, and 19.99 that became 1998.
func TestAmountsAreNeverScaled(t *testing.T) {
	t.Parallel()
	client := newClient(t, testConfig("https://bank.example"))
	for _, row := range []struct {
		amount   int64
		currency string
		want     string
	}{
		{1999, "USD", `"amount_minor":1999,"currency":"USD"`},
		{500, "JPY", `"amount_minor":500,"currency":"JPY"`},
		{12345, "KWD", `"amount_minor":12345,"currency":"KWD"`},
		{payout.MaxAmountCents, "EUR", `"amount_minor":999999999999999,"currency":"EUR"`},
		{9007199254740993, "EUR", `"amount_minor":9007199254740993,"currency":"EUR"`},
	} {
		p := testPayout
		p.AmountCents, p.Currency = row.amount, row.currency
		body, err := client.Compose(p, testTransfer.Key)
		if err != nil || !strings.Contains(string(body), row.want) {
			t.Errorf("%s, %v; want %s in it", body, err, row.want)
		}
		ours := testTransfer
		ours.AmountCents, ours.Currency = row.amount, row.currency
		echo := strings.Replace(goodTransfer, `"amount_minor":4731,"currency":"USD"`, row.want, 1)
		if got := client.readSend(transfer.SendRequest{Transfer: ours}, exchange{status: 201, body: []byte(echo)}); got.Class != transfer.SendAccepted {
			t.Errorf("%s: class %v, answer %+v", row.want, got.Class, got.Answer)
		}
		if got := client.readSend(sendRequest(), exchange{status: 201, body: []byte(echo)}); got.Class != transfer.SendManual {
			t.Errorf("%s for 4731 USD: class %v", row.want, got.Class)
		}
	}
}

func TestCompose(t *testing.T) {
	t.Parallel()
	client := newClient(t, testConfig("https://bank.example"))
	noReference := testPayout
	noReference.Reference = ""
	odd := testPayout
	odd.Reference = "<a&b>\u2028\"\\é"
	for _, row := range []struct {
		name   string
		payout payout.Payout
		want   string
	}{
		{"whole", testPayout, testBody},
		{"no reference", noReference, strings.Replace(testBody, `,"remittance":"claim 19-4431"`, "", 1)},
		{"odd characters", odd, strings.Replace(testBody, "claim 19-4431", "<a&b>\u2028\\\"\\\\é", 1)},
	} {
		for range 3 {
			got, err := client.Compose(row.payout, testTransfer.Key)
			if err != nil || string(got) != row.want {
				t.Errorf("%s: %s, %v\nwant %s", row.name, got, err, row.want)
			}
		}
	}

	for name, change := range map[string]func(*payout.Payout, *uuid.UUID){
		"no creditor":   func(p *payout.Payout, _ *uuid.UUID) { p.CreditorAccount = "" },
		"no amount":     func(p *payout.Payout, _ *uuid.UUID) { p.AmountCents = 0 },
		"negative":      func(p *payout.Payout, _ *uuid.UUID) { p.AmountCents = -1 },
		"no currency":   func(p *payout.Payout, _ *uuid.UUID) { p.Currency = "" },
		"no key":        func(_ *payout.Payout, key *uuid.UUID) { *key = uuid.Nil },
		"invalid UTF-8": func(p *payout.Payout, _ *uuid.UUID) { p.Reference = "claim \xff" },
	} {
		p, key := testPayout, testTransfer.Key
		change(&p, &key)
		body, err := client.Compose(p, key)
		if err == nil || body != nil {
			t.Errorf("%s: %s, %v", name, body, err)
		} else if strings.Contains(err.Error(), "cp-19") || strings.Contains(err.Error(), "claim") {
			t.Errorf("%s: the error quotes the payout: %v", name, err)
		}
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	bank := serve(t, true, reply(500, "", ""))
	config := testConfig(bank.url + "/base/")
	client := newClient(t, config)
	client.Send(context.Background(), sendRequest())
	client.Status(context.Background(), statusRequest())
	config.Token = ""
	newClient(t, config).Status(context.Background(), statusRequest())
	seen := bank.stop()
	if len(seen) != 3 {
		t.Fatalf("the bank processed %d requests", len(seen))
	}
	send, question, anonymous := seen[0], seen[1], seen[2]
	if send.Method != http.MethodPost || send.RequestURI != "/base/v1/credit-transfers" {
		t.Errorf("send: %s %s", send.Method, send.RequestURI)
	}
	if question.Method != http.MethodGet || question.RequestURI != "/base/v1/credit-transfers?client_reference="+testTransfer.Key.String() {
		t.Errorf("question: %s %s", question.Method, question.RequestURI)
	}
	for _, r := range []seenRequest{send, question} {
		if got := r.Header.Get("Authorization"); got != "Bearer "+testToken {
			t.Errorf("%s: Authorization %q", r.Method, got)
		}
		if !strings.HasPrefix(r.Header.Get("Accept"), "application/json") {
			t.Errorf("%s: Accept %q", r.Method, r.Header.Get("Accept"))
		}
		for _, name := range []string{"Accept-Encoding", "Expect"} {
			if got, set := r.Header[name]; set {
				t.Errorf("%s: %s %q", r.Method, name, got)
			}
		}
	}
	if got := send.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
	if got, set := question.Header["Idempotency-Key"]; set || question.body != "" {
		t.Errorf("the question has a key header %q or a body %q", got, question.body)
	}
	if got, set := anonymous.Header["Authorization"]; set {
		t.Errorf("without a token: Authorization %q", got)
	}
}
