package bank

import (
	"sync"
	"time"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

const (
	// breakerWait is the time for which an open breaker holds sends back.
	breakerWait = 30 * time.Second
	// breakerLimit uncertain sends among the last breakerWindow open the breaker.
	breakerWindow = 20
	breakerLimit  = breakerWindow / 2

	detailBreakerOpen = "breaker open"
)

// breaker holds new sends back while the bank, or the access to it, is broken: each
// further send would be one more uncertain transfer. It is safe for concurrent use.
//
// It guards sends only. Status requests go on, because they resolve uncertain
// transfers. Their results do not count: a token without the right to read must not
// stop all sends.
type breaker struct {
	now func() time.Time

	mu        sync.Mutex
	openUntil time.Time
	// uncertain is a ring of the last sends that may have reached the bank.
	uncertain [breakerWindow]bool
	next      int
}

// wait returns the time until the breaker closes; 0 if it is closed.
func (b *breaker) wait() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, b.openUntil.Sub(b.now()))
}

// record records a send. denied says that the bank rejected the credentials, or that
// TLS failed.
//
// The ring keeps its entries when the breaker opens, and counts only after an
// uncertain send. So the first send after the wait is a probe: it opens the breaker
// again if it is uncertain.
func (b *breaker) record(class transfer.SendClass, denied bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if class != transfer.SendNotSent { // such a send says nothing about the bank's answers
		b.uncertain[b.next] = class == transfer.SendUncertain
		b.next = (b.next + 1) % breakerWindow
	}
	if denied || class == transfer.SendUncertain && b.uncertainSends() >= breakerLimit {
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
