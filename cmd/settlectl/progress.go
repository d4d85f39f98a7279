package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
)

// reporter shows a person how a command goes: a bar on a terminal, and lines of
// text above it. Without a terminal there are the lines only.
type reporter struct {
	mu  sync.Mutex // guards out
	out io.Writer

	bar     progress.Writer // nil without a terminal
	tracker *progress.Tracker
	ended   chan struct{}
	bytes   bool // the bar counts bytes of the file, not messages
}

// newReporter starts the bar if s.err is a terminal. totalBytes is the size of
// the file, or 0 where nobody knows. stop has to be called.
func newReporter(s streams, totalBytes int64) *reporter {
	tracker := &progress.Tracker{Message: progressMessage(summary{}), Total: totalBytes}
	if totalBytes > 0 {
		tracker.Units = progress.UnitsBytes
	}
	r := startReporter(s, tracker)
	r.bytes = totalBytes > 0
	return r
}

// startReporter starts the bar of a tracker if s.err is a terminal. A total gives
// it an ETA. stop has to be called.
func startReporter(s streams, tracker *progress.Tracker) *reporter {
	r := &reporter{out: s.err}
	if s.errColumns == 0 {
		return r
	}
	r.tracker = tracker
	r.tracker.AutoStopDisabled = true
	r.bar = progress.NewWriter()
	r.bar.SetOutputWriter(s.err)
	r.bar.SetTerminalWidth(s.errColumns)
	r.bar.SetTrackerLength(20)
	style := progress.StyleDefault
	style.Visibility.ETA = tracker.Total > 0
	style.Visibility.Value = false // the message has the counts
	style.Options.ErrorString = "incomplete"
	style.Options.TimeInProgressPrecision = time.Second
	style.Options.ETAPrecision = time.Second
	r.bar.SetStyle(style)
	r.bar.AppendTracker(r.tracker)
	r.ended = make(chan struct{})
	go func() {
		defer close(r.ended)
		r.bar.Render()
	}()
	return r
}

func progressMessage(sum summary) string {
	return fmt.Sprintf("published %d, failed %d", sum.Published, sum.Failed)
}

// update shows how far publishing is; end is the offset of the file up to which
// everything is answered.
func (r *reporter) update(sum summary, end int64) {
	if r.bar == nil {
		return
	}
	r.tracker.UpdateMessage(progressMessage(sum))
	if r.bytes {
		r.tracker.SetValue(end)
	} else {
		r.tracker.SetValue(int64(sum.Published + sum.Failed))
	}
}

// say shows one line of text.
func (r *reporter) say(format string, args ...any) {
	if r.bar != nil {
		r.bar.Log("settlectl: "+format, args...)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintf(r.out, "settlectl: "+format+"\n", args...)
}

// stop draws the bar a last time and returns when nothing is written any more.
func (r *reporter) stop(complete bool) {
	if r.bar == nil {
		return
	}
	if complete {
		r.tracker.MarkAsDone()
	} else {
		r.tracker.MarkAsErrored()
	}
	for {
		r.bar.Stop() // without effect as long as Render has not set itself up
		select {
		case <-r.ended:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}
