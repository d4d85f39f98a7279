package bank

import (
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// In a synctest bubble time passes only while all goroutines wait.

func TestBreakerOpensFor30Seconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &breaker{now: time.Now}
		if wait := b.wait(); wait != 0 {
			t.Errorf("a new breaker waits %v", wait)
		}
		b.record(transfer.SendHeld, true)
		if wait := b.wait(); wait != 30*time.Second {
			t.Errorf("after a 401 it waits %v", wait)
		}
		time.Sleep(10 * time.Second)
		if wait := b.wait(); wait != 20*time.Second {
			t.Errorf("10 s later it waits %v", wait)
		}
		b.record(transfer.SendNotSent, true) // a send that was under way ends in a TLS failure
		if wait := b.wait(); wait != 30*time.Second {
			t.Errorf("after another failure it waits %v", wait)
		}
		time.Sleep(30 * time.Second)
		if wait := b.wait(); wait != 0 {
			t.Errorf("after its time it waits %v", wait)
		}
	})
}

func TestBreakerOpensAtHalfOfTheLast20(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &breaker{now: time.Now}
		record := func(class transfer.SendClass, n int) {
			for range n {
				b.record(class, false)
			}
		}
		record(transfer.SendAccepted, 30)
		record(transfer.SendUncertain, 9)
		record(transfer.SendNotSent, 40) // not counted at all
		if wait := b.wait(); wait != 0 {
			t.Errorf("after 9 of 20 it waits %v", wait)
		}
		record(transfer.SendUncertain, 1)
		if wait := b.wait(); wait != breakerWait {
			t.Errorf("after 10 of 20 it waits %v", wait)
		}
		time.Sleep(breakerWait)
		record(transfer.SendAccepted, 1)
		if wait := b.wait(); wait != 0 {
			t.Errorf("after a good send it waits %v", wait)
		}
		record(transfer.SendUncertain, 1)
		if wait := b.wait(); wait != breakerWait {
			t.Errorf("after an uncertain send, 11 of the last 20, it waits %v", wait)
		}
		time.Sleep(breakerWait)
		record(transfer.SendAccepted, 20)
		record(transfer.SendUncertain, 9)
		if wait := b.wait(); wait != 0 {
			t.Errorf("after recovery and 9 of 20 it waits %v", wait)
		}
	})
}

// TestOpenBreakerSendsNothing uses sockets. Status requests go on.
func TestOpenBreakerSendsNothing(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		answer script
		sends  int
		opens  bool
	}{
		{"401", reply(401, "", ""), 1, true},
		{"403", reply(403, "", ""), 1, true},
		{"403 listed", refuse(403, "creditor_account_closed"), 1, false},
		{"413", reply(413, "", ""), 12, false},
		{"429", reply(429, "", ""), 12, false},
		{"accepted", reply(201, "", goodTransfer), 12, false},
		{"ten resets", reset, 10, true},
		{"ten 503", reply(503, "", ""), 10, true},
		{"nine 503", reply(503, "", ""), 9, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var elapsed atomic.Int64
			bank := serve(t, false, func(c net.Conn, n int) bool {
				if n <= row.sends {
					return row.answer(c, n)
				}
				return reply(http.StatusOK, "", list())(c, n)
			})
			config := testConfig(bank.url)
			config.Now = func() time.Time { return testNow.Add(time.Duration(elapsed.Load())) }
			client := newClient(t, config)
			for range row.sends {
				if got := client.Send(t.Context(), sendRequest()); got.Class == transfer.SendNotSent {
					t.Fatalf("not sent: %+v", got.Answer)
				}
			}
			if !row.opens {
				if wait := client.breaker.wait(); wait != 0 {
					t.Errorf("it waits %v", wait)
				}
				return
			}
			elapsed.Store(int64(12 * time.Second))
			got := client.Send(t.Context(), sendRequest())
			want := transfer.SendResult{Class: transfer.SendNotSent, Answer: transfer.BankAnswer{RetryAfter: 18 * time.Second, Detail: "breaker open"}}
			if got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			if got := client.Status(t.Context(), statusRequest()); got.Reading != transfer.StatusNotFound {
				t.Errorf("a question reads %v", got.Reading)
			}
			elapsed.Store(int64(30 * time.Second))
			if got := client.Send(t.Context(), sendRequest()); got.Class == transfer.SendNotSent {
				t.Errorf("after its time: %v, %+v", got.Class, got.Answer)
			}
			if n := len(bank.stop()); n != row.sends+2 {
				t.Errorf("the bank processed %d requests, want %d", n, row.sends+2)
			}
		})
	}
}

func TestRefusedStatusRequestsDoNotOpenTheBreaker(t *testing.T) {
	t.Parallel()
	bank := serve(t, false, reply(401, "", ""))
	client := newClient(t, testConfig(bank.url))
	for range breakerWindow {
		client.Status(t.Context(), statusRequest())
	}
	if wait := client.breaker.wait(); wait != 0 {
		t.Errorf("it waits %v", wait)
	}
}

func TestClientIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	bank := serve(t, true, func(c net.Conn, n int) bool {
		if n%3 == 0 {
			return reset(c, n)
		}
		return reply(201, "", goodTransfer)(c, n)
	})
	client := newClient(t, testConfig(bank.url))
	var calls atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 5 {
				if got := client.Send(t.Context(), sendRequest()); got.Class != transfer.SendNotSent {
					calls.Add(1)
				}
				client.Status(t.Context(), statusRequest())
				calls.Add(1)
			}
		})
	}
	group.Wait()
	if n := int64(len(bank.stop())); n != calls.Load() {
		t.Errorf("the bank processed %d requests for %d calls", n, calls.Load())
	}
}
