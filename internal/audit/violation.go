package audit

import (
	"fmt"
	"strings"
)

// Rule names what must be true. A name never changes its meaning.
type Rule string

// The rules about one settlement, by the row that breaks them.
const (
	// RuleParent: no row without the movement, and no event without the instruction.
	RuleParent Rule = "parent"
	// RuleOnce: one movement, receipt, instruction and reversal at most.
	RuleOnce Rule = "once"
	// RuleMovementHash: the movement's columns hash to its payload hash.
	RuleMovementHash Rule = "movement_hash"
	// RuleMovementFields: the movement is a payout that a message can say.
	RuleMovementFields Rule = "movement_fields"
	// RuleReceiptMissing: a movement has a receipt until that has expired.
	RuleReceiptMissing Rule = "receipt_missing"
	// RuleReceiptHash: the receipt has the movement's payload hash.
	RuleReceiptHash Rule = "receipt_hash"
	// RuleReceiptCommit: receipt and movement are of one commit.
	RuleReceiptCommit Rule = "receipt_commit"
	// RuleReceiptFields: the receipt says applied, by which delivery, and its
	// metadata is an object of texts.
	RuleReceiptFields Rule = "receipt_fields"
	// RuleReceiptExpiry: the receipt's expiry begins with the final outcome.
	RuleReceiptExpiry Rule = "receipt_expiry"
	// RuleInstructionWanted: an instruction if, and only if, there is a creditor.
	RuleInstructionWanted Rule = "instruction_wanted"
	// RuleInstructionTransfer: key, amount, currency and creditor derive from the payout.
	RuleInstructionTransfer Rule = "instruction_transfer"
	// RuleSupersededKeys: one key given up for each decision to send under a new one.
	RuleSupersededKeys Rule = "superseded_keys"
	// RuleInstructionBody: the request body is what the payout composes to.
	RuleInstructionBody Rule = "instruction_body"
	// RuleEventChain: the events' versions have no gap from 1, and each begins where
	// the one before ended, and not before it.
	RuleEventChain Rule = "event_chain"
	// RuleEventTransition: the state machine can make every event.
	RuleEventTransition Rule = "event_transition"
	// RuleInstructionState: version and state are those of the last event.
	RuleInstructionState Rule = "instruction_state"
	// RuleInstructionTimes: created, accepted and final when the events say so.
	RuleInstructionTimes Rule = "instruction_times"
	// RuleInstructionCheck: an open instruction is looked at again.
	RuleInstructionCheck Rule = "instruction_check"
	// RuleSends: as many sends as the events account for, and no more than allowed.
	RuleSends Rule = "sends"
	// RuleResendWindow: the times of sends, and the one after which none is made.
	RuleResendWindow Rule = "resend_window"
	// RuleReversalMissing: a rejected or returned transfer has a reversal.
	RuleReversalMissing Rule = "reversal_missing"
	// RuleReversalUnfounded: no other has one.
	RuleReversalUnfounded Rule = "reversal_unfounded"
	// RuleReversalAmount: a reversal is of the movement's amount.
	RuleReversalAmount Rule = "reversal_amount"
	// RuleConflictHash: a conflict's payload hash is its payload's, and another one
	// than the movement's.
	RuleConflictHash Rule = "conflict_hash"
	// RuleConflictFields: a conflict names the members that differ.
	RuleConflictFields Rule = "conflict_fields"
	// RuleConflictPayload: a conflict's payload is a payout with its settlement ID.
	RuleConflictPayload Rule = "conflict_payload"
	// RuleConflictDeliveries: a conflict's count and times fit together.
	RuleConflictDeliveries Rule = "conflict_deliveries"
	// RuleConflictResolution: a closed conflict says who closed it and when.
	RuleConflictResolution Rule = "conflict_resolution"
)

// The rules about a message in quarantine.
const (
	// RuleQuarantineIdentity: the identity is that of the message.
	RuleQuarantineIdentity Rule = "quarantine_identity"
	// RuleQuarantineReason: the message is refused for its reason.
	RuleQuarantineReason Rule = "quarantine_reason"
	// RuleQuarantineDeliveries: it was delivered.
	RuleQuarantineDeliveries Rule = "quarantine_deliveries"
	// RuleQuarantineRelease: it expires if, and only if, somebody released it.
	RuleQuarantineRelease Rule = "quarantine_release"
)

// Violation is a rule that does not hold.
type Violation struct {
	Rule Rule
	// SettlementID says of which settlement; empty for a message in quarantine.
	SettlementID string
	// Message is the identity of a message in quarantine; else empty.
	Message string
	// Found says what is there, Want what should be. They quote no payload.
	Found, Want string
}

// String returns the violation as one line.
func (v Violation) String() string {
	of := fmt.Sprintf("settlement %q", v.SettlementID)
	if v.Message != "" {
		of = "quarantined message " + v.Message
	}
	return fmt.Sprintf("%s: %s; %s", of, v.Found, v.Want)
}

// findings gathers the violations of one settlement or message.
type findings struct {
	of   Violation // whose
	list []Violation
}

// broken notes a violation. found can have verbs for args.
func (f *findings) broken(rule Rule, want, found string, args ...any) {
	v := f.of
	v.Rule, v.Want, v.Found = rule, want, fmt.Sprintf(found, args...)
	f.list = append(f.list, v)
}

// ok notes a violation unless it holds.
func (f *findings) ok(holds bool, rule Rule, want, found string, args ...any) bool {
	if !holds {
		f.broken(rule, want, found, args...)
	}
	return holds
}

// words joins names for a person.
func words(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
