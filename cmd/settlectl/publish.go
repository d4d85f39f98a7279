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
	"strings"
	"syscall"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/spf13/cobra"
)

const (
	// maxLineBytes is what Pub/Sub takes in one request. A message of very nearly
	// this size does not fit with what stands around it; the client refuses that.
	maxLineBytes = pubsub.MaxPublishRequestBytes

	// maxOutstandingMessages and maxOutstandingBytes bound what is on its way to
	// Pub/Sub at a time, and with it the program's memory.
	maxOutstandingMessages = 1000
	maxOutstandingBytes    = 32 << 20
)

var (
	errLineTooLong = fmt.Errorf("the line is longer than Pub/Sub takes, which is %d bytes with what stands around a message", int(maxLineBytes))
	errInterrupted = errors.New("interrupted")
)

// summary is publish's answer.
type summary struct {
	Published int     `json:"published"`
	Failed    int     `json:"failed"`
	Seconds   float64 `json:"seconds"`
}

func newPublish(s streams) *cobra.Command {
	var topic, project string
	cmd := &cobra.Command{
		Use:   "publish FILE|-",
		Short: "Publish every line of a file as a message",
		Long: `publish sends every line of FILE, or of standard input for -, to a Pub/Sub
topic: the bytes of a line, without its line feed, are one message's data. Empty
lines are passed over. The bytes are sent as they are, malformed ones too; use
check to judge a message first.

The file is read as it is sent, so its size does not matter. Lines that Pub/Sub
did not take are named on standard error and the rest is still sent. A line
whose answer was lost may have been published all the same; publishing it again
is safe, for a settlement ID is settled once.

Where PUBSUB_EMULATOR_HOST is set, messages go to that emulator. Elsewhere the
application default credentials are used.

Ctrl-C stops reading, waits for the answers that are due, and says up to which
line messages were sent; a second Ctrl-C ends the program at once.

Exit codes: 0 everything published, 1 some lines were not, 2 wrong usage, or the
file cannot be read, or there are no credentials, 130 interrupted. Once sending
has begun, the counts are printed on standard output however it ends.`,
		Example: `  settlectl publish payouts.jsonl --topic projects/my-project/topics/payouts
  settlectl publish payouts.jsonl --project my-project --topic payouts
  zcat payouts.jsonl.gz |
    settlectl publish - --project my-project --topic payouts
  PUBSUB_EMULATOR_HOST=127.0.0.1:8085 settlectl publish payouts.jsonl \
    --project demo --topic payouts`,
		Args: oneArgument("FILE"),
		PreRunE: func(*cobra.Command, []string) error {
			_, _, err := topicName(project, topic)
			return err
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			project, name, err := topicName(project, topic)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			defer context.AfterFunc(ctx, stop)() // the second signal is not caught
			return publish(ctx, args, project, name, s)
		},
	}
	cmd.Flags().StringVar(&topic, "topic", "", "`name` of the topic: projects/P/topics/T, or T with --project")
	cmd.Flags().StringVar(&project, "project", "", "`ID` of the topic's project, where --topic does not name it")
	require(cmd, "topic")
	return cmd
}

// topicName returns the topic's project and full name from the two flags.
func topicName(project, topic string) (projectID, name string, err error) {
	parts := strings.Split(topic, "/")
	switch {
	case len(parts) == 1 && topic != "" && project != "" && !strings.Contains(project, "/"):
		return project, "projects/" + project + "/topics/" + topic, nil
	case len(parts) == 1 && topic != "" && project == "":
		return "", "", wrongf("topic", "--topic is %q, without a project; add --project, or give projects/P/topics/%s", topic, topic)
	case len(parts) != 4 || parts[0] != "projects" || parts[1] == "" || parts[2] != "topics" || parts[3] == "":
		return "", "", wrongf("topic", "--topic is %q; give projects/P/topics/T, or T alone with --project P", topic)
	case project != "" && project != parts[1]:
		return "", "", wrongf("project", "--project is %q and --topic names project %q; leave --project out", project, parts[1])
	}
	return parts[1], topic, nil
}

