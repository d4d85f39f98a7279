package emulator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// loopback is the only interface that emulators listen on.
const loopback = "127.0.0.1"

const (
	// programLimit bounds the start of a program. It is generous: a continuous
	// integration machine starts many at once.
	programLimit = time.Minute
	// imageLimit includes the pull of a container image.
	imageLimit = 10 * time.Minute
	// attempts bounds the starts of an emulator that exits before it answers, usually
	// because another program took its port.
	attempts = 3
)

// launcher runs one of the emulators on this machine.
type launcher struct {
	source    string // see Process.Source
	limit     time.Duration
	ports     int // number of ports, gRPC first
	program   string
	args      func(ports []int) []string
	container string // name of the container that program runs; empty for none
	answers   func(ctx context.Context, hosts []string) error
}

// start runs the emulator and returns once it answers.
func (l launcher) start(ctx context.Context, cfg settings) (*Process, error) {
	unlock, err := lockStarts(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, l.limit, fmt.Errorf("no answer within %s", l.limit))
	defer cancel()
	if cfg.faultInjection {
		args := l.args
		l.args = func(ports []int) []string { return append(args(ports), "--enable_fault_injection") }
	}
	return l.retry(ctx, func(ctx context.Context) ([]int, error) { return freePorts(ctx, l.ports, cfg.port) })
}

// retry starts the emulator until it answers, each time on the ports from pick.
func (l launcher) retry(ctx context.Context, pick func(context.Context) ([]int, error)) (*Process, error) {
	for attempt := 1; ; attempt++ {
		ports, err := pick(ctx)
		if err != nil {
			return nil, err
		}
		p, err := l.once(ctx, ports)
		if err == nil || !errors.Is(err, errEnded) || attempt == attempts {
			return p, err
		}
	}
}

// once starts the emulator on the ports and waits until it answers or ends.
func (l launcher) once(ctx context.Context, ports []int) (*Process, error) {
	p, err := startProcess(ctx, ports, l.container, l.program, l.args(ports)...)
	if err != nil {
		return nil, err
	}
	p.Source = l.source
	if err := l.await(ctx, p); err != nil {
		return nil, errors.Join(err, p.Close()) //nolint:contextcheck // it also has to end the processes once ctx is done
	}
	return p, nil
}

// await returns when the emulator answers, ends, or ctx is done.
func (l launcher) await(ctx context.Context, p *Process) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // ends a hanging probe when the emulator ends
		select {
		case <-p.done:
			cancel(errEnded)
		case <-ctx.Done():
		}
	}()
	err := poll(ctx, func(ctx context.Context) error { return l.answers(ctx, p.hosts) })
	select {
	case <-p.done:
		return p.withLog(errEnded)
	default:
	}
	if err != nil {
		return p.withLog(err)
	}
	return nil
}

// freePorts returns n different ports of 127.0.0.1 on which no program listens. The
// first is fixed unless that is 0.
func freePorts(ctx context.Context, n, fixed int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", address(fixed))
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // all at the end, so that the ports differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		fixed = 0
	}
	return ports, nil
}

// address is the host:port of a port of 127.0.0.1.
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
