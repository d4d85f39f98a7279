package audit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Rule names a condition on rows. A name never changes its meaning.
type Rule string

// The rules about one settlement, by the row that breaks them.
const (
	RuleKey                 Rule = "settlement_key"       // a row's key is the SHA-256 of its ID
	RuleParent              Rule = "parent"               // no row without the movement, no event without the instruction
	RuleOnce                Rule = "once"                 // one movement, receipt, instruction and reversal at most
	RuleMovementHash        Rule = "movement_hash"        // the movement's columns hash to its payload hash
	RuleMovementFields      Rule = "movement_fields"      // a message can express the movement
	RuleReceiptMissing      Rule = "receipt_missing"      // a movement has a receipt until that has expired
	RuleReceiptHash         Rule = "receipt_hash"         // the receipt has the movement's payload hash
	RuleReceiptCommit       Rule = "receipt_commit"       // receipt and movement are of one commit
	RuleReceiptFields       Rule = "receipt_fields"       // the receipt is applied, names its delivery, and its metadata is an object of texts
	RuleInstructionWanted   Rule = "instruction_wanted"   // an instruction if, and only if, there is a creditor
	RuleInstructionTransfer Rule = "instruction_transfer" // key, amount, currency and creditor derive from the payout
	RuleSupersededKeys      Rule = "superseded_keys"      // one superseded key for each decision to send under a new one
	RuleInstructionBody     Rule = "instruction_body"     // the payout composes to the request body
	RuleEventChain          Rule = "event_chain"          // versions have no gap from 1; each event begins where the one before ended, and not before it
	RuleEventTransition     Rule = "event_transition"     // the state machine can make every event
	RuleInstructionState    Rule = "instruction_state"    // version and state are those of the last event
	RuleInstructionTimes    Rule = "instruction_times"    // created, accepted and final when the events say so
	RuleInstructionCheck    Rule = "instruction_check"    // an open instruction has a next check
	RuleUncertainSince      Rule = "uncertain_since"      // set to the key's time while the state is uncertain, else NULL
	RuleSends               Rule = "sends"                // the events account for the sends, which stay within the limit
	RuleResendWindow        Rule = "resend_window"        // the times of sends and the end of resending fit together
	RuleReversalMissing     Rule = "reversal_missing"     // a rejected or returned transfer has a reversal
	RuleReversalUnfounded   Rule = "reversal_unfounded"   // no other transfer has a reversal
	RuleReversalAmount      Rule = "reversal_amount"      // a reversal is of the movement's amount
	RuleConflictHash        Rule = "conflict_hash"        // a conflict's payload hash is its payload's, and not the movement's
	RuleConflictFields      Rule = "conflict_fields"      // a conflict names the members that differ
	RuleConflictPayload     Rule = "conflict_payload"     // a conflict's payload is a payout with its settlement ID
	RuleConflictTime        Rule = "conflict_time"        // a conflict is younger than its settlement
	RuleConflictResolution  Rule = "conflict_resolution"  // a closed conflict has a name and a time
	RuleBank                Rule = "bank"                 // the bank's status of the transfer is the instruction's state
)

// The rules about a message in quarantine.
const (
	RuleQuarantineIdentity Rule = "quarantine_identity" // the identity is the message's
	RuleQuarantineReason   Rule = "quarantine_reason"   // the decoder refuses the message for its reason
	RuleQuarantineRelease  Rule = "quarantine_release"  // it expires if, and only if, it was released
)

// Remedies that several rules share.
const (
	changedByHand = "rows were changed by hand: compare with a read before the change (point-in-time recovery), and with the producer's records"
	restore       = "restore the column from a read before the change (point-in-time recovery)"
	impossible    = "this schema rules it out: compare the schema with settlectl doctor, and contact Google's support"
	askBank       = "do not send it again; ask the bank about the idempotency key, and let a person decide"
	remedyPending = "no action yet; settlectl show has the next action and its time"
)

// remedies are the next steps of an operator.
var remedies = map[Rule]string{
	RuleKey:                 impossible,
	RuleUncertainSince:      "set uncertain_since again: it gives the age of uncertain instructions",
	RuleBank:                "see the history with settlectl show; a person decides, with the bank's own proof",
	RuleParent:              impossible,
	RuleOnce:                impossible,
	RuleMovementHash:        changedByHand,
	RuleMovementFields:      changedByHand,
	RuleReceiptMissing:      "the movement still recognises a replay; find out who deleted the receipt, and write none by hand",
	RuleReceiptHash:         restore,
	RuleReceiptCommit:       restore,
	RuleReceiptFields:       restore,
	RuleInstructionWanted:   changedByHand,
	RuleInstructionTransfer: askBank,
	RuleSupersededKeys:      askBank,
	RuleInstructionBody:     askBank,
	RuleEventChain:          changedByHand,
	RuleEventTransition:     changedByHand,
	RuleInstructionState:    askBank,
	RuleInstructionTimes:    restore,
	RuleInstructionCheck:    "set next_check_at to now: the reconciler then asks the bank and continues",
	RuleSends:               askBank,
	RuleResendWindow:        askBank,
	RuleReversalMissing:     "the account is still debited for a transfer that was not executed: book the reversal, with finance",
	RuleReversalUnfounded:   "the account is credited for a transfer that may have been executed: ask the bank, then finance",
	RuleReversalAmount:      "the account is credited with another amount than it was debited: correct it with finance",
	RuleConflictHash:        changedByHand,
	RuleConflictFields:      changedByHand,
	RuleConflictPayload:     changedByHand,
	RuleConflictTime:        restore,
	RuleConflictResolution:  "if the row has no name, close it again with settlectl resolve conflict; else restore the columns from a read before the change (point-in-time recovery)",

	RuleQuarantineIdentity: changedByHand,
	RuleQuarantineReason:   "the message may be a payout after all: settlectl check reads it; settlectl release publishes it again",
	RuleQuarantineRelease:  "if the row has no name, release it again with settlectl release; else restore the columns from a read before the change (point-in-time recovery)",
}

// Rules returns the names of all rules, sorted.
func Rules() []Rule { return slices.Sorted(maps.Keys(remedies)) }

// Violation is a broken rule.
type Violation struct {
	Rule Rule `json:"rule"`
	// SettlementID is empty for a message in quarantine.
	SettlementID string `json:"settlement_id,omitzero"`
	// Message is the identity of a message in quarantine; else empty.
	Message string `json:"message,omitzero"`
	// Found describes the rows, Want the rule. They quote no payload.
	Found string `json:"found"`
	Want  string `json:"want"`
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
	of   Violation // its SettlementID or Message
	list []Violation
}

// broken notes a violation. found can have verbs for args.
func (f *findings) broken(rule Rule, want, found string, args ...any) {
	v := f.of
	v.Rule, v.Want, v.Found = rule, want, fmt.Sprintf(found, args...)
	f.list = append(f.list, v)
}

// ok notes a violation unless the condition holds, and returns whether it does.
func (f *findings) ok(holds bool, rule Rule, want, found string, args ...any) bool {
	if !holds {
		f.broken(rule, want, found, args...)
	}
	return holds
}

// list joins names in a text.
func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
