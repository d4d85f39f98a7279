package event

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// These tests run in synctest bubbles, whose clock advances only while all goroutines
// wait, and over net.Pipe, which buffers nothing. The server has no time limits, like
// that of the functions framework.

// oneConn is a listener with one connection.
type oneConn struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l oneConn) Close() error { return nil }

func (l oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// connect serves h on one connection and returns the caller's end.
func connect(t *testing.T, h http.Handler) net.Conn {
	t.Helper()
	caller, served := net.Pipe()
	l := oneConn{make(chan net.Conn, 1), make(chan struct{})}
	l.conns <- served
	done := make(chan struct{})
	server := &http.Server{Handler: h, ConnState: func(_ net.Conn, s http.ConnState) { //nolint:gosec // G112: no time limit, as in the functions framework
		if s == http.StateClosed {
			close(done)
		}
	}}
	go server.Serve(l) //nolint:errcheck // ends with the listener
	t.Cleanup(func() {
		close(l.closed)
		_ = caller.Close()
		<-done
	})
	return caller
}

// realTime returns a handler with the clock of the connections' deadlines.
func realTime(d Deliverer) *Handler {
	h, _ := newHandler(d)
	h.Now = time.Now
	return h
}

// sendSlowly writes text, then more with a second before each byte.
func sendSlowly(t *testing.T, c net.Conn, text, more string) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, err := io.WriteString(c, text)
		for i := 0; err == nil && i < len(more); i++ {
			time.Sleep(time.Second)
			_, err = io.WriteString(c, more[i:i+1])
		}
	}()
	t.Cleanup(func() {
		_ = c.Close()
		<-ended
	})
}

// answered reads an answer and returns the time since began.
func answered(t *testing.T, c net.Conn, began time.Time) (status int, body string, took time.Duration) {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("no answer after %v: %v", time.Since(began), err)
	}
	defer response.Body.Close()
	took = time.Since(began)
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text), took
}

func announced(method string, length int) string {
	return fmt.Sprintf("%s / HTTP/1.1\r\nHost: f\r\nContent-Length: %d\r\n\r\n", method, length)
}

const chunked = "POST / HTTP/1.1\r\nHost: f\r\nTransfer-Encoding: chunked\r\n\r\n"

func TestSlowBodiesTimeOut(t *testing.T) {
	t.Parallel()
	half := payoutPush[:len(payoutPush)/2]
	short := func(h *Handler) { h.Timeout = 3 * time.Second }
	draining := func(h *Handler) {
		h.Drainer = new(Drainer)
		if err := h.Drainer.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, tt := range []struct {
		name       string
		text, more string
		prepare    func(*Handler)
		status     int
		after      time.Duration
		error      string
	}{
		{"nothing comes", announced("POST", len(payoutPush)), "", nil, 408, BodyTimeout, textSlow},
		{"it stops", announced("POST", len(payoutPush)) + half, "", nil, 408, BodyTimeout, textSlow},
		{"it drips", announced("POST", len(payoutPush)), payoutPush, nil, 408, BodyTimeout, textSlow},
		{"it outlasts the budget", announced("POST", len(payoutPush)), payoutPush, short, 408, 3 * time.Second, textSlow},
		{"a chunk stops", chunked + "40\r\n" + half[:20], "", nil, 408, BodyTimeout, textSlow},
		{"no chunk comes", chunked, "", nil, 408, BodyTimeout, textSlow},
		{"chunks drip", chunked, strings.Repeat("1\r\n \r\n", 50), nil, 408, BodyTimeout, textSlow},
		{"the last chunk does not come", chunked + "2\r\n{}\r\n", "", nil, 408, BodyTimeout, textSlow},
		{"the size of a chunk does not end", chunked, strings.Repeat("0", 50), nil, 408, BodyTimeout, textSlow},
		{"not a POST", announced("PUT", 10), "", nil, 405, BodyTimeout, textMethod},
		{"not a POST, chunked", strings.Replace(chunked, "POST", "DELETE", 1), "", nil, 405, BodyTimeout, textMethod},
		{"while draining", announced("POST", 10), "", draining, 503, BodyTimeout, textDraining},
		{"over 16 MiB is not waited for", announced("POST", MaxBodyBytes+1), "", nil, 413, 0, textBodySize},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := realTime(unused(t))
				if tt.prepare != nil {
					tt.prepare(h)
				}
				caller, began := connect(t, h), time.Now()
				sendSlowly(t, caller, tt.text, tt.more)
				status, body, took := answered(t, caller, began)
				if status != tt.status || !strings.Contains(body, tt.error) || took != tt.after {
					t.Errorf("%d %s after %v, want %d %s after %v", status, body, took, tt.status, tt.error, tt.after)
				}
			})
		})
	}
}

