package emulator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// supervisor runs program $1 with the arguments after $2. It kills the whole process
// group when its standard input or the program ends, whichever comes first. $2 is
// the name of the container to remove at the end, or empty.
//
// The pipe moves to descriptor 3 because a shell gives background jobs /dev/null as
// standard input; the emulator does not get it. The watcher is a process of its own
// and starts before the emulator, so it works even if the script itself is killed.
// kill 0 is the group, with the script; so the script prints the exit status first.
const supervisor = `
program=$1 container=$2
shift 2
exec 3<&0 </dev/null
finish() {
	[ -z "$container" ] || "$program" rm --force "$container" >/dev/null 2>&1
	kill -KILL 0
}
{ read -r line <&3; finish; } &
"$program" "$@" 3<&- &
wait "$!"
echo "emulator ended with exit status $?"
finish
`

const (
	// closeLimit bounds the wait for the processes after Close; removing a
	// container takes the longest.
	closeLimit = 20 * time.Second
	// pipeLimit bounds the wait for the output's end once the supervisor is gone.
	pipeLimit = 5 * time.Second
	pollEvery = 20 * time.Millisecond
)

// errEnded is in the error of an emulator that ended before Close.
var errEnded = errors.New("emulator ended")

// Process is the process of an emulator. [Spanner] and [PubSub] embed it. Its methods
// may be called from several goroutines. The zero value is not valid.
type Process struct {
	// Source is the emulator's origin, for people: the name of the variable that named
	// it, "Google Cloud CLI", or "docker image " and its name.
	Source string

	name    string
	hosts   []string // host:port of each server, gRPC first
	ports   []int
	pgid    int       // the supervisor's process ID and its group's
	alive   io.Closer // write end of the supervisor's standard input
	log     *tail
	closing atomic.Bool
	done    chan struct{} // closed when all processes are gone; nil if this package did not start them
}

// startProcess starts program under a supervisor. ctx does not bound its life.
func startProcess(ctx context.Context, ports []int, container, program string, args ...string) (*Process, error) {
	argv := append([]string{"-c", supervisor, "supervisor", program, container}, args...)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "/bin/sh", argv...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = pipeLimit
	p := &Process{ports: ports, log: &tail{}, done: make(chan struct{})}
	for _, port := range ports {
		p.hosts = append(p.hosts, address(port))
	}
	// With a writer that is no file, exec copies from a pipe, and Wait returns when the
	// last process of the group has closed it.
	cmd.Stdout, cmd.Stderr = p.log, p.log
	var err error
	if p.alive, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("open the supervisor's pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	p.pgid = cmd.Process.Pid
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // always "killed"; the log has the emulator's exit status
	}()
	return p, nil
}

// Close ends the emulator and returns when its processes are gone and its ports are
// free. It does nothing for an emulator that the environment named, or when called
// again. An error means that a process outlived Close.
func (p *Process) Close() error {
	if p.done == nil {
		return nil
	}
	p.closing.Store(true)
	_ = p.alive.Close() // an error means that it is closed already
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	select {
	case <-p.done:
	case <-ctx.Done():
		return fmt.Errorf("close %s emulator: processes of group %d still run after %s; kill them by hand", p.name, p.pgid, closeLimit)
	}
	// An ending process closes its output before its sockets. A port that stays in use
	// belongs to another program by now.
	ctx, cancel = context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = poll(ctx, func(ctx context.Context) error {
		for _, port := range p.ports {
			if _, err := freePorts(ctx, 1, port); err != nil {
				return err
			}
		}
		return nil
	})
	return nil
}

// Done returns a channel that is closed when the emulator is gone, by Close or by
// itself. It is nil for an emulator that the environment named.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns nil while the emulator runs and after Close. If the emulator has ended
// by itself, the error has the end of its output.
func (p *Process) Err() error {
	select {
	case <-p.done:
		if !p.closing.Load() {
			return fmt.Errorf("run %s emulator: %w", p.name, p.withLog(errEnded))
		}
	default:
	}
	return nil
}

// withLog adds the emulator's last output to err.
func (p *Process) withLog(err error) error {
	if log := p.log.String(); log != "" {
		return fmt.Errorf("%w; its last output:\n%s", err, log)
	}
	return err
}

// poll calls f until it returns nil or ctx is done. Then it returns the cause and
// the last error of f from before ctx was done.
func poll(ctx context.Context, f func(context.Context) error) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var last error
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		case <-tick.C:
		}
	}
}

// tailSize is the size of the output that tail keeps for errors.
const tailSize = 4 << 10

// tail keeps the end of the output written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

// Write never fails: an error would close the pipe that the emulator writes to.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b...)
	if over := len(t.kept) - tailSize; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(strings.TrimSpace(string(t.kept)), "")
}
