package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/term"
)

const (
	// maxLineBytes is the limit of one Pub/Sub request. The client refuses a message that
	// exceeds it only with the envelope.
	maxLineBytes = pubsub.MaxPublishRequestBytes

	// maxOutstandingMessages and maxOutstandingBytes bound the unanswered messages, and
	// with them the program's memory.
	maxOutstandingMessages = 1000
	maxOutstandingBytes    = 32 << 20
)

var errLineTooLong = fmt.Errorf("the line exceeds Pub/Sub's limit of %d bytes for a message with its envelope", int(maxLineBytes))

// summary is the answer of publish.
type summary struct {
	Published int     `json:"published"`
	Failed    int     `json:"failed"`
	Seconds   float64 `json:"seconds"`
}

func newPublish(s streams) *cobra.Command {
	var topic string
	cmd := &cobra.Command{
		Use:   "publish FILE|-",
		Short: "Publish each line of a file as a message",
		Long: `publish sends the bytes of each line of FILE, or of standard input for -, to a
Pub/Sub topic. It skips blank lines, names each failed line, and sends the other
lines. Publishing a line again is safe. PUBSUB_EMULATOR_HOST selects an
emulator.

Exit codes: 0 all lines published, 1 some failed, 2 usage error, unreadable file
or missing credentials, 130 interrupted.`,
		Example: `  settlectl publish payouts.jsonl --topic projects/my-project/topics/payouts
  zcat payouts.jsonl.gz |
    settlectl publish - --topic projects/my-project/topics/payouts`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			project, err := projectOf(topic)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			defer context.AfterFunc(ctx, stop)() // the second signal ends the program
			return publish(ctx, args, project, topic, s)
		},
	}
	cmd.Flags().StringVar(&topic, "topic", "", "`name` of the topic: projects/P/topics/T (required)")
	require(cmd, "topic")
	return cmd
}

var topicForm = regexp.MustCompile(`^projects/([^/\s]+)/topics/[^/\s]+$`)

// projectOf returns the project of a topic.
func projectOf(topic string) (string, error) {
	match := topicForm.FindStringSubmatch(topic)
	if match == nil {
		return "", fmt.Errorf("--topic is %q; give projects/P/topics/T", topic)
	}
	return match[1], nil
}

func publish(ctx context.Context, args []string, project, topic string, s streams) error {
	input, name, err := openInput(args, s)
	if err != nil {
		return err
	}
	defer func() { _ = input.Close() }() // nothing was written

	client, err := openPubSub(ctx, project, s)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	publisher := client.Publisher(topic)
	publisher.PublishSettings.FlowControlSettings = pubsub.FlowControlSettings{
		MaxOutstandingMessages: maxOutstandingMessages,
		MaxOutstandingBytes:    maxOutstandingBytes,
		LimitExceededBehavior:  pubsub.FlowControlBlock,
	}

	began := time.Now()
	run := &publication{publisher: publisher, bar: term.StartProgress(s.Streams, "settlectl", 0)}
	run.bar.Begin(run.sum.message(), fileSize(input))
	readErr := run.publishAll(ctx, input)
	run.bar.Stop(readErr == nil && !run.interrupted && run.sum.Failed == 0)
	run.sum.Seconds = math.Round(time.Since(began).Seconds()*1000) / 1000
	if err := printJSON(s.Out, run.sum); err != nil {
		return err
	}

	switch {
	case readErr != nil:
		return term.Failf("read %[2]s after line %[1]d: %[3]w; the lines before were sent", run.lastLine, name, readErr)
	case run.interrupted:
		return &term.CodedError{Code: term.ExitInterrupted, Err: fmt.Errorf(
			"interrupted after line %d of %s: %d published, %d failed; to continue, publish the lines after it",
			run.lastLine, name, run.sum.Published, run.sum.Failed)}
	case run.sum.Failed > 0:
		return noWith("publish %s to %s: %d of %s failed; remove the cause and publish the %s again",
			name, topic, run.sum.Failed, counted(run.sum.Published+run.sum.Failed, "message"),
			oneOr(run.sum.Failed, "line named above", "lines named above"))
	}
	return nil
}

// openPubSub returns a client, which outlives an interruption to receive the outstanding
// answers.
func openPubSub(ctx context.Context, project string, s streams) (*pubsub.Client, error) {
	if err := emulatorAnswers(ctx, s.getenv(config.EnvPubSubEmulatorHost)); err != nil {
		return nil, err
	}
	client, err := pubsub.NewClient(context.WithoutCancel(ctx), project)
	if err != nil {
		return nil, term.Failf("connect to Pub/Sub: %w; %s, or set %s", err, accessHint, config.EnvPubSubEmulatorHost)
	}
	return client, nil
}