func TestSlowBodyAfterContinue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		caller, began := connect(t, realTime(unused(t))), time.Now()
		sendSlowly(t, caller, "POST / HTTP/1.1\r\nHost: f\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n", "")
		reader := bufio.NewReader(caller)
		for _, want := range []int{http.StatusContinue, http.StatusRequestTimeout} {
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != want {
				t.Errorf("status %d, want %d", response.StatusCode, want)
			}
			_ = response.Body.Close() // on a connection of our own it closes nothing
		}
		if took := time.Since(began); took != BodyTimeout {
			t.Errorf("after %v", took)
		}
	})
}

func TestSlowBodyOfAReconcilerRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &Handler{Work: Reconcile(nil), Log: NewLogger(io.Discard, 0), Now: time.Now}
		caller, began := connect(t, h), time.Now()
		sendSlowly(t, caller, announced("POST", 10), "{")
		if status, body, took := answered(t, caller, began); status != 408 || took != BodyTimeout {
			t.Errorf("%d %s after %v", status, body, took)
		}
	})
}

// The platform's time limit for a request can be shorter.
func TestSlowBodyEndsWithTheRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := realTime(unused(t))
		caller, began := connect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
			defer cancel()
			h.ServeHTTP(w, r.WithContext(ctx))
		})), time.Now()
		sendSlowly(t, caller, announced("POST", 10), "")
		if status, body, took := answered(t, caller, began); status != 408 || took != 3*time.Second {
			t.Errorf("%d %s after %v", status, body, took)
		}
	})
}

// A delivery may take longer than BodyTimeout, and the connection serves later requests.
func TestBodyTimeoutEndsWithTheBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := realTime(delivererFunc(func(ctx context.Context, _ settle.Delivery) (settle.Result, error) {
			time.Sleep(3 * BodyTimeout)
			return settle.Result{Outcome: settle.OutcomeApplied}, ctx.Err()
		}))
		caller := connect(t, h)
		reader := bufio.NewReader(caller)
		for range 2 {
			for _, request := range []string{announced("POST", 0), announced("POST", len(payoutPush)) + payoutPush, chunked + "2\r\n{}\r\n0\r\n\r\n"} {
				sendSlowly(t, caller, request, "")
				response, err := http.ReadResponse(reader, nil)
				if err != nil {
					t.Fatal(err)
				}
				if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != 200 {
					t.Errorf("%d %s %v", response.StatusCode, body, err)
				}
				_ = response.Body.Close() // likewise
				time.Sleep(time.Hour)
			}
		}
	})
}

// Otherwise a delivery with a slow body could exceed the ack deadline.
func TestBudgetIncludesTheBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := realTime(delivererFunc(func(ctx context.Context, _ settle.Delivery) (settle.Result, error) {
			<-ctx.Done()
			return settle.Result{}, ctx.Err()
		}))
		h.Timeout = 12 * time.Second
		caller, began := connect(t, h), time.Now()
		sendSlowly(t, caller, announced("POST", 8), "12345678")
		if status, body, took := answered(t, caller, began); status != 500 || !strings.Contains(body, textDeadline) || took != h.Timeout {
			t.Errorf("%d %s after %v, want 500 after %v", status, body, took, h.Timeout)
		}
	})
}

// A caller that does not read its answer must not block the instance's shutdown.
func TestUnreadAnswersTimeOut(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]func(*Drainer) http.Handler{
		"delivery": func(d *Drainer) http.Handler {
			h := realTime(gives(settle.Result{Outcome: settle.OutcomeApplied}, nil))
			h.Drainer = d
			return h
		},
		"run": func(d *Drainer) http.Handler {
			run := func(context.Context) (transfer.Reconciled, error) { return transfer.Reconciled{}, errors.New("x") }
			return &Handler{Work: Reconcile(runs(run)), Log: NewLogger(io.Discard, 0), Now: time.Now, Drainer: d}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				drainer := new(Drainer)
				caller, began := connect(t, handler(drainer)), time.Now()
				sendSlowly(t, caller, announced("POST", len(payoutPush))+payoutPush, "")
				synctest.Wait()
				if err := drainer.Drain(t.Context()); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took != answerTimeout {
					t.Errorf("request ended after %v, want %v", took, answerTimeout)
				}
			})
		})
	}
}

// runs is a reconciler that is a function.
type runs func(context.Context) (transfer.Reconciled, error)

func (f runs) Reconcile(ctx context.Context) (transfer.Reconciled, error) { return f(ctx) }
