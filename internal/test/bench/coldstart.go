package main

import (
	"bytes"
	"cmp"
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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/settleonce/settleonce/internal/test/bench/pgcluster"
	"github.com/settleonce/settleonce/internal/test/bench/report"
)

// module is the path of this module.
const module = "github.com/settleonce/settleonce"

// program is the program of a function.
type program struct {
	name        string // below coldstart/
	path        string
	environment []string
	want        string // part of the first answer

	listening, answered []float64 // milliseconds after the start
}

// programNames are the names in the tables.
var programNames = map[string]string{
	"function": "SettlePayout, first settled event", "spanner": "opens the client, reads one row", "empty": "does nothing",
}

// measureColdStart starts the function, one that reads a row of Spanner, and an empty one
// in turn, each in a new process, and measures the time to the first answer.
func (r *run) measureColdStart(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "settleonce-coldstart-")
	if err != nil {
		return err
	}
	return errors.Join(r.withDatabase(ctx, r.contenders[0], func(f *fixture) error { return f.coldStart(ctx, dir) }), os.RemoveAll(dir))
}

func (f *fixture) coldStart(ctx context.Context, dir string) error {
	spanner := []string{"SPANNER_DATABASE=" + f.database, "SPANNER_EMULATOR_HOST=" + f.run.emulator.GRPC}
	function := &program{name: "function", want: `"outcome":"applied"`, environment: append([]string{"FUNCTION_TARGET=SettlePayout", "DEFAULT_CURRENCY=USD"}, spanner...)}
	programs := []*program{
		function,
		{name: "spanner", environment: append([]string{"FUNCTION_TARGET=ReadOneRow"}, spanner...)},
		{name: "empty", environment: []string{"FUNCTION_TARGET=Nothing"}},
	}
	for _, p := range programs {
		if err := f.run.build(ctx, p, dir); err != nil {
			return err
		}
	}
	for range f.run.sizes.starts {
		for _, p := range programs {
			if err := p.coldStart(ctx, f.run.message()); err != nil {
				return err
			}
		}
	}
	for _, p := range programs {
		set := func(column string, c report.Cell) {
			f.run.report.Table(titleColdStart).Set(column, c, programNames[p.name])
		}
		set("listening, ms", report.Figure(p.listening...))
		set("first answer, ms", report.Figure(p.answered...))
		if p != function {
			set("ratio", report.Cell{Figure: report.Ratios(function.answered, p.answered)})
		}
	}
	trace, err := function.start(ctx, "inittrace=1", func(context.Context, string) error { return nil })
	for _, one := range readInits(trace) {
		f.run.report.Table(titleInits).Set("ms", report.Figure(one.millis), one.name)
		f.run.report.Table(titleInits).Set("allocations", report.Figure(float64(one.allocations)), one.name)
	}
	return err
}

// build builds a program in dir, and reports its size and packages.
func (r *run) build(ctx context.Context, p *program, dir string) error {
	p.path = filepath.Join(dir, p.name)
	source := module + "/internal/test/bench/coldstart/" + p.name
	if _, err := goCommand(ctx, "build", "-o", p.path, source); err != nil {
		return err
	}
	info, err := os.Stat(p.path)
	if err != nil {
		return err
	}
	packages, err := goCommand(ctx, "list", "-deps", source)
	if err != nil {
		return err
	}
	t, name := r.report.Table(titleColdStart), programNames[p.name]
	t.Set("program, MB", report.Figure(float64(info.Size())/1e6), name)
	t.Set("packages", report.Figure(float64(len(strings.Fields(packages)))), name)
	return nil
}

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

// coldStart starts the program and delivers a payout as soon as it listens.
func (p *program) coldStart(ctx context.Context, message []byte) error {
	began := time.Now()
	output, err := p.start(ctx, "", func(ctx context.Context, address string) error {
		listening := time.Since(began)
		answer, err := deliver(ctx, "http://"+address, message)
		if err != nil {
			return err
		}
		if !strings.Contains(answer, p.want) {
			return fmt.Errorf("answer %s", answer)
		}
		p.listening = append(p.listening, millis(listening))
		p.answered = append(p.answered, millis(time.Since(began)))
		return nil
	})
	if err != nil {
		return fmt.Errorf("start %s: %w\n%s", p.name, err, output)
	}
	return nil
}

// start starts the program, calls use when it listens, and stops it.
func (p *program) start(ctx context.Context, goDebug string, use func(ctx context.Context, address string) error) (output string, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	host, port, err := pgcluster.FreePort(ctx)
	if err != nil {
		return "", err
	}
	address := net.JoinHostPort(host, port)
	cmd := exec.CommandContext(ctx, p.path)
	// GOGC as in deploy/, for all programs.
	cmd.Env = append([]string{
		"GOGC=400", "GODEBUG=" + goDebug, "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
		"PORT=" + port, "LOCAL_ONLY=true", "K_SERVICE=" + p.name,
	}, p.environment...)
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	if err := cmd.Start(); err != nil {
		return "", err
	}
	if err = awaitListening(ctx, address); err == nil {
		err = use(ctx, address)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	_ = cmd.Wait()                          // ended by the signal
	return both.String(), err
}

// initialisation is that of a package or of several.
type initialisation struct {
	name        string
	millis      float64
	allocations int
}

func (i *initialisation) add(other initialisation) {
	i.millis += other.millis
	i.allocations += other.allocations
}

// separateInits is the number of packages with their own row.
const separateInits = 8

// readInits reads lines such as "init net/http @19 ms, 0.02 ms clock, 4712 bytes, 49 allocs".
// It returns this module's packages together, then the slowest others, then the rest.
func readInits(trace string) []initialisation {
	own, rest, others := initialisation{name: "this module"}, initialisation{name: "all others"}, []initialisation{}
	for line := range strings.Lines(trace) {
		var (
			one       initialisation
			at, bytes float64
		)
		n, _ := fmt.Sscanf(line, "init %s @%f ms, %f ms clock, %f bytes, %d allocs", &one.name, &at, &one.millis, &bytes, &one.allocations)
		switch {
		case n != 5: // another line
		case strings.HasPrefix(one.name, module):
			own.add(one)
		default:
			others = append(others, one)
		}
	}
	slices.SortFunc(others, func(a, b initialisation) int { return cmp.Compare(b.millis, a.millis) })
	shown := min(separateInits, len(others))
	for _, one := range others[shown:] {
		rest.add(one)
	}
	return slices.Concat([]initialisation{own}, others[:shown], []initialisation{rest})
}

func awaitListening(ctx context.Context, address string) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			conn.Close()
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// deliver delivers a payout as Eventarc does, and returns the answer.
func deliver(ctx context.Context, url string, message []byte) (string, error) {
	body := fmt.Sprintf(`{"message":{"data":%q,"messageId":"1","publishTime":"2026-11-29T12:00:00Z"},"subscription":"projects/p/subscriptions/s"}`,
		base64.StdEncoding.EncodeToString(message))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header = http.Header{
		"Content-Type": {"application/json"}, "Ce-Id": {"1"}, "Ce-Source": {"//pubsub.googleapis.com/projects/p/topics/payouts"},
		"Ce-Specversion": {"1.0"}, "Ce-Type": {"google.cloud.pubsub.topic.v1.messagePublished"}, "Ce-Time": {"2026-11-29T12:00:00.000Z"},
	}
	request.Close = true // the only request
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
