package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
)

// heldLog keeps what the functions log as long as the progress is drawn: a line
// in between would garble both. Make one with its zero value, and release it.
type heldLog struct {
	mu   sync.Mutex
	text bytes.Buffer

	pipe  *os.File // nil unless takeStderr was called
	ended chan struct{}
}

// Write implements io.Writer.
func (l *heldLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

// takeStderr holds what is written to os.Stderr from now on: that is where the
// functions under the framework log. They are not served yet, and what was
// os.Stderr before is not touched.
func (l *heldLog) takeStderr() error {
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("hold the log: %w", err)
	}
	l.pipe, l.ended, os.Stderr = write, make(chan struct{}), write
	go func() {
		defer close(l.ended)
		_, _ = io.Copy(l, read) // reading a pipe of our own ends with its end
	}()
	return nil
}

// release writes everything that was held since the last time. What is logged
// after that to a standard error that was taken is lost.
func (l *heldLog) release(to io.Writer) {
	if l.pipe != nil {
		_ = l.pipe.Close()
		<-l.ended
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.text.WriteTo(to) // it is standard error: there is nowhere to complain
}
