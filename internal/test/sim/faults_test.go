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

// sendFault is a fault of a send, and the adapter's class for it. TestSendFaults
// makes the plan on a real connection and checks the class.
type sendFault struct {
	name  string
	class transfer.SendClass
	waits bool // the answer can have Retry-After
	plan  *fakebank.Plan
}

// unsentFaults end a send before its first byte. withFault makes them.
var unsentFaults = []sendFault{
	{"refuses the connection", transfer.SendNotSent, false, nil},
	{"fails in the TLS handshake", transfer.SendNotSent, false, nil},
	{"finds the breaker open", transfer.SendNotSent, true, nil},
}

// unreadFaults are answers of a bank or proxy that has not read the transfer and
// never will.
var unreadFaults = []sendFault{
	{"hangs up", transfer.SendUncertain, false, attempt(fakebank.Attempt{Before: fakebank.BeforeRefuse})},
	{"redirects", transfer.SendUncertain, false, before(http.StatusFound)},
	{"answers 401", transfer.SendHeld, false, before(http.StatusUnauthorized)},
	{"answers 403 without a listed code", transfer.SendHeld, false, before(http.StatusForbidden)},
	{"answers 408", transfer.SendUncertain, false, before(http.StatusRequestTimeout)},
	{"answers 425", transfer.SendRetryLater, true, before(http.StatusTooEarly)},
	{"answers 429", transfer.SendRetryLater, true, before(http.StatusTooManyRequests)},
	{"answers 503", transfer.SendUncertain, true, before(http.StatusServiceUnavailable)},
}

// answerFaults replace the answer to a send that the bank has processed.
var answerFaults = []sendFault{
	{"is reset", transfer.SendUncertain, false, answer(fakebank.AnswerReset)},
	{"is closed", transfer.SendUncertain, false, answer(fakebank.AnswerClose)},
	{"is cut short of its length", transfer.SendUncertain, false, answer(fakebank.AnswerCut)},
	{"is cut within a chunk", transfer.SendUncertain, false, answer(fakebank.AnswerCutChunked)},
	{"is cut and seems to end", transfer.SendUncertain, false, answer(fakebank.AnswerCutUnsized)},
	{"is an empty object", transfer.SendUncertain, false, answer(fakebank.AnswerEmptyObject)},
	{"is null", transfer.SendUncertain, false, answer(fakebank.AnswerNull)},
	{"is HTML with 200", transfer.SendUncertain, false, answer(fakebank.AnswerHTML)},
	{"is 204", transfer.SendUncertain, false, answer(fakebank.AnswerNoContent)},
	{"is an error object with 200", transfer.SendUncertain, false, answer(fakebank.AnswerErrorObject)},
	{"has trailing junk", transfer.SendUncertain, false, answer(fakebank.AnswerTrailing)},
	{"has 5 MiB", transfer.SendUncertain, false, answer(fakebank.AnswerHuge)},
	{"is a 103 and then nothing", transfer.SendUncertain, false, answer(fakebank.AnswerInformational)},
	{"is a 500", transfer.SendUncertain, true, attempt(fakebank.Attempt{AfterStatus: http.StatusInternalServerError})},
	{"has an unknown status word", transfer.SendUncertain, false, attempt(fakebank.Attempt{Status: "WXYZ"})},
	{"is about another key", transfer.SendUncertain, false, answer(fakebank.AnswerWrongKey)},
	{"has another amount", transfer.SendManual, false, answer(fakebank.AnswerWrongAmount)},
	{"has another currency", transfer.SendManual, false, answer(fakebank.AnswerWrongCurrency)},
	{"has another creditor", transfer.SendManual, false, answer(fakebank.AnswerWrongCreditor)},
}

