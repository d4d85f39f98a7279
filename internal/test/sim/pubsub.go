package sim

import (
	"fmt"
	"slices"
	"time"
)

// PubSub is a topic with one push subscription and its dead-letter topic, as
// Pub/Sub promises them: a message is delivered until a push of it is answered
// 200 in time and that answer arrives, in any order, at any time, and more often
// than that whenever Pub/Sub likes. It knows no clock, and it draws nothing: what
// happens next is the caller's choice. It is not safe for concurrent use.
type PubSub struct {
	// AckDeadline is how long a push waits for its answer.
	AckDeadline time.Duration
	// MaxAttempts is how many pushes a message gets before it is dead-lettered.
	MaxAttempts int
	// MinBackoff and MaxBackoff bound the wait before a message is pushed again; it
	// doubles with each attempt.
	MinBackoff, MaxBackoff time.Duration
	// Messages are all messages that were ever published, in that order: a seek can
	// bring each of them back.
	Messages []*Message
	// DeadLetters are the messages on the dead-letter topic.
	DeadLetters []*Message

	published map[string]int
}

// Message is a message and where it stands. A dead letter has an ID of its own.
type Message struct {
	ID          string
	PublishTime time.Time
	Data        []byte
	// DeadLetterOf is the ID of the message that was dead-lettered; empty where it
	// is none, nor published from one.
	DeadLetterOf string

	// Attempts counts the pushes.
	Attempts int
	// Acked says that Pub/Sub has no more to do with it, unless it is sought; Dead
	// that this is so because it was dead-lettered.
	Acked, Dead bool
	// NotBefore is when the next push is due.
	NotBefore time.Time
	// Pushes are the pushes that wait for an answer.
	Pushes []*Push

	name string
}

// Push is one request that carries a message.
type Push struct {
	Message  *Message
	Attempt  int
	Deadline time.Time
}

// Publish takes a message. Its ID is the name with a number.
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

// Waiting returns the messages that are to be pushed by then.
func (s *PubSub) Waiting(by time.Time) []*Message {
	var all []*Message
	for _, m := range s.Messages {
		if !m.Acked && len(m.Pushes) == 0 && !by.Before(m.NotBefore) {
			all = append(all, m)
		}
	}
	return all
}

// NextWaiting returns when the next message is to be pushed; false for none.
func (s *PubSub) NextWaiting() (next time.Time, found bool) {
	for _, m := range s.Messages {
		if !m.Acked && len(m.Pushes) == 0 && (!found || m.NotBefore.Before(next)) {
			next, found = m.NotBefore, true
		}
	}
	return next, found
}

// Push begins a push. Any message can be pushed at any time, an acknowledged one
// or one that is under way too: delivery is at least once.
func (s *PubSub) Push(m *Message, at time.Time) *Push {
	m.Attempts++
	p := &Push{Message: m, Attempt: m.Attempts, Deadline: at.Add(s.AckDeadline)}
	m.Pushes = append(m.Pushes, p)
	return p
}

// Waits tells whether the push still waits for an answer.
func (p *Push) Waits() bool { return slices.Contains(p.Message.Pushes, p) }

func (p *Push) end() {
	p.Message.Pushes = slices.DeleteFunc(p.Message.Pushes, func(o *Push) bool { return o == p })
}

// Ack ends a push whose answer was 200.
func (s *PubSub) Ack(p *Push) {
	p.end()
	p.Message.Acked = true
}

// Nack ends a push that got another answer, or none in time. It returns the dead
// letter where that was the last attempt, and nil otherwise.
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

// Seekable returns how many of the messages a seek may go back to the publish
// time of: to one that comes after a message which is not acknowledged, and the
// seek would acknowledge that.
func (s *PubSub) Seekable() int {
	for i, m := range s.Messages {
		if !m.Acked {
			return i + 1
		}
	}
	return len(s.Messages)
}

// Seek makes all messages that were published at that time or later not
// acknowledged, and returns them.
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
