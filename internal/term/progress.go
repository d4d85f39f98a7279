package term

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
)

// Progress shows how far a command is: a bar for each phase where standard error is a
// terminal, and no bar elsewhere. [Progress.Logf] writes lines of text in both cases.
//
// Step, Set, Message and Logf may be called from several goroutines; the other methods
// may not, and no other method may run at the same time as Begin or Stop.
type Progress struct {
	program string
	mu      sync.Mutex // guards out
	out     io.Writer

	writer  progress.Writer // nil: not a terminal, or stopped
	tracker *progress.Tracker
	ended   chan struct{} // closed when writer writes no more
}

// StartProgress starts drawing if s.Err is a terminal. The caller has to call Stop.
// program begins every line of Logf. Messages are cut or padded to messageColumns, so
// that the bars of several phases stand below each other; 0 leaves them as they are.
func StartProgress(s Streams, program string, messageColumns int) *Progress {
	p := &Progress{program: program, out: s.Err}
	if s.ErrColumns == 0 {
		return p
	}
	style := progress.StyleDefault
	style.Visibility.ETA = true
	style.Visibility.Value = false // the message has the counts
	style.Options.ErrorString = "incomplete"
	style.Options.TimeInProgressPrecision = time.Second
	style.Options.TimeDonePrecision = 100 * time.Millisecond
	p.writer, p.ended = progress.NewWriter(), make(chan struct{})
	p.writer.SetOutputWriter(s.Err)
	p.writer.SetTerminalWidth(s.ErrColumns)
	p.writer.SetTrackerLength(20)
	p.writer.SetMessageLength(messageColumns)
	p.writer.SetUpdateFrequency(100 * time.Millisecond)
	p.writer.SetStyle(style)
	writer, ended := p.writer, p.ended
	go func() {
		defer close(ended)
		writer.Render()
	}()
	return p
}

// Visible reports whether there is a terminal that shows the bars.
func (p *Progress) Visible() bool { return p.writer != nil }

// Begin completes the present phase and begins the next one. total is its number of
// steps; 0: unknown.
func (p *Progress) Begin(message string, total int64) {
	if p.writer == nil {
		return
	}
	p.complete()
	p.tracker = &progress.Tracker{Message: message, Total: total, AutoStopDisabled: true}
	p.writer.AppendTracker(p.tracker)
}

// Message changes the text of the present phase.
func (p *Progress) Message(text string) {
	if p.tracker != nil {
		p.tracker.UpdateMessage(text)
	}
}

// Step counts one step of the present phase.
func (p *Progress) Step() {
	if p.tracker != nil {
		p.tracker.Increment(1)
	}
}

// Set sets the number of steps that are done.
func (p *Progress) Set(done int64) {
	if p.tracker != nil {
		p.tracker.SetValue(done)
	}
}

func (p *Progress) complete() {
	if p.tracker != nil && !p.tracker.IsDone() {
		p.tracker.MarkAsDone()
	}
}

// Logf writes one line of text, above the bars if there are any.
func (p *Progress) Logf(format string, args ...any) {
	line := p.program + ": " + fmt.Sprintf(format, args...)
	if p.writer != nil {
		p.writer.Log("%s", line)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintln(p.out, line)
}

// Stop completes the present phase, or marks it as incomplete, draws the bars a last
// time, and returns when nothing is written any more.
func (p *Progress) Stop(complete bool) {
	if p.writer == nil {
		return
	}
	if complete {
		p.complete()
	} else if p.tracker != nil {
		p.tracker.MarkAsErrored()
	}
	for p.writer != nil {
		p.writer.Stop() // without effect until Render has started
		select {
		case <-p.ended:
			p.writer = nil
		case <-time.After(5 * time.Millisecond):
		}
	}
}
