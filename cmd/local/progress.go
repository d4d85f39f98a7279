package main

import (
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
)

// progressBar shows a person how far the demo is, on a terminal; elsewhere it
// does nothing. Apart from say and step it is used from one goroutine.
type progressBar struct {
	bar     progress.Writer // nil: no terminal, or stopped
	tracker *progress.Tracker
	ended   chan struct{}
}

// newProgress starts drawing if s.err is a terminal. stop has to be called.
func newProgress(s streams) *progressBar {
	if s.errColumns == 0 {
		return &progressBar{}
	}
	p := &progressBar{bar: progress.NewWriter(), ended: make(chan struct{})}
	p.bar.SetOutputWriter(s.err)
	p.bar.SetTerminalWidth(s.errColumns)
	p.bar.SetTrackerLength(16)
	p.bar.SetMessageLength(44)
	p.bar.SetUpdateFrequency(50 * time.Millisecond)
	style := progress.StyleDefault
	style.Visibility.Value = false // the share says it
	style.Options.ErrorString = "none found"
	style.Options.TimeInProgressPrecision = 100 * time.Millisecond
	style.Options.TimeDonePrecision = 100 * time.Millisecond
	p.bar.SetStyle(style)
	bar, ended := p.bar, p.ended
	go func() {
		defer close(ended)
		bar.Render()
	}()
	return p
}

// phase begins what is to be shown next; total is its number of steps, or 0
// where there are none to count.
func (p *progressBar) phase(text string, total int) {
	if p.bar == nil {
		return
	}
	p.done()
	p.tracker = &progress.Tracker{Message: text, Total: int64(total), AutoStopDisabled: true}
	p.bar.AppendTracker(p.tracker)
}

// missing ends the phase: what it wanted is not there.
func (p *progressBar) missing() {
	if p.bar != nil {
		p.tracker.MarkAsErrored()
	}
}

// done ends the phase, if there is one that goes on.
func (p *progressBar) done() {
	if p.tracker != nil && !p.tracker.IsDone() {
		p.tracker.MarkAsDone()
	}
}

// say changes the phase's text. It may be called from several goroutines.
func (p *progressBar) say(text string) {
	if p.bar != nil {
		p.tracker.UpdateMessage(text)
	}
}

// step counts one step of the phase. It may be called from several goroutines.
func (p *progressBar) step() {
	if p.bar != nil {
		p.tracker.Increment(1)
	}
}

// stop draws a last time and returns when nothing is written any more.
func (p *progressBar) stop() {
	if p.bar == nil {
		return
	}
	p.done()
	for {
		p.bar.Stop() // without effect as long as Render has not set itself up
		select {
		case <-p.ended:
			p.bar = nil
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}
