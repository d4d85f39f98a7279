package emulator

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// stub is a launcher whose emulator is a shell script.
func stub(script string, answers error) launcher {
	return launcher{
		source:  "stub",
		limit:   testLimit,
		ports:   1,
		program: "/bin/sh",
		args:    func([]int) []string { return []string{"-c", script} },
		answers: func(context.Context, []string) error { return answers },
	}
}

func TestStartRetriesWhenEmulatorEnds(t *testing.T) {
	t.Parallel()
	var picks int
	_, err := stub("echo port is taken; exit 3", errors.New("refused")).retry(t.Context(),
		func(context.Context) ([]int, error) { picks++; return []int{1}, nil })
	if !errors.Is(err, errEnded) || !strings.Contains(err.Error(), "port is taken") {
		t.Errorf("retry = %v, want errEnded with the output", err)
	}
	if picks != attempts {
		t.Errorf("started %d times, want %d", picks, attempts)
	}
}

// The first REST port of the real emulator is in use, so that it ends.
func TestStartTakesOtherPorts(t *testing.T) {
	t.Parallel()
	l, err := spannerKind.find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	taken := listen(t)
	var picked [][]int
	pick := func(ctx context.Context) ([]int, error) {
		ports, err := freePorts(ctx, 2, 0)
		if len(picked) == 0 && err == nil {
			ports[1] = taken
		}
		picked = append(picked, ports)
		return ports, err
	}
	p, err := l.retry(t.Context(), pick)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if len(picked) != 2 {
		t.Errorf("ports were picked %d times, want 2", len(picked))
	}
	if diff := cmp.Diff(picked[len(picked)-1], p.ports); diff != "" {
		t.Errorf("ports (-picked +used):\n%s", diff)
	}
}

func TestStartTimesOut(t *testing.T) {
	t.Parallel()
	l := stub("echo warming up; sleep 1000", errors.New("refused"))
	l.limit = 300 * time.Millisecond
	_, err := l.start(t.Context(), settings{})
	if err == nil {
		t.Fatal("start = nil error")
	}
	for _, want := range []string{"no answer within 300ms", "refused", "warming up"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("start = %q, want %q in it", err, want)
		}
	}
}

func TestStartCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p, err := stub("sleep 1000", errors.New("refused")).once(ctx, []int{1})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("once = %v, %v, want context.Canceled", p, err)
	}
}

func TestStartNoticesEndDuringProbe(t *testing.T) {
	t.Parallel()
	l := stub("exit 0", nil)
	l.answers = func(ctx context.Context, _ []string) error { <-ctx.Done(); return ctx.Err() }
	if _, err := l.once(t.Context(), []int{1}); !errors.Is(err, errEnded) {
		t.Errorf("once = %v, want errEnded", err)
	}
}

func TestFreePorts(t *testing.T) {
	t.Parallel()
	t.Run("are different", func(t *testing.T) {
		t.Parallel()
		ports, err := freePorts(t.Context(), 2, 0)
		if err != nil || len(ports) != 2 || ports[0] == ports[1] {
			t.Errorf("freePorts = %v, %v", ports, err)
		}
	})
	t.Run("refuse a fixed one in use", func(t *testing.T) {
		t.Parallel()
		if ports, err := freePorts(t.Context(), 2, listen(t)); err == nil {
			t.Errorf("freePorts = %v, want an error", ports)
		}
	})
}

func TestLockStarts(t *testing.T) {
	t.Parallel()
	unlock, err := lockStarts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*pollEvery)
	defer cancel()
	if _, err := lockStarts(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second lock = %v, want context.DeadlineExceeded", err)
	}
	unlock()
	again, err := lockStarts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// listen returns a port that is taken until the test ends.
func listen(t *testing.T) int {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", address(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}
