package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
)

// ChildConfig says what a child process settles, and where.
type ChildConfig struct {
	// Contender is its key.
	Contender string
	// Database is a name in the Spanner emulator, or a PostgreSQL connection string.
	Database string
	// Spanner is the emulator's host:port.
	Spanner string
	// Ahead is how far the process's clock is ahead of the time.
	Ahead time.Duration
}

// args are the command line of a child.
func (c ChildConfig) args() []string {
	return []string{"--contender", c.Contender, "--database", c.Database, "--spanner", c.Spanner, "--ahead", c.Ahead.String()}
}

// ready is what a child says before it reads its first message.
const ready = "ready"

// RunChild settles each line of in and answers it with a line: the outcome, or
// "error: " and why. It begins by saying that it is ready, and is made to be killed.
func RunChild(ctx context.Context, c ChildConfig, in io.Reader, out io.Writer) error {
	chosen, err := contender.Find(c.Contender)
	if err != nil {
		return err
	}
	place := contender.Place{
		Database: c.Database, NewID: uuid.NewString,
		Now: func() time.Time { return time.Now().Add(c.Ahead) },
	}
	if chosen.System == contender.Spanner {
		place.Emulator = true
		place.Options = (&emulator.Spanner{GRPC: c.Spanner}).ClientOptions()
	}
	settler, err := chosen.Open(ctx, place)
	if err != nil {
		return err
	}
	defer settler.Close()
	if _, err := fmt.Fprintln(out, ready); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		outcome, err := settler.Settle(ctx, lines.Bytes())
		answer := outcome.String()
		if err != nil {
			answer = "error: " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		if _, err := fmt.Fprintln(out, answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

// child is a running child process.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// startChild starts a child and waits until it is ready.
func (l *lab) startChild(ctx context.Context, c ChildConfig) (*child, error) {
	argv := append(append([]string{}, l.Child...), c.args()...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	p := &child{cmd: cmd}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.out = in, bufio.NewScanner(out)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if !p.out.Scan() || p.out.Text() != ready {
		p.kill()
		return nil, fmt.Errorf("start a child: %q, %w: %s", p.out.Text(), p.wait(), stderr.String())
	}
	return p, nil
}

// ask gives the child a message and returns its answer; empty: it ended.
func (p *child) ask(message []byte) string {
	if _, err := p.in.Write(append(message, '\n')); err != nil || !p.out.Scan() {
		return ""
	}
	return p.out.Text()
}

// kill ends the process at once. Its exit is for wait.
func (p *child) kill() { _ = p.cmd.Process.Kill() } // an error means that it is gone

// wait waits for the process's end.
func (p *child) wait() error {
	_ = p.in.Close() // an error means that it is closed already
	return p.cmd.Wait()
}
