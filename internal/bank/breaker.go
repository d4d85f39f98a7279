package bank

import (
	"sync"
	"time"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

const (
	// breakerWait is how long new sends wait.
	breakerWait = 30 * time.Second
	// breakerWindow is how many sends are remembered, and breakerLimit how many of
	// them may not be uncertain.
	breakerWindow = 20
	breakerLimit  = breakerWindow / 2

	detailBreakerOpen = "breaker open"
)

// breaker keeps new sends back while the bank, or our access to it, is broken:
// every send made then would be one more transfer to find out about. It is safe
// for concurrent use.
//
// It guards sends only. Status questions go on, since they are what clears the
// uncertain ones up, and they do not move it: a token that may send but not ask
// must not stop all sends.
type breaker struct {
	now func() time.Time

	mu        sync.Mutex
	openUntil time.Time
	// uncertain is a ring of the last sends that may have reached the bank.
	uncertain [breakerWindow]bool
	next      int
}

// wait returns how long sends have to wait still; zero for not at all.
func (b *breaker) wait() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, b.openUntil.Sub(b.now()))
}

// record takes note of a send. locked says that the bank did not let us in, or
// that TLS failed.
//
// The ring is not emptied when the breaker opens, and is looked at only after an
// uncertain send: the first send after the wait is a probe, which opens the
// breaker again at once if it is uncertain too, and not if it is not.
func (b *breaker) record(class transfer.SendClass, locked bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if class != transfer.SendNotSent { // what was not sent says nothing about the bank's answers
		b.uncertain[b.next] = class == transfer.SendUncertain
		b.next = (b.next + 1) % breakerWindow
	}
	if locked || class == transfer.SendUncertain && b.uncertainSends() >= breakerLimit {
		b.openUntil = b.now().Add(breakerWait)
	}
}

func (b *breaker) uncertainSends() int {
	n := 0
	for _, uncertain := range b.uncertain {
		if uncertain {
			n++
		}
	}
	return n
}