// knownKeyFaults are the answers of a bank that does not replay to a key that it
// remembers.
var knownKeyFaults = []sendFault{
	{"says 409: it exists", transfer.SendUncertain, false, &fakebank.Plan{Key: fakebank.KeyPolicy{Same: fakebank.SameExists}}},
	{"says 409: in progress", transfer.SendUncertain, false, &fakebank.Plan{Key: fakebank.KeyPolicy{Same: fakebank.SameInProgress}}},
	{"says 400: duplicate", transfer.SendUncertain, false, &fakebank.Plan{Key: fakebank.KeyPolicy{Same: fakebank.SameDuplicate}}},
	{"repeats the first 500", transfer.SendUncertain, false, after500(fakebank.After5xxCached)},
	{"says 409: locked after a 500", transfer.SendUncertain, false, after500(fakebank.After5xxLocked)},
}

func attempt(a fakebank.Attempt) *fakebank.Plan {
	return &fakebank.Plan{Attempts: []fakebank.Attempt{a}}
}

func before(status int) *fakebank.Plan { return attempt(fakebank.Attempt{BeforeStatus: status}) }

func answer(a fakebank.Answer) *fakebank.Plan { return attempt(fakebank.Attempt{Answer: a}) }

func after500(policy fakebank.After5xx) *fakebank.Plan {
	plan := attempt(fakebank.Attempt{AfterStatus: http.StatusInternalServerError})
	plan.Key.After5xx = policy
	return plan
}

// statusFault is a fault of a status request, and the adapter's reading of it where
// the bank has executed the transfer. TestStatusFaults checks the reading.
type statusFault struct {
	name    string
	reading transfer.StatusReading
	waits   bool // the answer can have Retry-After
	step    fakebank.Step
}

// unknownFaults are answers that prove nothing.
var unknownFaults = []statusFault{
	{"is a 404 in HTML", transfer.StatusUnknown, false, fakebank.Step{Say: fakebank.SayPlain404}},
	{"is a 400", transfer.StatusUnknown, false, fakebank.Step{HTTPStatus: http.StatusBadRequest}},
	{"is a 401", transfer.StatusUnknown, false, fakebank.Step{HTTPStatus: http.StatusUnauthorized}},
	{"is a 429", transfer.StatusUnknown, true, fakebank.Step{HTTPStatus: http.StatusTooManyRequests}},
	{"is a 500", transfer.StatusUnknown, false, fakebank.Step{HTTPStatus: http.StatusInternalServerError}},
	{"is a 503", transfer.StatusUnknown, true, fakebank.Step{HTTPStatus: http.StatusServiceUnavailable}},
	{"is a redirect", transfer.StatusUnknown, false, fakebank.Step{HTTPStatus: http.StatusFound}},
	{"is reset", transfer.StatusUnknown, false, fakebank.Step{Answer: fakebank.AnswerReset}},
	{"is cut short", transfer.StatusUnknown, false, fakebank.Step{Answer: fakebank.AnswerCut}},
	{"is null", transfer.StatusUnknown, false, fakebank.Step{Answer: fakebank.AnswerNull}},
	{"is HTML with 200", transfer.StatusUnknown, false, fakebank.Step{Answer: fakebank.AnswerHTML}},
	{"never comes", transfer.StatusUnknown, false, fakebank.Step{Say: fakebank.SayHang}},
}

// notFoundFaults are answers of a bank that has lost the transfer.
var notFoundFaults = []statusFault{
	{"is an empty list", transfer.StatusNotFound, false, fakebank.Step{Say: fakebank.SayEmpty}},
	{"is a typed 404", transfer.StatusNotFound, false, fakebank.Step{Say: fakebank.SayTyped404}},
}

// wrongFaults are answers about another transfer than the executed one.
var wrongFaults = []statusFault{
	{"has an unknown status word", transfer.StatusPending, false, fakebank.Step{Status: "WXYZ"}},
	{"has two matches", transfer.StatusManual, false, fakebank.Step{Say: fakebank.SayTwice}},
	{"has another amount", transfer.StatusManual, false, fakebank.Step{Answer: fakebank.AnswerWrongAmount}},
	{"has another currency", transfer.StatusManual, false, fakebank.Step{Answer: fakebank.AnswerWrongCurrency}},
	{"has another creditor", transfer.StatusManual, false, fakebank.Step{Answer: fakebank.AnswerWrongCreditor}},
}

