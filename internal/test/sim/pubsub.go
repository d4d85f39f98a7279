package sim

import (
	"fmt"
	"slices"
	"time"
)

// PubSub is a model of a topic with one push subscription and a dead-letter topic.
// As Pub/Sub does, it delivers a message at least once, in any order and at any
// time, until it receives a 200 before the ack deadline. It has no clock and draws
// nothing: callers decide. It is not safe for concurrent use.
type PubSub struct {
	// AckDeadline is the time within which a push must be answered.
	AckDeadline time.Duration
	// MaxAttempts is the number of pushes before a message is dead-lettered.
	MaxAttempts int
	// MinBackoff and MaxBackoff bound the time between two pushes of a message; it
	// doubles with each attempt.
	MinBackoff, MaxBackoff time.Duration
	// Messages are all published messages in order. Acknowledged ones stay, because
	// a seek can bring them back.
	Messages []*Message
	// DeadLetters are the messages on the dead-letter topic.
	DeadLetters []*Message

	published map[string]int
}

// Message is a message and its delivery state. A dead letter has its own ID.
type Message struct {
	ID          string
	PublishTime time.Time
	Data        []byte
	// DeadLetterOf is the ID of the dead-lettered message, for its dead letter and
	// for messages published again from that; empty otherwise.
	DeadLetterOf string

	// Attempts counts the pushes.
	Attempts int
	// Acked says that Pub/Sub delivers the message no more, unless a seek brings it
	// back; Dead that the reason is a dead letter.
	Acked, Dead bool
	// NotBefore is the time of the next push.
	NotBefore time.Time
	// Pushes are the pushes without an answer.
	Pushes []*Push

	name string
}

// Push is one push request of a message.
type Push struct {
	Message  *Message
	Attempt  int
	Deadline time.Time
}

// Publish publishes a message. Its ID is the name with a number.
func (s *PubSub) Publish(name string, data []byte, at time.Time) *Message {
	m := s.message(name, data, at)
	s.Messages = append(s.Messages, m)
	return m
}

func (s *PubSub) message(name string, data []byte, at time.Time) *Message {
	if s.published == nil {
		s.published = map[string]int{}
	}
	s.published[name]++
	return &Message{ID: fmt.Sprintf("%s.%d", name, s.published[name]), PublishTime: at, Data: data, name: name}
}

// Waiting returns the messages whose next push is due by then.
func (s *PubSub) Waiting(by time.Time) []*Message {
	var all []*Message
	for _, m := range s.Messages {
		if !m.Acked && len(m.Pushes) == 0 && !by.Before(m.NotBefore) {
			all = append(all, m)
		}
	}
	return all
}

// NextWaiting returns the time of the next push, or false without one.
func (s *PubSub) NextWaiting() (next time.Time, found bool) {
	for _, m := range s.Messages {
		if !m.Acked && len(m.Pushes) == 0 && (!found || m.NotBefore.Before(next)) {
			next, found = m.NotBefore, true
		}
	}
	return next, found
}

// Push begins a push. Any message can be pushed at any time, acknowledged ones and
// those with another push included: delivery is at least once.
func (s *PubSub) Push(m *Message, at time.Time) *Push {
	m.Attempts++
	p := &Push{Message: m, Attempt: m.Attempts, Deadline: at.Add(s.AckDeadline)}
	m.Pushes = append(m.Pushes, p)
	return p
}

// Waits reports whether the push has no answer yet.
func (p *Push) Waits() bool { return slices.Contains(p.Message.Pushes, p) }

func (p *Push) end() {
	p.Message.Pushes = slices.DeleteFunc(p.Message.Pushes, func(o *Push) bool { return o == p })
}

// Ack ends a push with the answer 200.
func (s *PubSub) Ack(p *Push) {
	p.end()
	p.Message.Acked = true
}

// Nack ends a push with any other answer, or at its deadline. After the last
// attempt it returns the dead letter, otherwise nil.
func (s *PubSub) Nack(p *Push, at time.Time) *Message {
	m := p.Message
	p.end()
	m.NotBefore = at.Add(min(s.MinBackoff<<min(p.Attempt-1, 20), s.MaxBackoff))
	if m.Acked || m.Attempts < s.MaxAttempts {
		return nil
	}
	m.Acked, m.Dead = true, true
	dead := s.message(m.name, m.Data, at)
	dead.DeadLetterOf = m.ID
	s.DeadLetters = append(s.DeadLetters, dead)
	return dead
}

// Redrive publishes a dead letter again, as an operator does.
func (s *PubSub) Redrive(dead *Message, at time.Time) *Message {
	s.DeadLetters = slices.DeleteFunc(s.DeadLetters, func(o *Message) bool { return o == dead })
	m := s.Publish(dead.name, dead.Data, at)
	m.DeadLetterOf = dead.DeadLetterOf
	return m
}

// Seekable returns the number of messages whose publish time a seek may go back
// to. A later seek would acknowledge a message that is not acknowledged yet.
func (s *PubSub) Seekable() int {
	for i, m := range s.Messages {
		if !m.Acked {
			return i + 1
		}
	}
	return len(s.Messages)
}

// Seek marks all messages published at that time or later as not acknowledged and not
// dead-lettered, and returns them.
func (s *PubSub) Seek(to time.Time) []*Message {
	var back []*Message
	for _, m := range s.Messages {
		if !m.PublishTime.Before(to) {
			m.Acked, m.Dead, m.Attempts, m.NotBefore = false, false, 0, time.Time{}
			back = append(back, m)
		}
	}
	return back
}
