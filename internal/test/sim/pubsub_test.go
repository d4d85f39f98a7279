package sim

import (
	"slices"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func newPubSub() *PubSub {
	return &PubSub{AckDeadline: time.Minute, MaxAttempts: 5, MinBackoff: 10 * time.Second, MaxBackoff: 30 * time.Second}
}

func TestPubSubDeadLettersAfterTheLastAttempt(t *testing.T) {
	t.Parallel()
	s, now := newPubSub(), noon
	m := s.Publish("a", []byte("data"), now)
	var waits []time.Duration
	for attempt := 1; attempt <= 5; attempt++ {
		if waiting := s.Waiting(now); !slices.Contains(waiting, m) {
			t.Fatalf("attempt %d: waiting %v", attempt, waiting)
		}
		p := s.Push(m, now)
		if p.Attempt != attempt || !p.Waits() || len(s.Waiting(now.Add(time.Hour))) > 0 {
			t.Errorf("attempt %d has the number %d, is open: %t, and waits for another push", attempt, p.Attempt, p.Waits())
		}
		dead := s.Nack(p, now)
		if (dead != nil) != (attempt == 5) {
			t.Fatalf("attempt %d: dead letter %v", attempt, dead)
		}
		waits = append(waits, m.NotBefore.Sub(now))
		now = m.NotBefore
	}
	if want := []time.Duration{10e9, 20e9, 30e9, 30e9, 30e9}; !slices.Equal(waits, want) {
		t.Errorf("backoff %v, want %v", waits, want)
	}
	if !m.Dead || len(s.DeadLetters) != 1 || s.DeadLetters[0].DeadLetterOf != m.ID || s.DeadLetters[0].ID == m.ID {
		t.Fatalf("message %+v, dead letters %+v", m, s.DeadLetters)
	}
	again := s.Redrive(s.DeadLetters[0], now)
	if again.ID == m.ID || string(again.Data) != "data" || len(s.DeadLetters) > 0 || !slices.Equal(s.Waiting(now), []*Message{again}) {
		t.Errorf("published again as %+v; waiting %v", again, s.Waiting(now))
	}
}

func TestPubSubKeepsUnacknowledgedMessages(t *testing.T) {
	t.Parallel()
	s := newPubSub()
	a, b := s.Publish("a", nil, noon), s.Publish("a", nil, noon.Add(time.Second))
	first, second := s.Push(a, noon), s.Push(a, noon) // delivery is at least once
	s.Ack(first)
	if dead := s.Nack(second, noon); dead != nil || !a.Acked || a.Dead {
		t.Errorf("after the acknowledgement %+v, dead letter %v", a, dead)
	}
	if waiting := s.Waiting(noon.Add(time.Hour)); !slices.Equal(waiting, []*Message{b}) {
		t.Errorf("waiting %v", waiting)
	}
	if next, found := s.NextWaiting(); !found || !next.Equal(b.NotBefore) {
		t.Errorf("next push at %v, %t", next, found)
	}
	s.Ack(s.Push(b, noon))
	if _, found := s.NextWaiting(); found {
		t.Error("a push is due, and all messages are acknowledged")
	}
}

func TestPubSubSeeksBack(t *testing.T) {
	t.Parallel()
	s := newPubSub()
	var all []*Message
	for n := range 4 {
		all = append(all, s.Publish("a", nil, noon.Add(time.Duration(n)*time.Second)))
	}
	s.Ack(s.Push(all[0], noon))
	s.Ack(s.Push(all[2], noon))
	if n := s.Seekable(); n != 2 {
		t.Errorf("%d messages are seekable, and the second is not acknowledged", n)
	}
	s.Ack(s.Push(all[1], noon))
	s.Ack(s.Push(all[3], noon))
	if n := s.Seekable(); n != 4 {
		t.Errorf("%d messages are seekable", n)
	}
	if back := s.Seek(all[2].PublishTime); !slices.Equal(back, all[2:]) || !slices.Equal(s.Waiting(noon), all[2:]) {
		t.Errorf("sought back %v, waiting %v", back, s.Waiting(noon))
	}
	if all[2].Attempts != 0 || !all[1].Acked {
		t.Errorf("messages %+v %+v", all[1], all[2])
	}
}
