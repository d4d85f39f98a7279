package sim

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/bank"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/fakebank"
)

// sendPlans say for every fault of a send how the fake bank makes it, on the wire.
// Those without a plan are made by the test itself.
var sendPlans = map[string]*fakebank.Plan{
	"refuses the connection":            nil,
	"fails in the TLS handshake":        nil,
	"finds the breaker open":            nil,
	"hangs up":                          first(fakebank.Attempt{Before: fakebank.BeforeRefuse}),
	"redirects":                         first(fakebank.Attempt{BeforeStatus: http.StatusFound}),
	"answers 401":                       first(fakebank.Attempt{BeforeStatus: http.StatusUnauthorized}),
	"answers 403 without a listed code": first(fakebank.Attempt{BeforeStatus: http.StatusForbidden}),
	"answers 408":                       first(fakebank.Attempt{BeforeStatus: http.StatusRequestTimeout}),
	"answers 425":                       first(fakebank.Attempt{BeforeStatus: http.StatusTooEarly, RetryAfter: "60"}),
	"answers 429":                       first(fakebank.Attempt{BeforeStatus: http.StatusTooManyRequests, RetryAfter: "60"}),
	"answers 503":                       first(fakebank.Attempt{BeforeStatus: http.StatusServiceUnavailable, RetryAfter: "60"}),

	"is reset":                   first(fakebank.Attempt{Answer: fakebank.AnswerReset}),
	"is closed":                  first(fakebank.Attempt{Answer: fakebank.AnswerClose}),
	"is cut short of its length": first(fakebank.Attempt{Answer: fakebank.AnswerCut}),
	"is cut within a chunk":      first(fakebank.Attempt{Answer: fakebank.AnswerCutChunked}),
	"is cut and seems to end":    first(fakebank.Attempt{Answer: fakebank.AnswerCutUnsized}),
	"is an empty object":         first(fakebank.Attempt{Answer: fakebank.AnswerEmptyObject}),
	"is null":                    first(fakebank.Attempt{Answer: fakebank.AnswerNull}),
	"is HTML with 200":           first(fakebank.Attempt{Answer: fakebank.AnswerHTML}),
	"is 204":                     first(fakebank.Attempt{Answer: fakebank.AnswerNoContent}),
	"is an error object with 200": first(
		fakebank.Attempt{Answer: fakebank.AnswerErrorObject}),
	"has trailing junk":          first(fakebank.Attempt{Answer: fakebank.AnswerTrailing}),
	"has 5 MiB":                  first(fakebank.Attempt{Answer: fakebank.AnswerHuge}),
	"is a 103 and then nothing":  first(fakebank.Attempt{Answer: fakebank.AnswerInformational}),
	"is a 500":                   first(fakebank.Attempt{AfterStatus: http.StatusInternalServerError, RetryAfter: "60"}),
	"has an unknown status word": first(fakebank.Attempt{Status: "WXYZ"}),
	"is about another key":       first(fakebank.Attempt{Answer: fakebank.AnswerWrongKey}),
	"has another amount":         first(fakebank.Attempt{Answer: fakebank.AnswerWrongAmount}),
	"has another currency":       first(fakebank.Attempt{Answer: fakebank.AnswerWrongCurrency}),
	"has another creditor":       first(fakebank.Attempt{Answer: fakebank.AnswerWrongCreditor}),

	"says 409: it exists":   {Key: fakebank.KeyPolicy{Same: fakebank.SameExists}},
	"says 409: in progress": {Key: fakebank.KeyPolicy{Same: fakebank.SameInProgress}},
	"says 400: duplicate":   {Key: fakebank.KeyPolicy{Same: fakebank.SameDuplicate}},
	"repeats the 500 that it answered first": {
		Attempts: []fakebank.Attempt{{AfterStatus: http.StatusInternalServerError}}, Key: fakebank.KeyPolicy{After5xx: fakebank.After5xxCached},
	},
	"says 409: locked after a 500": {
		Attempts: []fakebank.Attempt{{AfterStatus: http.StatusInternalServerError}}, Key: fakebank.KeyPolicy{After5xx: fakebank.After5xxLocked},
	},
}

func first(a fakebank.Attempt) *fakebank.Plan {
	return &fakebank.Plan{Attempts: []fakebank.Attempt{a}}
}

// statusSteps say the same for every fault of a question. The bank has executed
// the transfer that is asked about.
var statusSteps = map[string]fakebank.Step{
	"is a 404 in HTML": {Say: fakebank.SayPlain404},
	"is a 400":         {HTTPStatus: http.StatusBadRequest},
	"is a 401":         {HTTPStatus: http.StatusUnauthorized},
	"is a 429":         {HTTPStatus: http.StatusTooManyRequests, RetryAfter: "60"},
	"is a 500":         {HTTPStatus: http.StatusInternalServerError},
	"is a 503":         {HTTPStatus: http.StatusServiceUnavailable, RetryAfter: "60"},
	"is a redirect":    {HTTPStatus: http.StatusFound},
	"is reset":         {Answer: fakebank.AnswerReset},
	"is cut short":     {Answer: fakebank.AnswerCut},
	"is null":          {Answer: fakebank.AnswerNull},
	"is HTML with 200": {Answer: fakebank.AnswerHTML},
	"never comes":      {Say: fakebank.SayHang},

	"is an empty list": {Say: fakebank.SayEmpty},
	"is a typed 404":   {Say: fakebank.SayTyped404},

	"has an unknown status word": {Status: "WXYZ"},
	"has two matches":            {Say: fakebank.SayTwice},
	"has another amount":         {Answer: fakebank.AnswerWrongAmount},
	"has another currency":       {Answer: fakebank.AnswerWrongCurrency},
	"has another creditor":       {Answer: fakebank.AnswerWrongCreditor},
}

