package emulator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// loopback is the only interface that emulators listen on.
const loopback = "127.0.0.1"

const (
	// programLimit is how long a program may take to answer. It is generous: a busy
	// continuous integration machine runs many at once.
	programLimit = time.Minute
	// imageLimit covers the pull of a container image as well.
	imageLimit = 10 * time.Minute
	// attempts is how often an emulator that ends before it answers is started
	// again, since ports are the likeliest reason.
	attempts = 3
)

// launcher is one way to run one of the emulators on this machine.
type launcher struct {
	source string        // for people: what is started
	image  bool          // program is docker, and args run a container
	limit  time.Duration // for the start
	ports  int           // how many ports it serves; the first is the gRPC one

	program string
	// args are the program's arguments; container is the name to run under, empty
	// for a program.
	args func(ports []int, container string) []string
	// answers reports whether the emulator serves requests on the ports, by real ones.
	answers func(ctx context.Context, ports []int) error
}

// start runs the emulator and returns once it answers.
func (l launcher) start(ctx context.Context, cfg config) (*process, error) {
	pick := func(ctx context.Context) ([]int, error) { return freePorts(ctx, l.ports, cfg.port) }
	unlock, err := lockStarts(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, l.limit, fmt.Errorf("no answer within %s", l.limit))
	defer cancel()
	p, err := l.retry(ctx, cfg, pick)
	if err != nil {
		return nil, fmt.Errorf("run it with the %s: %w", l.source, err)
	}
	return p, nil
}

// retry starts the emulator until it answers, each time on ports that pick chooses.
func (l launcher) retry(ctx context.Context, cfg config, pick func(context.Context) ([]int, error)) (*process, error) {
	for attempt := 1; ; attempt++ {
		ports, err := pick(ctx)
		if err != nil {
			return nil, err
		}
		p, err := l.once(ctx, cfg, ports)
		if err == nil || !errors.Is(err, errEnded) || attempt == attempts {
			return p, err
		}
	}
}

// once starts the emulator on the given ports and waits until it answers or ends.
func (l launcher) once(ctx context.Context, cfg config, ports []int) (*process, error) {
	var container string
	if l.image {
		container = "settleonce-emulator-" + strings.ToLower(rand.Text())
	}
	p, err := startProcess(ctx, cfg.output, ports, container, l.program, l.args(ports, container)...)
	if err != nil {
		return nil, err
	}
	if err := l.await(ctx, p); err != nil {
		return nil, errors.Join(err, p.close()) //nolint:contextcheck // it ends what ctx, perhaps done by now, was given for
	}
	return p, nil
}

// await returns when the emulator answers, ends, or ctx is done.
func (l launcher) await(ctx context.Context, p *process) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // so that a request that hangs does not hide the emulator's end
		select {
		case <-p.done:
			cancel(p.err())
		case <-ctx.Done():
		}
	}()
	err := poll(ctx, func(ctx context.Context) error { return l.answers(ctx, p.ports) })
	switch {
	case p.err() != nil:
		return p.err()
	case err != nil:
		return p.withLog(err)
	default:
		return nil
	}
}

// freePorts returns n different ports of 127.0.0.1 that nothing listens on. The
// first is fixed unless that is 0.
func freePorts(ctx context.Context, n, fixed int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", address(fixed))
		if err != nil && fixed != 0 {
			return nil, fmt.Errorf("take port %d, which must be free: %w", fixed, err)
		}
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // all at the end, so that they differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		fixed = 0
	}
	return ports, nil
}

// portsFree reports whether all ports can be listened on.
func portsFree(ctx context.Context, ports []int) error {
	for _, port := range ports {
		if _, err := freePorts(ctx, 1, port); err != nil {
			return err
		}
	}
	return nil
}

// address is host:port of a port of 127.0.0.1.
func address(port int) string {
	return net.JoinHostPort(loopback, strconv.Itoa(port))
}

// lockStarts waits until no other process of this user is starting an emulator.
// The kernel releases the lock if this process dies.
func lockStarts(ctx context.Context) (unlock func(), err error) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("settleonce-emulator-%d.lock", os.Getuid()))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600) //nolint:gosec // a fixed name
	if err != nil {
		return nil, fmt.Errorf("open the lock on emulator starts: %w", err)
	}
	err = poll(ctx, func(context.Context) error {
		return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	})
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("wait for other emulator starts (lock %s): %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}
