package fakebank_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/test/fakebank"
)

func TestConnectionFaults(t *testing.T) {
	t.Parallel()
	x, key := openGood(t), newKey()
	x.Connections(fakebank.ConnReset, fakebank.ConnServed, fakebank.ConnHang)
	for i, good := range []bool{false, true, false, true} {
		if i == 2 {
			x.transport.ResponseHeaderTimeout = 100 * time.Millisecond
		}
		g := x.send(key)
		x.transport.ResponseHeaderTimeout = 0
		if (g.err == nil) != good {
			t.Errorf("connection %d: got %+v", i, g)
		}
	}
	x.EveryConnection(fakebank.ConnReset)
	if g := x.send(key); g.err == nil {
		t.Errorf("got %+v", g)
	}
	if came := x.RequestsOf(key); came.Posts != 2 {
		t.Errorf("%d sends", came.Posts)
	}
}

// openTLS serves the bank behind TLS.
func openTLS(t *testing.T) *teller {
	t.Helper()
	x := openGood(t)
	server := httptest.NewUnstartedServer(x.Bank)
	server.Listener = x.Listener(server.Listener)
	server.StartTLS()
	t.Cleanup(server.Close)
	x.url = server.URL
	x.transport = server.Client().Transport.(*http.Transport)
	return x
}

func TestTLSFailure(t *testing.T) {
	t.Parallel()
	x, key := openTLS(t), newKey()
	x.Connections(fakebank.ConnTLSFailure, fakebank.ConnHang)
	for i, want := range []string{"tls: handshake failure", "TLS handshake timeout"} {
		if i == 1 {
			x.transport.TLSHandshakeTimeout = 100 * time.Millisecond
		}
		if g := x.send(key); g.err == nil || !strings.Contains(g.err.Error(), want) {
			t.Errorf("got %+v, want %s", g, want)
		}
	}
	x.transport.TLSHandshakeTimeout = 0
	if came := x.RequestsOf(key); came.Posts != 0 {
		t.Errorf("%d sends", came.Posts)
	}
	if g := x.send(key); g.status != http.StatusCreated {
		t.Errorf("got %+v", g)
	}
}

func TestAnswersOverTLS(t *testing.T) {
	t.Parallel()
	x := openTLS(t)
	for _, answer := range []fakebank.Answer{fakebank.AnswerReset, fakebank.AnswerClose, fakebank.AnswerCut, fakebank.AnswerHang} {
		key := newKey()
		x.Script(key, fakebank.Plan{Rest: fakebank.Attempt{Answer: answer}})
		if answer == fakebank.AnswerHang {
			time.AfterFunc(500*time.Millisecond, x.Close)
		}
		if g := x.send(key); g.err == nil {
			t.Errorf("%s: got %+v", answer, g)
		}
	}
	x.executed(4)
}

// TestKeptAliveConnectionBreaks shows that net/http repeats a send by itself when
// it has a key, which is why sends must not use kept-alive connections.
func TestKeptAliveConnectionBreaks(t *testing.T) {
	t.Parallel()
	for kind, executed := range map[fakebank.KeptAlive]int{
		fakebank.KeptAliveServed: 2, fakebank.KeptAliveDropped: 2, fakebank.KeptAliveExecuted: 2,
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			x := openGood(t)
			x.Default(fakebank.Plan{KeptAlive: kind})
			x.transport.DisableKeepAlives = false
			x.send(newKey())
			key := newKey()
			g := x.send(key)
			sends, status := 2, http.StatusCreated
			switch kind {
			case fakebank.KeptAliveServed:
				sends = 1
			case fakebank.KeptAliveExecuted:
				status = http.StatusOK // a replay
			case fakebank.KeptAliveDropped:
			}
			if came := x.RequestsOf(key); g.status != status || came.Posts != sends {
				t.Errorf("got %+v, %d sends; want %d", g, came.Posts, sends)
			}
			x.executed(executed)
		})
	}
	t.Run("without keeping alive", func(t *testing.T) {
		t.Parallel()
		x := openGood(t)
		x.Default(fakebank.Plan{KeptAlive: fakebank.KeptAliveDropped})
		for range 3 {
			if g := x.send(newKey()); g.status != http.StatusCreated {
				t.Errorf("got %+v", g)
			}
		}
	})
}
