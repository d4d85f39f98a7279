package main

import (
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
)

// bar shows a person how far the run is: bars on a terminal, elsewhere a line for each
// measure.
type bar struct {
	out     io.Writer
	writer  progress.Writer // nil: no terminal
	tracker *progress.Tracker
	ended   chan struct{}
}

// newProgress starts drawing if s.err is a terminal. stop has to be called.
func newProgress(s streams) *bar {
	b := &bar{out: s.err}
	if s.errColumns == 0 {
		return b
	}
	b.writer, b.ended = progress.NewWriter(), make(chan struct{})
	b.writer.SetOutputWriter(s.err)
	b.writer.SetTerminalWidth(s.errColumns)
	b.writer.SetTrackerLength(24)
	b.writer.SetMessageLength(12)
	style := progress.StyleDefault
	style.Options.ErrorString = "failed"
	style.Options.TimeInProgressPrecision = time.Second
	style.Options.TimeDonePrecision = time.Second
	b.writer.SetStyle(style)
	go func() {
		defer close(b.ended)
		b.writer.Render()
	}()
	return b
}

// Phase implements bench.Progress.
func (b *bar) Phase(name string, steps int) {
	if b.writer == nil {
		_, _ = fmt.Fprintf(b.out, "bench: %s\n", name)
		return
	}
	b.done()
	b.tracker = &progress.Tracker{Message: name, Total: int64(steps), AutoStopDisabled: true}
	b.writer.AppendTracker(b.tracker)
}

// Step implements bench.Progress.
func (b *bar) Step() {
	if b.tracker != nil {
		b.tracker.Increment(1)
	}
}

func (b *bar) done() {
	if b.tracker != nil && !b.tracker.IsDone() {
		b.tracker.MarkAsDone()
	}
}

// stop draws a last time and returns when nothing is written any more.
func (b *bar) stop(complete bool) {
	if b.writer == nil {
		return
	}
	if complete {
		b.done()
	} else if b.tracker != nil {
		b.tracker.MarkAsErrored()
	}
	for {
		b.writer.Stop() // without effect as long as Render has not set itself up
		select {
		case <-b.ended:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}
