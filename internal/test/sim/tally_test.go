package sim

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"time"
)

// tally counts the events of all sequences.
type tally struct {
	mu        sync.Mutex
	sequences int
	seen      map[string]int
}

func (c *tally) add(one map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequences++
	for event, n := range one {
		c.seen[event] += n
	}
}

// mustHappen are the events that every full run must contain: without them the
// simulation proves nothing about them.
var mustHappen = []string{
	"delivery applied", "delivery duplicate", "delivery conflict", "delivery quarantined", "delivery failed", "delivery after the receipt expired",
	"delivery conflict, known", "delivery quarantined, known", "redelivery decided by its first read",
	"dead connection at settle", "dead connection at quarantine", "dead connection at look", "dead connection at change",
	"read after a lost answer: applied", "read after a lost answer: duplicate", "read after a lost answer: conflict", "read after a lost answer: quarantined",
	"late commit", "resend",
	"crash at settle", "crash at settle, done", "crash at look", "crash at quarantine", "crash at change", "crash at change, done", "crash at send", "crash at send, done", "crash at status, done",
	"send accepted", "send rejected", "send uncertain", "send not_sent", "send held", "send retry_later", "send manual",
	"status pending", "status confirmed", "status rejected", "status returned", "status not_found", "status unknown", "status manual", "status attention",
	"end confirmed", "end rejected", "end returned", "end manual", "end after rejected, then executed", "executed after not found",
	"duplicate found by another delivery", "conflict found by another delivery", "lost answer 200", "lost answer 500", "late answer", "push of a message with another push", "push to a stopping instance",
	"dead-lettered", "redriven", "seek", "message sought back", "replay of everything",
	"instance " + correct, "instance " + withoutBank, "instance " + defaultEUR, "instance stopped", "1 instances", "4 instances", "clock set",
}

// mustHappenInMany are the events that five times as many sequences must contain.
var mustHappenInMany = []string{"refused after an execution"}

func init() {
	for _, f := range slices.Concat(unsentFaults, unreadFaults, answerFaults) {
		mustHappen = append(mustHappen, "send: "+f.name)
	}
	for _, f := range knownKeyFaults {
		mustHappenInMany = append(mustHappenInMany, "send: "+f.name)
	}
	for _, f := range slices.Concat(unknownFaults, notFoundFaults, wrongFaults) {
		mustHappen = append(mustHappen, "status: "+f.name)
	}
}

func (c *tally) report(t *testing.T, took time.Duration) {
	for _, event := range slices.Sorted(maps.Keys(c.seen)) {
		t.Logf("%8d  %s", c.seen[event], event)
	}
	settled := c.seen["payout settled"]
	t.Logf("%d sequences in %v; %d payouts (settlement IDs) settled and acknowledged, %d of them with a bank transfer: %.0f payouts a minute",
		c.sequences, took.Round(time.Millisecond), settled, c.seen["payout settled, with a transfer"], float64(settled)/took.Minutes())
	c.checkSeen(t, sequences, mustHappen)
	c.checkSeen(t, 5*sequences, mustHappenInMany)
}

// checkSeen fails the test if at least in sequences lack a required event.
func (c *tally) checkSeen(t *testing.T, in int, must []string) {
	for _, event := range must {
		if !t.Failed() && c.sequences >= in && c.seen[event] == 0 {
			t.Errorf("%d sequences without the event %q", c.sequences, event)
		}
	}
}
