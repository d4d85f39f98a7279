package event

import (
	"context"
	"fmt"
	"sync"
)

// Drainer lets an instance finish what it has begun before it stops. Every request
// enters before it works and leaves after it has answered; once the gate is
// draining nothing enters any more.
//
// The zero value is an open gate, and so is a nil *Gate, which can never be
// drained. A gate that has been closed does not open again. It is safe for
// concurrent use and must not be copied after its first use.
type Drainer struct {
	mu       sync.Mutex
	inside   int
	draining bool
	empty    chan struct{} // made by the first Drain; closed when nobody is inside
	notify   map[int]func()
	next     int // key in notify
}

// whenDraining calls f when the gate is closed, at once if it is already, until
// forget is called. It is for work that can end earlier than it would.
func (g *Drainer) whenDraining(f func()) (forget func()) {
	if g == nil {
		return func() {}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining {
		f()
		return func() {}
	}
	if g.notify == nil {
		g.notify = make(map[int]func())
	}
	key := g.next
	g.next++
	g.notify[key] = f
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.notify, key)
	}
}

// Enter reports whether work may begin. If so, leave must be called exactly once
// when it has ended; if not, leave does nothing.
func (g *Drainer) Enter() (leave func(), ok bool) {
	if g == nil {
		return func() {}, true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining {
		return func() {}, false
	}
	g.inside++
	return g.leave, true
}

func (g *Drainer) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.draining && g.inside == 0 {
		close(g.empty)
	}
}

// Drain closes the gate and waits until everyone inside has left. If ctx ends
// before that, the error wraps its cause and the gate stays closed; nobody inside
// is interrupted. It can be called any number of times.
func (g *Drainer) Drain(ctx context.Context) error {
	empty := g.shut()
	select {
	case <-empty:
		return nil
	default: // so that an empty gate drains even when ctx has ended
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		return fmt.Errorf("drain with %d still inside: %w", g.inside, context.Cause(ctx))
	}
}

// shut closes the gate and returns the channel that is closed when it is empty.
func (g *Drainer) shut() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.draining {
		g.draining = true
		for _, f := range g.notify {
			f()
		}
		g.empty = make(chan struct{})
		if g.inside == 0 {
			close(g.empty)
		}
	}
	return g.empty
}