// emulatorAnswers checks that the named emulator listens, because the client retries for
// a minute. Without a name it does nothing.
func emulatorAnswers(ctx context.Context, host string) error {
	if host == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", host)
	if err != nil {
		return term.Failf("%s is %q: %w; give the host:port of a running emulator, which 'make run' prints", config.EnvPubSubEmulatorHost, host, err)
	}
	return conn.Close()
}

// fileSize returns the size of a regular file, and 0 for anything else.
func fileSize(input io.Reader) int64 {
	file, ok := input.(*os.File)
	if !ok {
		return 0
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size()
}

func (s summary) message() string {
	return fmt.Sprintf("published %d, failed %d", s.Published, s.Failed)
}

// publication is one run of publish. One goroutine reads lines, one passes them to the
// client, and publishAll takes the answers in the order of the lines.
type publication struct {
	publisher *pubsub.Publisher
	bar       *term.Progress

	sum         summary
	lastLine    int // the last line that was sent or failed
	interrupted bool
	failures    failureLog
}

// attempt is a line that was passed to the client or refused.
type attempt struct {
	line   int
	end    int64                 // offset in the file of the next line
	mark   string                // describes a byte order mark
	result *pubsub.PublishResult // nil if err is set
	err    error
}

// publishAll publishes the lines of input until its end or until ctx is done, and
// returns after the last answer. Its error is that of reading input.
func (p *publication) publishAll(ctx context.Context, input io.Reader) (readErr error) {
	attempts := make(chan attempt, maxOutstandingMessages)
	sent := make(chan error, 1)
	go func() {
		defer close(attempts)
		sent <- p.send(ctx, input, attempts)
	}()
	for a := range attempts {
		p.take(ctx, a)
	}
	p.failures.flush(p.bar)
	return <-sent
}

// send passes the lines of input to the client, and returns after the last answer.
func (p *publication) send(ctx context.Context, input io.Reader, attempts chan<- attempt) (readErr error) {
	defer p.publisher.Stop()
	lines := make(chan line)
	ended := make(chan error, 1) // the input's error, or errInterrupted
	// Reading a pipe or a terminal can block and cannot be cancelled. An interruption
	// leaves this goroutine behind.
	go func() {
		defer close(lines)
		for l, err := range readLines(input, maxLineBytes) {
			if err != nil {
				ended <- err
				return
			}
			select {
			case lines <- l:
			case <-ctx.Done():
				ended <- errInterrupted
				return
			}
		}
		ended <- nil
	}()

	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case l, ok := <-lines:
			switch {
			case !ok:
				if err := <-ended; !errors.Is(err, errInterrupted) {
					return err
				}
			case l.blank():
			case l.tooLong:
				attempts <- attempt{line: l.number, end: l.end, err: errLineTooLong}
			default:
				// Publish blocks at the limits of unanswered messages, until ctx is done.
				result := p.publisher.Publish(ctx, &pubsub.Message{Data: l.data})
				attempts <- attempt{line: l.number, end: l.end, mark: byteOrderMark(l.data), result: result}
			}
		}
	}
	p.interrupted = true
	p.bar.Logf("interrupted; waiting for outstanding answers; interrupt again to end at once")
	return nil
}

// take waits for the answer to an attempt and counts it.
func (p *publication) take(ctx context.Context, a attempt) {
	err := a.err
	if err == nil {
		_, err = a.result.Get(context.WithoutCancel(ctx)) // the client bounds the wait
	}
	if errors.Is(err, context.Canceled) {
		return // interrupted before the client sent it
	}
	if errors.Is(err, pubsub.ErrOversizedMessage) {
		err = errLineTooLong
	}
	p.lastLine = a.line
	if a.mark != "" {
		p.bar.Logf("publish line %d: the line begins with %s", a.line, a.mark)
	}
	if err == nil {
		p.sum.Published++
		p.failures.flush(p.bar)
	} else {
		p.sum.Failed++
		p.failures.add(a.line, err, p.bar)
	}
	p.bar.Message(p.sum.message())
	p.bar.Set(a.end)
}

// failureLog names failed lines. It names the first line of a series with the same error
// at once, and the others together, because a missing topic fails every line. Errors of
// the Pub/Sub client contain no payload.
type failureLog struct {
	text     string // the error of the series; empty: no series
	from, to int    // the lines of the series that are not named yet; from is 0 without any
}

func (f *failureLog) add(number int, err error, bar *term.Progress) {
	if text := trimRPCPrefix(err); text != f.text {
		f.flush(bar)
		f.text = text
		bar.Logf("publish line %d: %s", number, text)
		return
	}
	if f.from == 0 {
		f.from = number
	}
	f.to = number
}

func (f *failureLog) flush(bar *term.Progress) {
	switch f.from {
	case 0:
	case f.to:
		bar.Logf("publish line %d: the same error", f.from)
	default:
		bar.Logf("publish lines %d to %d: the same error", f.from, f.to)
	}
	*f = failureLog{}
}
