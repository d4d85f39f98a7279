package fakebank

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Rule must hold whatever faults the bank made.
type Rule string

const (
	// RuleKeyOnce requires that no key is executed twice.
	RuleKeyOnce Rule = "a key is executed once"
	// RuleSettlementOnce requires that no settlement is executed twice, under any
	// keys. It needs [Bank.Expect] or Options.SettlementOf.
	RuleSettlementOnce Rule = "a settlement is executed once"
	// RuleOneKey requires that a settlement keeps its key. It needs [Bank.Expect].
	RuleOneKey Rule = "a settlement has one key"
	// RuleSameBytes requires that all sends of a key have the same body.
	RuleSameBytes Rule = "a key is sent with the same bytes"
	// RuleKeyForm requires that a key is a lower-case UUID of 36 characters.
	RuleKeyForm Rule = "a key is a UUID in lower case"
	// RuleKeyIsReference requires that the body's client_reference is the key.
	RuleKeyIsReference Rule = "the client_reference is the key"
)

// violate records a violation and fails the test.
func (b *Bank) violate(rule Rule, format string, args ...any) {
	text := fmt.Sprintf("%s: ", rule) + fmt.Sprintf(format, args...)
	b.violations = append(b.violations, text)
	if b.tb != nil {
		b.tb.Helper()
		b.tb.Errorf("fakebank: %s", text)
	}
}

// Violations returns the violations in order, and nil without any.
func (b *Bank) Violations() (texts []string) {
	b.locked(func(time.Time) { texts = slices.Clone(b.violations) })
	return texts
}

// Expect announces the key under which a settlement is paid. Another key for the
// settlement is a violation, announced or executed.
func (b *Bank) Expect(settlement, key string) {
	b.locked(func(time.Time) {
		if known, ok := b.keyOf[settlement]; ok && known != key {
			b.violate(RuleOneKey, "settlement %q has key %s, and now %s", settlement, known, key)
		}
		b.keyOf[settlement], b.expected[key] = key, settlement
		for _, t := range b.transfers {
			if t.Key == key && t.Settlement == "" {
				t.Settlement = settlement
				b.checkSettlement(t)
			}
		}
	})
}

// checkSend checks a complete send before the bank handles it.
func (b *Bank) checkSend(key string, s *keyState, body []byte) {
	s.received++
	if id, err := uuid.Parse(key); err != nil || id.String() != key {
		b.violate(RuleKeyForm, "key %q", key)
	}
	if s.first == nil {
		s.first = body
	}
	if !bytes.Equal(s.first, body) {
		b.violate(RuleSameBytes, "send %d of key %s differs from the first", s.received, key)
	}
}

// checkExecution checks a transfer after its execution.
func (b *Bank) checkExecution(t *transfer, s *keyState) {
	if n := len(s.executed); n > 1 {
		b.violate(RuleKeyOnce, "key %s is executed for the %d. time, at %s", t.Key, n, t.ExecutedAt.Format(time.RFC3339Nano))
	}
	b.checkSettlement(t)
}

func (b *Bank) checkSettlement(t *transfer) {
	if t.Settlement == "" {
		return
	}
	b.executions[t.Settlement]++
	if n := b.executions[t.Settlement]; n > 1 {
		b.violate(RuleSettlementOnce, "settlement %q is executed for the %d. time, now under key %s", t.Settlement, n, t.Key)
	}
}
