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

// supervisor runs the program $1 with the arguments after $2, and ends the whole
// process group when its standard input ends or the program does, whichever comes
// first. $2 is the name of the container to remove at the end, or empty.
//
// The pipe moves to descriptor 3 because a shell gives background jobs /dev/null as
// standard input; the emulator does not get it. The watcher is a process of its own
// and starts before the emulator, so at no moment is there an emulator without one,
// even if the script itself is killed. kill 0 is the group, the script included; the
// exit status goes out as text before that.
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

// errEnded is in the error of an emulator that ended without being asked to.
var errEnded = errors.New("emulator ended")

// process is a running emulator under its supervisor. A nil process stands for an
// emulator that somebody else runs: it never ends and closing it does nothing.
type process struct {
	pgid    int       // the supervisor's process ID, which is its group's
	alive   io.Closer // write end of the supervisor's standard input
	ports   []int
	log     *tail
	closing atomic.Bool
	done    chan struct{} // closed when all processes are gone
}

// startProcess starts program under a supervisor. ctx does not bound its life.
func startProcess(ctx context.Context, output io.Writer, ports []int, container, program string, args ...string) (*process, error) {
	argv := append([]string{"-c", supervisor, "supervisor", program, container}, args...)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "/bin/sh", argv...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = pipeLimit
	p := &process{ports: ports, log: &tail{next: output}, done: make(chan struct{})}
	// Not a file, so exec puts a pipe between and Wait returns at its end: when the
	// last process of the group is gone.
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
		_ = cmd.Wait() // always "killed"; the log has the emulator's own status
	}()
	return p, nil
}

// close ends the processes and waits until they are gone and their ports are free.
func (p *process) close() error {
	if p == nil {
		return nil
	}
	p.closing.Store(true)
	_ = p.alive.Close() // an error means that it is closed already
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	select {
	case <-p.done:
	case <-ctx.Done():
		return fmt.Errorf("processes of group %d still run after %s: kill them by hand", p.pgid, closeLimit)
	}
	// An ending process closes its output before its sockets. A port that stays
	// taken was taken by somebody else in between.
	ctx, cancel = context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = poll(ctx, func(ctx context.Context) error { return portsFree(ctx, p.ports) })
	return nil
}

// ended returns the channel that is closed when the process is gone; nil for nil.
func (p *process) ended() <-chan struct{} {
	if p == nil {
		return nil
	}
	return p.done
}

// err says why the process is gone: nil while it runs and after close.
func (p *process) err() error {
	if p == nil {
		return nil
	}
	select {
	case <-p.done:
		if p.closing.Load() {
			return nil
		}
		return p.withLog(errEnded)
	default:
		return nil
	}
}

// withLog adds the emulator's last output to err.
func (p *process) withLog(err error) error {
	if log := p.log.String(); log != "" {
		return fmt.Errorf("%w; its last output:\n%s", err, log)
	}
	return err
}

// poll calls f until it returns nil or ctx is done; then it returns the cause
// together with the last error of f that is not itself due to that.
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

// tailSize is how much of the output is kept for errors.
const tailSize = 4 << 10

// tail passes output on to next, if there is one, and keeps the end of it.
type tail struct {
	next io.Writer

	mu   sync.Mutex
	kept []byte
}

// Write never fails: an error would close the pipe that the emulator writes to.
func (t *tail) Write(b []byte) (int, error) {
	if t.next != nil {
		_, _ = t.next.Write(b)
	}
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
