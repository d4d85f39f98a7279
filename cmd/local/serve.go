package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"

	_ "github.com/settleonce/settleonce" // registers the functions with the framework
)

const (
	pathSettle    = "/SettlePayout"
	pathReconcile = "/ReconcileBank"

	// readyLimit bounds the wait for the functions' server.
	readyLimit = 10 * time.Second
	// headLimit bounds the reading of a request's header.
	headLimit = 10 * time.Second
	anyPort   = "127.0.0.1:0"
)

// loopback is the client for servers of this machine. It ignores proxy variables.
var loopback = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute}}

// listenLocal listens on an IPv4 loopback address: the servers here authenticate no
// caller.
func listenLocal(ctx context.Context, listen string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host).To4(); err != nil || ip == nil || !ip.IsLoopback() {
		return nil, usageError(fmt.Errorf("--listen is %q; use 127.0.0.1:PORT, with port 0 for a free one", listen))
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp4", listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w; end the program that listens there, or choose another port with --listen 127.0.0.1:PORT (0: a free one)", listen, err)
	}
	return l, nil
}

// serveFunctions serves the functions under the Functions Framework on l's address,
// and returns when they answer. It closes l, because the framework accepts no
// listener. The framework cannot be stopped: it ends with the process.
func (sys *system) serveFunctions(ctx context.Context, l net.Listener) error {
	address := l.Addr().String()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	_ = l.Close()
	go func() {
		err := funcframework.StartHostPort(host, port)
		sys.failed <- fmt.Errorf("serve the functions on %s: %w", address, err)
	}()
	sys.functionsURL = "http://" + address
	return sys.awaitFunctions(ctx)
}

// awaitFunctions returns when the functions' server answers. It requests a path of
// no function, so that no function logs the request.
func (sys *system) awaitFunctions(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyLimit, fmt.Errorf("no answer from %s within %s", sys.functionsURL, readyLimit))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, sys.functionsURL+"/", nil)
	if err != nil {
		return fmt.Errorf("start the functions: %w", err)
	}
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		resp, err := loopback.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		select {
		case err := <-sys.failed: // a server of another program may have answered
			return err
		case <-ctx.Done():
			return fmt.Errorf("start the functions: %w", context.Cause(ctx))
		case <-poll.C:
			if err == nil {
				return nil
			}
		}
	}
}

// serveLocal serves handler on a free port.
func serveLocal(ctx context.Context, handler http.Handler) (server *http.Server, url string, err error) {
	l, err := listenLocal(ctx, anyPort)
	if err != nil {
		return nil, "", err
	}
	server = &http.Server{Handler: handler, ReadHeaderTimeout: headLimit}
	go func() { _ = server.Serve(l) }() // ends with Shutdown or Close
	return server, "http://" + l.Addr().String(), nil
}