func publish(ctx context.Context, args []string, project, topic string, s streams) error {
	input, name, err := openInput(args, s)
	if err != nil {
		return err
	}
	defer func() { _ = input.Close() }() // nothing was written

	if err := emulatorAnswers(ctx, s.getenv("PUBSUB_EMULATOR_HOST")); err != nil {
		return err
	}
	// The client outlives an interruption, to have the answers that are due.
	client, err := pubsub.NewClient(context.WithoutCancel(ctx), project)
	if err != nil {
		return failf("connect to Pub/Sub: %w; log in with 'gcloud auth application-default login', or set PUBSUB_EMULATOR_HOST", err)
	}
	defer func() { _ = client.Close() }()
	publisher := client.Publisher(topic)
	publisher.PublishSettings.FlowControlSettings = pubsub.FlowControlSettings{
		MaxOutstandingMessages: maxOutstandingMessages,
		MaxOutstandingBytes:    maxOutstandingBytes,
		LimitExceededBehavior:  pubsub.FlowControlBlock,
	}

	began := time.Now()
	run := &publication{publisher: publisher, report: newReporter(s, fileSize(input))}
	readErr := run.publishAll(ctx, input)
	run.report.stop(readErr == nil && !run.interrupted && run.sum.Failed == 0)
	run.sum.Seconds = math.Round(time.Since(began).Seconds()*1000) / 1000
	if err := printJSON(s.out, run.sum); err != nil {
		return err
	}

	switch {
	case readErr != nil:
		return failf("read what follows line %d of %s: %w; the lines before were sent", run.lastLine, name, readErr)
	case run.interrupted:
		return &codedError{code: exitInterrupted, err: fmt.Errorf(
			"interrupted after line %d of %s: %d published, %d failed; to go on, publish what follows that line",
			run.lastLine, name, run.sum.Published, run.sum.Failed)}
	case run.sum.Failed > 0:
		return &codedError{code: exitNo, err: fmt.Errorf(
			"publish %s to %s: %d of %s failed, on the %s again once the cause is gone",
			name, topic, run.sum.Failed, counted(run.sum.Published+run.sum.Failed, "message"),
			oneOr(run.sum.Failed, "line named above; publish that", "lines named above; publish those"))}
	}
	return nil
}

// emulatorAnswers checks, where an emulator is named, that somebody listens there:
// the client would try for a minute before it says that nobody does.
func emulatorAnswers(ctx context.Context, host string) error {
	if host == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", host)
	if err != nil {
		return failf("PUBSUB_EMULATOR_HOST is %q: %w; give the host:port of an emulator that runs, such as the one that 'make run' prints", host, err)
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

// publication is one run of publish: a goroutine reads lines, one hands them to
// the client, and publishAll takes the answers in the order of the lines.
type publication struct {
	publisher *pubsub.Publisher
	report    *reporter

	sum         summary
	lastLine    int // the last line that was handed over or failed
	interrupted bool
	failures    failureLog
}

// attempt is a line that was handed over, or was found not fit to be.
type attempt struct {
	line   int
	end    int64
	result *pubsub.PublishResult // nil if err is set
	err    error
}

// publishAll publishes input's lines until its end or until ctx is done, and
// returns when every answer is there. Its error is the input's.
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
	p.failures.flush(p.report)
	return <-sent
}

// send hands over the lines of input, and returns when all are sent and answered.
func (p *publication) send(ctx context.Context, input io.Reader, attempts chan<- attempt) (readErr error) {
	defer p.publisher.Stop()
	lines := make(chan line)
	ended := make(chan error, 1) // the input's error, or errInterrupted
	// A read of a pipe or a terminal may block for ever and cannot be cancelled,
	// so it has a goroutine of its own, which an interruption leaves behind.
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
				// Blocks while too much is on its way; ctx ends that.
				result := p.publisher.Publish(ctx, &pubsub.Message{Data: l.data})
				attempts <- attempt{line: l.number, end: l.end, result: result}
			}
		}
	}
	p.interrupted = true
	p.report.say("interrupted; waiting for the answers that are due, interrupt again to leave at once")
	return nil
}

// take waits for an attempt's answer and counts it.
func (p *publication) take(ctx context.Context, a attempt) {
	err := a.err
	if err == nil {
		_, err = a.result.Get(context.WithoutCancel(ctx)) // the client bounds the wait
	}
	if errors.Is(err, context.Canceled) {
		return // interrupted while it waited for its turn: it was never handed over
	}
	if errors.Is(err, pubsub.ErrOversizedMessage) {
		err = errLineTooLong
	}
	p.lastLine = a.line
	if err == nil {
		p.sum.Published++
		p.failures.flush(p.report)
	} else {
		p.sum.Failed++
		p.failures.add(a.line, err, p.report)
	}
	p.report.update(p.sum, a.end)
}

// failureLog names failed lines: the first of a run of lines that fail alike at
// once, the others together, so that a missing topic is not a line of text for
// every line of the file. Errors of the Pub/Sub client hold no payload.
type failureLog struct {
	text     string // of the run's error; "" when there is none
	from, to int    // the run's lines that are not yet named; from is 0 when there are none
}

func (f *failureLog) add(number int, err error, report *reporter) {
	if text := spoken(err); text != f.text {
		f.flush(report)
		f.text = text
		report.say("publish line %d: %s", number, text)
		return
	}
	if f.from == 0 {
		f.from = number
	}
	f.to = number
}

func (f *failureLog) flush(report *reporter) {
	switch f.from {
	case 0:
	case f.to:
		report.say("publish line %d: the same error", f.from)
	default:
		report.say("publish lines %d to %d: the same error", f.from, f.to)
	}
	*f = failureLog{}
}
