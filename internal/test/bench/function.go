package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
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
	source      string // below coldstart/
	path        string // once it is built
	environment []string
}

// settlePayout returns the real function with the given database.
func (r *run) settlePayout(database string) *function {
	return &function{name: functionSettle, source: "settle", environment: []string{
		"FUNCTION_TARGET=SettlePayout", "DEFAULT_CURRENCY=USD", "SPANNER_DATABASE=" + database, "SPANNER_EMULATOR_HOST=" + r.emulator.GRPC,
	}}
}

// withPrograms calls use with a directory for programs and a database of Settle Once.
func (r *run) withPrograms(ctx context.Context, use func(dir, database string) error) error {
	dir, err := os.MkdirTemp("", "settleonce-bench-")
	if err != nil {
		return err
	}
	return errors.Join(r.withDatabase(ctx, r.contenders[0], func(database string) error { return use(dir, database) }), os.RemoveAll(dir))
}

// sources is the path of the programs' packages.
const sources = module + "/internal/test/bench/coldstart/"

// build builds the program in a directory.
func (f *function) build(ctx context.Context, dir string) error {
	f.path = filepath.Join(dir, f.source)
	_, err := goCommand(ctx, "build", "-o", f.path, sources+f.source)
	return err
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

// served is the use of resources by a process that has ended.
type served struct {
	cpu  time.Duration // user and system
	peak float64       // bytes of resident memory
}

const startLimit = time.Minute

// serve starts the program, calls use with its URL when it listens, and stops it.
func (f *function) serve(ctx context.Context, use func(ctx context.Context, url string) error) (s served, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	port, err := contender.FreePort(ctx)
	if err != nil {
		return served{}, err
	}
	cmd := exec.CommandContext(ctx, f.path)
	// GOGC as in deploy/, for all programs.
	cmd.Env = append([]string{
		"GOGC=400", "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "PORT=" + port, "LOCAL_ONLY=true",
	}, f.environment...)
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	if err := cmd.Start(); err != nil {
		return served{}, err
	}
	address := net.JoinHostPort("127.0.0.1", port)
	if err = awaitListening(ctx, address); err == nil {
		err = use(ctx, "http://"+address)
	}
	peak, peakErr := peakMemory(cmd.Process.Pid)
	_ = cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	_ = cmd.Wait()                          // ended by the signal
	if err = errors.Join(err, peakErr); err != nil {
		return served{}, fmt.Errorf("function %q: %w\n%s", f.name, err, both.String())
	}
	return served{cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), peak}, nil
}

// peakMemory reads the peak of a process's resident memory in bytes.
func peakMemory(pid int) (bytes float64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	_, err = fmt.Sscanf(rest, "%f kB", &bytes)
	return bytes * 1024, err
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
func envelope(payload []byte) []byte {
	return fmt.Appendf(nil, `{"message":{"data":%q,"messageId":"1","publishTime":"2026-11-29T12:00:00Z"},"subscription":"projects/p/subscriptions/s"}`,
		base64.StdEncoding.EncodeToString(payload))
}

// post sends a request and returns the answer's status and text.
func post(ctx context.Context, url string, header http.Header, body []byte) (status, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return "", "", err
	}
	request.Header, request.Close = header.Clone(), true // the only request of its connection
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", "", err
	}
	defer response.Body.Close()
	const limit = 64 << 10
	answer, err := io.ReadAll(io.LimitReader(response.Body, limit))
	return response.Status, string(answer), err
}
