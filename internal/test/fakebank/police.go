package fakebank

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Rule is something that must never happen to the bank, whatever the bank did.
type Rule string

const (
	// RuleKeyOnce says that no key is executed twice.
	RuleKeyOnce Rule = "a key is executed once"
	// RuleSettlementOnce says that no settlement is executed twice, under
	// whatever keys. It needs [Bank.Expect] or Options.SettlementOf.
	RuleSettlementOnce Rule = "a settlement is executed once"
	// RuleOneKey says that a settlement has one key, for ever. It needs
	// [Bank.Expect].
	RuleOneKey Rule = "a settlement has one key"
	// RuleSameBytes says that all sends of a key have the same body.
	RuleSameBytes Rule = "a key is sent with the same bytes"
	// RuleKeyForm says that a key is a UUID in lower case, of 36 characters.
	RuleKeyForm Rule = "a key is a UUID in lower case"
	// RuleKeyIsReference says that the body's client_reference is the key.
	RuleKeyIsReference Rule = "the client_reference is the key"
)

// violate records a violation and fails the test.
func (b *Bank) violate(rule Rule, format string, args ...any) {
	if slices.Contains(b.options.Tolerate, rule) {
		return
	}
	text := fmt.Sprintf("%s: ", rule) + fmt.Sprintf(format, args...)
	b.violations = append(b.violations, text)
	if b.tb != nil {
		b.tb.Helper()
		b.tb.Errorf("fakebank: %s", text)
	}
}

// Violations returns what was against the rules, in order. It is empty as long as
// all is well.
func (b *Bank) Violations() (texts []string) {
	b.locked(func(time.Time) { texts = slices.Clone(b.violations) })
	return texts
}

// Expect says that the settlement is paid under the key. Executing it under
// another one is a violation, and so is expecting another one.
func (b *Bank) Expect(settlement, key string) {
	b.locked(func(time.Time) {
		if known, ok := b.keyOf[settlement]; ok && known != key {
			b.violate(RuleOneKey, "settlement %q has key %s, and now %s", settlement, known, key)
		}
		b.keyOf[settlement], b.expected[key] = key, settlement
		for _, t := range b.transfers {
			if t.Key == key && t.Settlement == "" {
				t.Settlement = settlement
				b.policeSettlement(t)
			}
		}
	})
}

// policeSend looks at a send that was read to its end, before anything else does.
func (b *Bank) policeSend(key string, s *keyState, body []byte) {
	if id, err := uuid.Parse(key); err != nil || id.String() != key {
		b.violate(RuleKeyForm, "key %q", key)
	}
	if s.first == nil {
		s.first = body
	}
	if !bytes.Equal(s.first, body) {
		b.violate(RuleSameBytes, "send %d of key %s differs from the first", s.Received, key)
	}
}

// policeExecution looks at a transfer that was just executed.
func (b *Bank) policeExecution(t *transfer, s *keyState) {
	if n := len(s.executed); n > 1 {
		b.violate(RuleKeyOnce, "key %s is executed for the %d. time, at %s", t.Key, n, t.ExecutedAt.Format(time.RFC3339Nano))
	}
	b.policeSettlement(t)
}

func (b *Bank) policeSettlement(t *transfer) {
	if t.Settlement == "" {
		return
	}
	b.executions[t.Settlement]++
	if n := b.executions[t.Settlement]; n > 1 {
		b.violate(RuleSettlementOnce, "settlement %q is executed for the %d. time, now under key %s", t.Settlement, n, t.Key)
	}
}
