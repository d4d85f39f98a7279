package sim

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"time"
)

// tally counts what has happened in all sequences.
type tally struct {
	mu        sync.Mutex
	sequences int
	seen      map[string]int
}

func (c *tally) add(one map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequences++
	for what, n := range one {
		c.seen[what] += n
	}
}

// mustHappen is what a full run has to have met: a simulation that no longer
// comes there proves nothing about it.
var mustHappen = []string{
	"delivery applied", "delivery duplicate", "delivery conflict", "delivery quarantined", "delivery failed", "delivery after the receipt has expired",
	"late commit", "resend",
	"crash at settle", "crash at settle, done", "crash at change", "crash at change, done", "crash at send", "crash at send, done", "crash at status, done",
	"send accepted", "send rejected", "send uncertain", "send not_sent", "send held", "send retry_later", "send manual",
	"status pending", "status confirmed", "status rejected", "status returned", "status not_found", "status unknown", "status manual", "status attention",
	"end confirmed", "end rejected", "end returned", "end manual", "end of a lie", "executed after not found",
	"duplicate that another delivery found out", "lost answer 200", "lost answer 500", "answer that comes too late", "push of a message that is under way", "push to an instance that stops",
	"dead-lettered", "redriven", "seek", "message sought back", "replay of everything",
	"instance " + asItShouldBe, "instance " + withoutABank, "instance " + withAnotherDefault, "instance stopped", "1 instances", "4 instances", "clock set",
}

// mustHappenInMany is what five times as many have to have met.
var mustHappenInMany = []string{"refused, and the bank has it"}

func init() {
	for _, f := range slices.Concat(Unsent, Unlooked, Damages) {
		mustHappen = append(mustHappen, "send: "+f.Name)
	}
	for _, f := range Repeats {
		mustHappenInMany = append(mustHappenInMany, "send: "+f.Name)
	}
	for _, f := range slices.Concat(Unread, Forgotten, Misread) {
		mustHappen = append(mustHappen, "status: "+f.Name)
	}
}

func (c *tally) report(t *testing.T, took time.Duration) {
	for _, what := range slices.Sorted(maps.Keys(c.seen)) {
		t.Logf("%8d  %s", c.seen[what], what)
	}
	settled := c.seen["payout settled"]
	t.Logf("%d sequences in %v; %d payouts (settlement IDs) settled and acknowledged, %d of them with a bank transfer: %.0f payouts a minute",
		c.sequences, took.Round(time.Millisecond), settled, c.seen["payout settled, with a transfer"], float64(settled)/took.Minutes())
	c.missed(t, sequences, mustHappen)
	c.missed(t, 5*sequences, mustHappenInMany)
}

// missed fails the test where so many sequences have not met what they must.
func (c *tally) missed(t *testing.T, in int, must []string) {
	for _, what := range must {
		if !t.Failed() && c.sequences >= in && c.seen[what] == 0 {
			t.Errorf("in %d sequences there was never: %s", c.sequences, what)
		}
	}
}
