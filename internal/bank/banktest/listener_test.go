package banktest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/bank/banktest"
)

func TestConnectionFaults(t *testing.T) {
	t.Parallel()
	x, key := openGood(t), newKey()
	x.Connections(banktest.ConnReset, banktest.ConnServed, banktest.ConnHang)
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
	x.EveryConnection(banktest.ConnReset)
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
	x.Connections(banktest.ConnTLSFailure, banktest.ConnHang)
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
	for _, answer := range []banktest.Answer{banktest.AnswerReset, banktest.AnswerClose, banktest.AnswerCut, banktest.AnswerHang} {
		key := newKey()
		x.Script(key, banktest.Plan{Rest: banktest.Attempt{Answer: answer}})
		if answer == banktest.AnswerHang {
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
	for kind, executed := range map[banktest.KeptAlive]int{
		banktest.KeptAliveServed: 2, banktest.KeptAliveDropped: 2, banktest.KeptAliveExecuted: 2,
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			x := openGood(t)
			x.Default(banktest.Plan{KeptAlive: kind})
			x.transport.DisableKeepAlives = false
			x.send(newKey())
			key := newKey()
			g := x.send(key)
			sends, status := 2, http.StatusCreated
			switch kind {
			case banktest.KeptAliveServed:
				sends = 1
			case banktest.KeptAliveExecuted:
				status = http.StatusOK // a replay
			case banktest.KeptAliveDropped:
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
		x.Default(banktest.Plan{KeptAlive: banktest.KeptAliveDropped})
		for range 3 {
			if g := x.send(newKey()); g.status != http.StatusCreated {
				t.Errorf("got %+v", g)
			}
		}
	})
}
