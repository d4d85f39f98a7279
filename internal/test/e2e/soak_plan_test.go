//go:build soak

package e2e_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

const (
	soakDuplicates = 20 // percent of the messages
	soakConflicts  = 1  // percent of the messages
	soakTransfers  = 2  // percent of the payouts
	soakAccounts   = 100
	// soakNear is the number of latest payouts from which half of the duplicates are drawn.
	// Many of these payouts are still in flight.
	soakNear = soakConcurrency
)

// dice draws the plan.
type dice struct{ *rand.Rand }

// soakPayout is a payout of the plan.
type soakPayout struct {
	settlementID, account, creditor string // creditor is empty for a payout without a bank
	cents                           int64
	messageID                       string
	settled                         chan struct{} // closed after the answer to the first message
}

func (p soakPayout) data() string {
	return fmt.Sprintf(`{"settlement_id":%q,"account_id":%q,"amount_cents":%d%s}`, p.settlementID, p.account, p.cents, p.creditorMember())
}

// publishedAgain returns the same payout in another form, with metadata.
func (p soakPayout) publishedAgain() string {
	return fmt.Sprintf(`{ "amount_cents": %d%s, "metadata": {"attempt": "2"}, "account_id": %q, "settlement_id": %q }`,
		p.cents, p.creditorMember(), p.account, p.settlementID)
}

func (p soakPayout) creditorMember() string {
	if p.creditor == "" {
		return ""
	}
	return fmt.Sprintf(`,"creditor_account":%q`, p.creditor)
}

// soakMessage is a delivery of the plan, and its answer.
type soakMessage struct {
	// want is the planned outcome. A duplicate in flight beside its payout's first message
	// can be applied instead of it.
	want     settle.Outcome
	payout   *soakPayout
	id, data string
	answer   answer
}

// wait waits until the message may be delivered. A conflict must arrive after its payout
// is settled; otherwise it would be applied.
func (m *soakMessage) wait() {
	if m.want == settle.OutcomeConflict {
		<-m.payout.settled
	}
}

func (m *soakMessage) answered() {
	if m.want == settle.OutcomeApplied {
		close(m.payout.settled)
	}
}

// draw returns n random messages.
func (s *soak) draw(n int) []*soakMessage {
	wants := s.outcomes(n)
	var (
		messages  []*soakMessage
		payouts   []*soakPayout
		conflicts []*soakMessage
	)
	for i, want := range wants {
		m := &soakMessage{want: want, id: fmt.Sprintf("%d-%d", s.payouts, i)}
		switch want {
		case settle.OutcomeApplied:
			m.payout = s.newPayout(m.id)
			m.data = m.payout.data()
			payouts = append(payouts, m.payout)
		case settle.OutcomeDuplicate:
			s.duplicate(m, payouts)
		case settle.OutcomeConflict:
			if len(conflicts) > 0 && s.dice.IntN(2) == 0 {
				first := conflicts[s.dice.IntN(len(conflicts))]
				m.payout, m.id, m.data = first.payout, first.id, first.data
				break
			}
			s.conflict(m, payouts)
			conflicts = append(conflicts, m)
		case settle.OutcomeQuarantined, settle.OutcomeUnknown: // not planned
		}
		messages = append(messages, m)
	}
	return messages
}

// outcomes returns the planned outcomes in random order. The first is a new payout.
func (s *soak) outcomes(n int) []settle.Outcome {
	wants := make([]settle.Outcome, n)
	for i := range wants {
		switch {
		case i < n*soakConflicts/100:
			wants[i] = settle.OutcomeConflict
		case i < n*(soakConflicts+soakDuplicates)/100:
			wants[i] = settle.OutcomeDuplicate
		default:
			wants[i] = settle.OutcomeApplied
		}
	}
	s.dice.Shuffle(n-1, func(i, j int) { wants[i], wants[j] = wants[j], wants[i] })
	wants[0], wants[n-1] = wants[n-1], wants[0] // Shuffle left the last, a new payout, in its place
	return wants
}

func (s *soak) newPayout(messageID string) *soakPayout {
	s.payouts++
	p := &soakPayout{
		settlementID: fmt.Sprintf("soak-%d", s.payouts),
		account:      fmt.Sprintf("account-%d", s.dice.IntN(soakAccounts)),
		cents:        1 + s.dice.Int64N(1_000_000),
		messageID:    messageID,
		settled:      make(chan struct{}),
	}
	if s.dice.IntN(100) < soakTransfers {
		p.creditor = fmt.Sprintf("cp-%d", s.payouts)
		s.bank.Expect(p.settlementID, transfer.InstructionKey(p.settlementID).String())
	}
	return p
}

// duplicate makes m a redelivery of an earlier payout's first message, or the payout
// published again.
func (s *soak) duplicate(m *soakMessage, payouts []*soakPayout) {
	from := 0
	if s.dice.IntN(2) == 0 {
		from = max(0, len(payouts)-soakNear)
	}
	m.payout = payouts[from+s.dice.IntN(len(payouts)-from)]
	if s.dice.IntN(2) == 0 {
		m.id, m.data = m.payout.messageID, m.payout.data()
		return
	}
	m.data = m.payout.publishedAgain()
}

// conflict makes m a changed payload of an earlier payout.
func (s *soak) conflict(m *soakMessage, payouts []*soakPayout) {
	m.payout = payouts[s.dice.IntN(len(payouts))]
	changed := *m.payout
	if s.dice.IntN(2) == 0 {
		changed.cents += 1 + s.dice.Int64N(100)
	} else {
		changed.account = fmt.Sprintf("other-%d", s.dice.IntN(soakAccounts))
	}
	m.data = changed.data()
}