var paid = transfer.Transfer{
	Key: uuid.MustParse("bcb7c10c-019a-5ca0-b0b1-23cf6e23a1a6"), AmountCents: 4731, Currency: "USD", CreditorAccount: "cp-19",
}

// adapter is the real adapter, connected to a bank.
type adapter struct {
	*bank.Client

	request transfer.SendRequest
}

// connect connects the real adapter to the URL; an empty one to a fake bank with the
// plan.
func connect(t *testing.T, plan fakebank.Plan, url string) adapter {
	t.Helper()
	if url == "" {
		fake := fakebank.New(t, time.Now, fakebank.Options{})
		fake.Default(plan)
		var err error
		if url, err = fake.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	client, err := bank.New(bank.Config{
		BaseURL: url, Profile: bank.GenericProfile(), Now: func() time.Time { return now },
		// An answer on loopback takes far less; only hanging exchanges reach these.
		SendTimeout: 10 * time.Second, StatusTimeout: 2 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	body, err := client.Compose(payout.Payout{SettlementID: "stl-1", AccountID: "reserve", AmountCents: 4731, Currency: "USD", CreditorAccount: "cp-19"}, paid.Key)
	if err != nil {
		t.Fatal(err)
	}
	return adapter{client, transfer.SendRequest{Transfer: paid, Body: body}}
}

func (a adapter) send() transfer.SendResult { return a.Send(context.Background(), a.request) }

// TestSendFaults compares the real adapter's class for each fault with the class
// that the sequences use.
func TestSendFaults(t *testing.T) {
	t.Parallel()
	for _, group := range []struct {
		faults []sendFault
		sends  int // the last one has the fault
	}{{unsentFaults, 1}, {unreadFaults, 1}, {answerFaults, 1}, {knownKeyFaults, 2}} {
		for _, fault := range group.faults {
			t.Run(fault.name, func(t *testing.T) {
				t.Parallel()
				a := withFault(t, fault)
				got := a.send()
				for range group.sends - 1 {
					got = a.send()
				}
				if got.Class != fault.class {
					t.Errorf("class %v (%s), and %v in sequences", got.Class, got.Answer.Detail, fault.class)
				}
				if waits := got.Answer.RetryAfter > 0; waits != fault.waits {
					t.Errorf("retry after %v, and in sequences %t", got.Answer.RetryAfter, fault.waits)
				}
			})
		}
	}
}

func withFault(t *testing.T, fault sendFault) adapter {
	t.Helper()
	switch {
	case fault.plan != nil:
		plan := *fault.plan
		if fault.waits {
			plan.Attempts[0].RetryAfter = "60"
		}
		return connect(t, plan, "")
	case fault.name == "refuses the connection":
		return connect(t, fakebank.Plan{}, "http://"+freeAddress(t))
	case fault.name == "fails in the TLS handshake":
		return connect(t, fakebank.Plan{}, "https://"+startTLSFailure(t))
	}
	a := connect(t, *before(http.StatusUnauthorized), "")
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

// TestStatusFaults compares the real adapter's reading of each fault with the
// reading that the sequences use.
func TestStatusFaults(t *testing.T) {
	t.Parallel()
	for _, faults := range [][]statusFault{unknownFaults, notFoundFaults, wrongFaults} {
		for _, fault := range faults {
			t.Run(fault.name, func(t *testing.T) {
				t.Parallel()
				step := fault.step
				if fault.waits {
					step.RetryAfter = "60"
				}
				a := connect(t, fakebank.Plan{Steps: []fakebank.Step{step}}, "")
				if sent := a.send(); sent.Class != transfer.SendAccepted {
					t.Fatalf("the send: %v %s", sent.Class, sent.Answer.Detail)
				}
				got := a.Status(t.Context(), transfer.StatusRequest{Transfer: paid})
				if got.Reading != fault.reading {
					t.Errorf("reading %v (%s), and %v in sequences", got.Reading, got.Answer.Detail, fault.reading)
				}
				if waits := got.Answer.RetryAfter > 0; waits != fault.waits {
					t.Errorf("retry after %v, and in sequences %t", got.Answer.RetryAfter, fault.waits)
				}
			})
		}
	}
}
