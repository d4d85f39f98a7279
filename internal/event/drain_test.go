package event

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestDrainWaitsForRequestsInProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Drainer
		first, ok := g.Enter()
		if !ok {
			t.Fatal("an open gate refuses")
		}
		second, _ := g.Enter()

		drained := make(chan error, 2)
		for range cap(drained) {
			go func() { drained <- g.Drain(t.Context()) }()
		}
		synctest.Wait()
		if leave, ok := g.Enter(); ok {
			t.Error("a draining gate lets in")
		} else {
			leave() // does nothing
		}
		first()
		synctest.Wait()
		if len(drained) != 0 {
			t.Fatal("drained with one still inside")
		}
		second()
		for range cap(drained) {
			if err := <-drained; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestDrainTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Drainer
		leave, _ := g.Enter()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := g.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want a deadline", err)
		}
		if _, ok := g.Enter(); ok {
			t.Error("the gate opened again")
		}
		leave()
		if err := g.Drain(ctx); err != nil {
			t.Errorf("an empty gate does not drain under a context that has ended: %v", err)
		}
	})
}

func TestNilDrainerAdmitsRequests(t *testing.T) {
	t.Parallel()
	var g *Drainer
	leave, ok := g.Enter()
	if !ok {
		t.Error("a nil gate refuses")
	}
	leave()
}

// TestDrainDuringConcurrentRequests has many enter and leave while the gate is drained; after
// Drain nobody may be inside.
func TestDrainDuringConcurrentRequests(t *testing.T) {
	t.Parallel()
	var (
		g      Drainer
		inside atomic.Int64
		wg     sync.WaitGroup
		warm   = make(chan struct{}, 16)
	)
	for range cap(warm) {
		wg.Go(func() {
			for i := 0; ; i++ {
				leave, ok := g.Enter()
				if !ok {
					return
				}
				inside.Add(1)
				if i == 100 {
					warm <- struct{}{}
				}
				inside.Add(-1)
				leave()
			}
		})
	}
	for range cap(warm) {
		<-warm
	}
	if err := g.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := inside.Load(); n != 0 {
		t.Errorf("%d are inside a drained gate", n)
	}
	wg.Wait()
}
