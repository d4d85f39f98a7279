package event

import (
	"context"
	"fmt"
	"sync"
)

// Drainer lets an instance finish its requests before it stops. Each request enters
// before it works and leaves after its answer; after the first Drain no request
// enters.
//
// The zero value lets requests in. A nil *Drainer never drains. It is safe for
// concurrent use and must not be copied after its first use.
type Drainer struct {
	mu       sync.Mutex
	inside   int
	closed   bool
	draining chan struct{} // closed by the first Drain
	empty    chan struct{} // closed when draining and no request is inside
}

// channels returns the two channels, made by the first call. The caller holds mu.
func (d *Drainer) channels() (draining, empty chan struct{}) {
	if d.draining == nil {
		d.draining, d.empty = make(chan struct{}), make(chan struct{})
	}
	return d.draining, d.empty
}

// Draining returns a channel that the first Drain closes. It is nil for a nil
// Drainer.
func (d *Drainer) Draining() <-chan struct{} {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	draining, _ := d.channels()
	return draining
}

// Enter reports whether work may begin. If so, leave must be called exactly once
// when it has ended; if not, leave does nothing.
func (d *Drainer) Enter() (leave func(), ok bool) {
	if d == nil {
		return func() {}, true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return func() {}, false
	}
	d.inside++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.inside--; d.inside == 0 && d.closed {
			close(d.empty)
		}
	}, true
}

// Drain rejects new requests and waits until those inside have left. If ctx ends
// before that, the error wraps its cause and new requests stay rejected; no request
// is interrupted. It can be called any number of times.
func (d *Drainer) Drain(ctx context.Context) error {
	d.mu.Lock()
	draining, empty := d.channels()
	if !d.closed {
		d.closed = true
		close(draining)
		if d.inside == 0 {
			close(empty)
		}
	}
	d.mu.Unlock()
	select {
	case <-empty:
		return nil
	default: // an empty instance drains even when ctx has ended
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		d.mu.Lock()
		defer d.mu.Unlock()
		return fmt.Errorf("drain with %d requests inside: %w", d.inside, context.Cause(ctx))
	}
}
