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
		var d Drainer
		first, ok := d.Enter()
		if !ok {
			t.Fatal("a new drainer rejects requests")
		}
		second, _ := d.Enter()

		drained := make(chan error, 2)
		for range cap(drained) {
			go func() { drained <- d.Drain(t.Context()) }()
		}
		synctest.Wait()
		if leave, ok := d.Enter(); ok {
			t.Error("a draining drainer admits requests")
		} else {
			leave() // does nothing
		}
		first()
		synctest.Wait()
		if len(drained) != 0 {
			t.Fatal("drained with a request in progress")
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
		var d Drainer
		leave, _ := d.Enter()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := d.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want a deadline", err)
		}
		if _, ok := d.Enter(); ok {
			t.Error("the drainer admits requests after its time limit")
		}
		leave()
		if err := d.Drain(ctx); err != nil {
			t.Errorf("an empty drainer does not drain after the context's end: %v", err)
		}
	})
}

func TestNilDrainerAdmitsRequests(t *testing.T) {
	t.Parallel()
	var d *Drainer
	leave, ok := d.Enter()
	if !ok {
		t.Error("a nil drainer rejects requests")
	}
	leave()
}

func TestDrainDuringConcurrentRequests(t *testing.T) {
	t.Parallel()
	var (
		d      Drainer
		inside atomic.Int64
		wg     sync.WaitGroup
		warm   = make(chan struct{}, 16)
	)
	for range cap(warm) {
		wg.Go(func() {
			for i := 0; ; i++ {
				leave, ok := d.Enter()
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
	if err := d.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := inside.Load(); n != 0 {
		t.Errorf("%d requests in progress after Drain", n)
	}
	wg.Wait()
}
