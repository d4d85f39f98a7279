package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/settleonce/settleonce/internal/test/bench/contender"
)

// module is the path of this module.
const module = "github.com/settleonce/settleonce"

// function is a program that serves a function.
type function struct {
	name        string // in the tables
	path        string
	environment []string
}

// goCommand runs the Go command and returns its output.
func goCommand(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}

const startLimit = time.Minute

// serve starts the program, calls use with its URL when it listens, and stops it. It
// returns the program's output.
func (f *function) serve(ctx context.Context, goDebug string, use func(ctx context.Context, url string) error) (output string, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	port, err := contender.FreePort(ctx)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, f.path)
	// GOGC as in deploy/, for all programs.
	cmd.Env = append([]string{
		"GOGC=400", "GODEBUG=" + goDebug, "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
		"PORT=" + port, "LOCAL_ONLY=true", "K_SERVICE=benchmark",
	}, f.environment...)
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	if err := cmd.Start(); err != nil {
		return "", err
	}
	address := net.JoinHostPort("127.0.0.1", port)
	if err = awaitListening(ctx, address); err == nil {
		err = use(ctx, "http://"+address)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	_ = cmd.Wait()                          // ended by the signal
	if err != nil {
		err = fmt.Errorf("function %q: %w\n%s", f.name, err, both.String())
	}
	return both.String(), err
}

func awaitListening(ctx context.Context, address string) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// eventarc is the header of an event as Eventarc delivers it.
var eventarc = http.Header{
	"Content-Type": {"application/json"}, "Ce-Id": {"1"}, "Ce-Source": {"//pubsub.googleapis.com/projects/p/topics/payouts"},
	"Ce-Specversion": {"1.0"}, "Ce-Type": {"google.cloud.pubsub.topic.v1.messagePublished"}, "Ce-Time": {"2026-11-29T12:00:00.000Z"},
}

// envelope wraps a payload as Pub/Sub does.
func envelope(payload []byte) string {
	return fmt.Sprintf(`{"message":{"data":%q,"messageId":"1","publishTime":"2026-11-29T12:00:00Z"},"subscription":"projects/p/subscriptions/s"}`,
		base64.StdEncoding.EncodeToString(payload))
}

// post sends a request and returns the answer, which must have status 200.
func post(ctx context.Context, url string, header http.Header, body string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header, request.Close = header, true // the only request of its connection
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	const limit = 64 << 10
	answer, err := io.ReadAll(io.LimitReader(response.Body, limit))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("answer %s: %s", response.Status, answer)
	}
	return string(answer), err
}
