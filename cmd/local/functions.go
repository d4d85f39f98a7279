package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"
	"github.com/google/uuid"

	_ "github.com/settleonce/settleonce" // registers the functions with the framework
	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

const (
	pathSettle    = "/SettlePayout"
	pathReconcile = "/ReconcileBank"
	pathPublish   = "/publish"

	// readyLimit bounds the wait for a server in this process.
	readyLimit = 10 * time.Second
	headLimit  = 10 * time.Second

	// reconcileLimit bounds one run of ReconcileBank in memory, reconcileAtOnce its
	// steps at a time.
	reconcileLimit  = 1000
	reconcileAtOnce = 16
)

// functions is a server that serves both functions.
type functions struct {
	base string // its URL, without a slash at the end
	// mux routes the requests in memory; nil under the framework, which has its own.
	mux    *http.ServeMux
	failed chan error // gets the server's error if it ends by itself
	close  func(context.Context) error
	abort  func() error // ends a server of this program at once
}

// serveFramework serves the registered functions as the cloud does. The
// framework cannot be told to stop: it ends with the process.
func serveFramework(ctx context.Context, listen string) (*functions, error) {
	// The framework does not tell the port it got, so it is given one that is free.
	l, err := listenLocal(ctx, listen)
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	_ = l.Close()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", listen, err)
	}
	f := &functions{
		base: "http://" + address, failed: make(chan error, 1),
		close: func(context.Context) error { return nil },
	}
	go func() {
		err := funcframework.StartHostPort(host, port)
		f.failed <- fmt.Errorf("serve the functions on %s: %w", address, err)
	}()
	return f, f.awaitReady(ctx)
}

// awaitReady returns when the server answers. It asks for a path that no
// function has, so that none of them counts or logs the request.
func (f *functions) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyLimit, fmt.Errorf("no answer from %s within %s", f.base, readyLimit))
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if answers(ctx, f.base+"/") {
			select {
			case err := <-f.failed: // then somebody else answered
				return err
			default:
				return nil
			}
		}
		select {
		case err := <-f.failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("start the functions: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

func answers(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := loopback.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return true
}

// serveInMemory serves the same handlers on a store in memory. The framework has
// no part in it: its registry holds the functions that want Spanner.
func (sys *system) serveInMemory(ctx context.Context, listen string, s streams) (*functions, error) {
	store, cfg, now := sys.memory, sys.cfg, sys.clock.Now
	log := event.NewLogger(s.err, cfg.LogLevel)
	banking, err := newStepper(store, *cfg.Bank, now, log)
	if err != nil {
		return nil, err
	}
	l, err := listenLocal(ctx, listen)
	if err != nil {
		return nil, err
	}
	service := &settle.Service{Store: store, Banking: banking, DefaultCurrency: cfg.DefaultCurrency, NewID: uuid.NewString, Now: now}
	reconciler := &transfer.Reconciler{Store: store, Banking: banking, Now: now, Limit: reconcileLimit, Concurrency: reconcileAtOnce}
	mux := http.NewServeMux()
	mux.Handle(pathSettle, &event.Handler{Work: event.Settle(service), Log: log, Now: time.Now, Timeout: cfg.SettleTimeout})
	// No time limit: it would be one of the machine's clock, and the reconciler compares it with its own.
	mux.Handle(pathReconcile, &event.Handler{Work: event.Reconcile(reconciler), Log: log, Now: time.Now})
	f := serveLocal(l, mux)
	f.mux = mux
	return f, f.awaitReady(ctx)
}

// serveLocal serves handler on l until it is closed.
func serveLocal(l net.Listener, handler http.Handler) *functions {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: headLimit}
	f := &functions{base: "http://" + l.Addr().String(), failed: make(chan error, 1), abort: server.Close}
	f.close = func(ctx context.Context) error {
		// Shutdown waits seconds for the first request of a connection that was dialled in vain.
		loopback.CloseIdleConnections()
		return server.Shutdown(ctx)
	}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			f.failed <- fmt.Errorf("serve on %s: %w", l.Addr(), err)
		}
	}()
	return f
}

// listenLocal listens on an address that only this machine reaches: nothing here
// asks who is calling.
func listenLocal(ctx context.Context, listen string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host).To4(); err != nil || ip == nil || !ip.IsLoopback() {
		return nil, usageError{fmt.Errorf("--listen is %q; give 127.0.0.1:PORT, with port 0 for a free one", listen)}
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp4", listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w; end what listens there, or choose another port with --listen 127.0.0.1:PORT (0: a free one)", listen, err)
	}
	return l, nil
}

// loopback is the client for servers on this machine. A proxy of the environment
// has no business here.
var loopback = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute}}