var oneTransfer = transfer.Transfer{
	Key: uuid.MustParse("bcb7c10c-019a-5ca0-b0b1-23cf6e23a1a6"), AmountCents: 4731, Currency: "USD", CreditorAccount: "cp-19",
}

// adapter is the real adapter, and a bank for it to talk to.
type adapter struct {
	*bank.Client

	t       *testing.T
	fake    *fakebank.Bank
	request transfer.SendRequest
}

// connect connects the real adapter with a bank; at an empty URL with the fake one.
func connect(t *testing.T, plan *fakebank.Plan, url string) adapter {
	t.Helper()
	now := time.Now()
	a := adapter{t: t, fake: fakebank.New(t, time.Now, fakebank.Options{})}
	if plan != nil {
		a.fake.Default(*plan)
	}
	var err error
	if url == "" {
		if url, err = a.fake.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	a.Client, err = bank.New(bank.Config{
		BaseURL: url, Profile: bank.GenericProfile(), Now: func() time.Time { return now },
		// What never comes is waited for; an answer on loopback takes far less.
		SendTimeout: 10 * time.Second, StatusTimeout: 2 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	body, err := a.Compose(payout.Payout{SettlementID: "stl-1", AccountID: "reserve", AmountCents: 4731, Currency: "USD", CreditorAccount: "cp-19"}, oneTransfer.Key)
	if err != nil {
		t.Fatal(err)
	}
	a.request = transfer.SendRequest{Transfer: oneTransfer, Body: body}
	return a
}

func (a adapter) send() transfer.SendResult { return a.Send(context.Background(), a.request) }

// TestSendFaults makes every fault of a send that sequences draw, and compares
// what the real adapter says with what the sequences take it to say.
func TestSendFaults(t *testing.T) {
	t.Parallel()
	for _, group := range []struct {
		faults []SendFault
		sends  int // the fault is that of the last
	}{{Unsent, 1}, {Unlooked, 1}, {Damages, 1}, {Repeats, 2}} {
		for _, fault := range group.faults {
			t.Run(fault.Name, func(t *testing.T) {
				t.Parallel()
				a := withFault(t, fault)
				got := a.send()
				for range group.sends - 1 {
					got = a.send()
				}
				if got.Class != fault.Class {
					t.Errorf("class %v (%s), and sequences take it as %v", got.Class, got.Answer.Detail, fault.Class)
				}
				if waits := got.Answer.RetryAfter > 0; waits != fault.Waits {
					t.Errorf("asks to wait: %v, and sequences think %v", got.Answer.RetryAfter, fault.Waits)
				}
			})
		}
	}
}

// withFault returns an adapter that meets the fault.
func withFault(t *testing.T, fault SendFault) adapter {
	t.Helper()
	plan, known := sendPlans[fault.Name]
	if !known {
		t.Fatalf("it is not known how to make the fake bank do this")
	}
	switch {
	case plan != nil:
		return connect(t, plan, "")
	case fault.Name == "refuses the connection":
		return connect(t, nil, "http://"+freeAddress(t))
	case fault.Name == "fails in the TLS handshake":
		return connect(t, nil, "https://"+startTLSFailure(t))
	}
	a := connect(t, first(fakebank.Attempt{BeforeStatus: http.StatusUnauthorized}), "")
	if opens := a.send(); opens.Class != transfer.SendHeld {
		t.Fatalf("the send that opens the breaker: %v", opens.Class)
	}
	return a
}

// freeAddress returns an address without a listener.
func freeAddress(t *testing.T) string {
	t.Helper()
	l := listen(t)
	defer l.Close()
	return l.Addr().String()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// startTLSFailure starts a server that answers a TLS handshake with the fatal alert
// handshake_failure, and returns its address.
func startTLSFailure(t *testing.T) string {
	t.Helper()
	l := listen(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the test has ended
			}
			if _, err := c.Read(make([]byte, 16<<10)); err == nil { // the alert answers the client's hello
				_, _ = c.Write([]byte{21, 3, 3, 0, 2, 2, 40}) // the client may be gone
			}
			c.Close()
		}
	}()
	return l.Addr().String()
}

// TestStatusFaults does the same for questions.
func TestStatusFaults(t *testing.T) {
	t.Parallel()
	for _, faults := range [][]StatusFault{Unread, Forgotten, Misread} {
		for _, fault := range faults {
			t.Run(fault.Name, func(t *testing.T) {
				t.Parallel()
				step, known := statusSteps[fault.Name]
				if !known {
					t.Fatalf("it is not known how to make the fake bank do this")
				}
				a := connect(t, &fakebank.Plan{Steps: []fakebank.Step{step}}, "")
				if sent := a.send(); sent.Class != transfer.SendAccepted {
					t.Fatalf("the send: %v %s", sent.Class, sent.Answer.Detail)
				}
				got := a.Status(t.Context(), transfer.StatusRequest{Transfer: oneTransfer})
				if got.Reading != fault.Reading {
					t.Errorf("reading %v (%s), and sequences take it as %v", got.Reading, got.Answer.Detail, fault.Reading)
				}
				if waits := got.Answer.RetryAfter > 0; waits != fault.Waits {
					t.Errorf("asks to wait: %v, and sequences think %v", got.Answer.RetryAfter, fault.Waits)
				}
			})
		}
	}
}
