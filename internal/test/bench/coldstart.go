package bench

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

	"github.com/settleonce/settleonce/internal/test/bench/contender"
)

func (l *lab) coldStartSteps() int { return 3 + 3*l.Sizes.Starts }

// measureColdStart starts the function, one that reads a row of Spanner and one that
// does nothing, in turn, each in a process of its own, and times the answer to the
// first event.
func (l *lab) measureColdStart(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "settleonce-coldstart-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	function, err := l.build(ctx, dir, "function")
	if err != nil {
		return err
	}
	empty, err := l.build(ctx, dir, "empty")
	if err != nil {
		return err
	}
	reader, err := l.build(ctx, dir, "spanner")
	if err != nil {
		return err
	}
	c, err := contender.Find(Baseline)
	if err != nil {
		return err
	}
	a, err := l.arena(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.drop(ctx)) }()
	function.environment = []string{
		"FUNCTION_TARGET=SettlePayout", "K_SERVICE=settle-payout", "DEFAULT_CURRENCY=USD",
		"SPANNER_DATABASE=" + a.database, "SPANNER_EMULATOR_HOST=" + l.emulator.GRPC,
	}
	function.want = `"outcome":"applied"`
	reader.environment = []string{
		"FUNCTION_TARGET=ReadOneRow", "K_SERVICE=read-one-row", "SPANNER_DATABASE=" + a.database, "SPANNER_EMULATOR_HOST=" + l.emulator.GRPC,
	}
	empty.environment = []string{"FUNCTION_TARGET=Nothing", "K_SERVICE=nothing"}
	for range l.Sizes.Starts {
		for _, p := range []*program{function, reader, empty} {
			if err := p.coldStart(ctx, l.message()); err != nil {
				return err
			}
			l.Progress.Step()
		}
	}
	result := &ColdStart{Ratio: ratios(function.answered, empty.answered), RatioSpanner: ratios(function.answered, reader.answered)}
	for _, p := range []*program{function, reader, empty} {
		result.Programs = append(result.Programs, Program{
			Name: p.name, Listening: summarise(p.listening), Answered: summarise(p.answered), Megabytes: p.megabytes, Packages: p.packages,
		})
	}
	result.Inits, err = function.traceInits(ctx)
	l.report.ColdStart = result
	return err
}

// program is a function that was built.
type program struct {
	name        string
	path        string
	megabytes   float64
	packages    int
	environment []string
	want        string // what the first answer has in it

	listening, answered []float64 // milliseconds after the start
}

func (l *lab) build(ctx context.Context, dir, name string) (*program, error) {
	p := &program{name: name, path: filepath.Join(dir, name)}
	source := "./internal/test/bench/coldstart/" + name
	if _, err := l.goCommand(ctx, "build", "-o", p.path, source); err != nil {
		return nil, err
	}
	info, err := os.Stat(p.path)
	if err != nil {
		return nil, err
	}
	p.megabytes = float64(info.Size()) / 1e6
	list, err := l.goCommand(ctx, "list", "-deps", source)
	if err != nil {
		return nil, err
	}
	p.packages = len(strings.Fields(list))
	l.Progress.Step()
	return p, nil
}

func (l *lab) goCommand(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = l.Module
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}

// startLimit bounds a start.
const startLimit = time.Minute

// coldStart starts the program, delivers a payout as soon as it listens, and ends it.
func (p *program) coldStart(ctx context.Context, message []byte) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	cmd := p.command(ctx, port)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // an error means that it is gone
		_ = cmd.Wait()                          // ended by the signal
		if err != nil {
			err = fmt.Errorf("start %s: %w\n%s", filepath.Base(p.path), err, output.String())
		}
	}()
	address := net.JoinHostPort("127.0.0.1", port)
	if err := awaitListening(ctx, address); err != nil {
		return err
	}
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
}

func (p *program) command(ctx context.Context, port string, more ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.path)
	// GOGC is as deploy/ sets it: for all of them, so that it makes no difference.
	environment := []string{"GOGC=400", "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "PORT=" + port, "LOCAL_ONLY=true"}
	cmd.Env = slices.Concat(environment, p.environment, more)
	return cmd
}

// traceInits starts the program once more and returns what initialising its packages
// takes, those of this module first and then the greatest, as Go's runtime tells it.
func (p *program) traceInits(ctx context.Context) ([]Init, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	cmd := p.command(ctx, port, "GODEBUG=inittrace=1")
	var output bytes.Buffer
	cmd.Stderr = &output
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	err = awaitListening(ctx, net.JoinHostPort("127.0.0.1", port))
	_ = cmd.Process.Kill() // an error means that it is gone
	_ = cmd.Wait()         // killed
	if err != nil {
		return nil, err
	}
	return readInits(output.String()), nil
}

// mostInits is how many packages are told apart.
const mostInits = 8

// ownInits is the name under which this module's packages are added up, otherInits
// that of what is left.
const (
	ownInits   = "this module"
	otherInits = "all others"
)

// readInits reads lines such as "init net/http @19 ms, 0.02 ms clock, 4712 bytes, 49 allocs".
func readInits(trace string) []Init {
	own, rest, others := Init{Package: ownInits}, Init{Package: otherInits}, []Init{}
	for line := range strings.Lines(trace) {
		var (
			one       Init
			at, bytes float64
		)
		n, _ := fmt.Sscanf(line, "init %s @%f ms, %f ms clock, %f bytes, %d allocs", &one.Package, &at, &one.Millis, &bytes, &one.Allocations)
		switch {
		case n != 5: // another line
		case strings.HasPrefix(one.Package, "github.com/settleonce/settleonce"):
			own.Millis += one.Millis
			own.Allocations += one.Allocations
		default:
			others = append(others, one)
		}
	}
	slices.SortFunc(others, func(a, b Init) int { return cmp.Compare(b.Millis, a.Millis) })
	shown := min(mostInits, len(others))
	for _, one := range others[shown:] {
		rest.Millis += one.Millis
		rest.Allocations += one.Allocations
	}
	return append(append([]Init{own}, others[:shown]...), rest)
}

func freePort(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, err
}

// listenPoll is the pause between two attempts to connect.
const listenPoll = time.Millisecond

func awaitListening(ctx context.Context, address string) error {
	tick := time.NewTicker(listenPoll)
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
	request.Close = true // nothing more will be asked
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, answerBytes))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("answer %s: %s", response.Status, text)
	}
	return string(text), err
}

// answerBytes bounds what is read of an answer.
const answerBytes = 64 << 10
