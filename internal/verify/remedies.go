package verify

import "github.com/settleonce/settleonce/internal/snapshot"

const (
	byHand        = "somebody has changed rows by hand: compare with a read before that (point-in-time recovery), and with the producer's records"
	restore       = "restore the column from a read before the change (point-in-time recovery)"
	remedyPending = "nothing yet; settlectl show says what happens next, and when"
	askBank       = "do not send it again; ask the bank about the idempotency key, and let a person decide"
)

// remedies say what to do about a broken rule.
var remedies = map[snapshot.Rule]string{
	RuleKey:                          "this cannot come about in this schema: compare the schema with settlectl doctor, and ask Google's support",
	RuleUncertainSince:               "set uncertain_since again: the age of uncertain instructions is measured by it",
	RuleBank:                         "settlectl show has the history; a person decides, with the bank's own proof",
	snapshot.RuleParent:              "this cannot come about in this schema: compare the schema with settlectl doctor, and ask Google's support",
	snapshot.RuleOnce:                "this cannot come about in this schema: compare the schema with settlectl doctor, and ask Google's support",
	snapshot.RuleMovementHash:        byHand,
	snapshot.RuleMovementFields:      byHand,
	snapshot.RuleReceiptMissing:      "a replay is still recognised by the movement; find out who deleted the receipt, and write none by hand",
	snapshot.RuleReceiptHash:         restore,
	snapshot.RuleReceiptCommit:       restore,
	snapshot.RuleReceiptFields:       restore,
	snapshot.RuleReceiptExpiry:       "set expire_from to the time of the final outcome, or to NULL while there is none: until then the receipt goes too early, or never",
	snapshot.RuleInstructionWanted:   byHand,
	snapshot.RuleInstructionTransfer: askBank,
	snapshot.RuleSupersededKeys:      askBank,
	snapshot.RuleInstructionBody:     askBank,
	snapshot.RuleEventChain:          byHand,
	snapshot.RuleEventTransition:     byHand,
	snapshot.RuleInstructionState:    askBank,
	snapshot.RuleInstructionTimes:    restore,
	snapshot.RuleInstructionCheck:    "set next_check_at to now: the reconciler asks the bank and goes on",
	snapshot.RuleSends:               askBank,
	snapshot.RuleResendWindow:        askBank,
	snapshot.RuleReversalMissing:     "the account is still debited for a transfer that was not executed: book the reversal, with finance",
	snapshot.RuleReversalUnfounded:   "the account is credited for a transfer that may have been executed: ask the bank, then finance",
	snapshot.RuleReversalAmount:      "the account is credited with another amount than it was debited: correct it with finance",
	snapshot.RuleConflictHash:        byHand,
	snapshot.RuleConflictFields:      byHand,
	snapshot.RuleConflictPayload:     byHand,
	snapshot.RuleConflictDeliveries:  restore,
	snapshot.RuleConflictResolution:  "settlectl resolve conflict closes it whole, where no name is kept; else restore the columns from a read before (point-in-time recovery)",

	snapshot.RuleQuarantineIdentity:   byHand,
	snapshot.RuleQuarantineReason:     "the message may be a payout after all: settlectl check reads it; settlectl release publishes it again",
	snapshot.RuleQuarantineDeliveries: restore,
	snapshot.RuleQuarantineRelease:    "settlectl release publishes it again and marks it whole, where no name is kept; else restore the columns from a read before (point-in-time recovery)",
}
