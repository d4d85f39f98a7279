package audit

const (
	byHand        = "somebody has changed rows by hand: compare with a read before that (point-in-time recovery), and with the producer's records"
	restore       = "restore the column from a read before the change (point-in-time recovery)"
	remedyPending = "nothing yet; settlectl show says what happens next, and when"
	askBank       = "do not send it again; ask the bank about the idempotency key, and let a person decide"
)

// remedies say what to do about a broken rule.
var remedies = map[Rule]string{
	RuleKey:                 "this cannot come about in this schema: compare the schema with settlectl doctor, and ask Google's support",
	RuleUncertainSince:      "set uncertain_since again: the age of uncertain instructions is measured by it",
	RuleBank:                "settlectl show has the history; a person decides, with the bank's own proof",
	RuleParent:              "this cannot come about in this schema: compare the schema with settlectl doctor, and ask Google's support",
	RuleOnce:                "this cannot come about in this schema: compare the schema with settlectl doctor, and ask Google's support",
	RuleMovementHash:        byHand,
	RuleMovementFields:      byHand,
	RuleReceiptMissing:      "a replay is still recognised by the movement; find out who deleted the receipt, and write none by hand",
	RuleReceiptHash:         restore,
	RuleReceiptCommit:       restore,
	RuleReceiptFields:       restore,
	RuleReceiptExpiry:       "set expire_from to the time of the final outcome, or to NULL while there is none: until then the receipt goes too early, or never",
	RuleInstructionWanted:   byHand,
	RuleInstructionTransfer: askBank,
	RuleSupersededKeys:      askBank,
	RuleInstructionBody:     askBank,
	RuleEventChain:          byHand,
	RuleEventTransition:     byHand,
	RuleInstructionState:    askBank,
	RuleInstructionTimes:    restore,
	RuleInstructionCheck:    "set next_check_at to now: the reconciler asks the bank and goes on",
	RuleSends:               askBank,
	RuleResendWindow:        askBank,
	RuleReversalMissing:     "the account is still debited for a transfer that was not executed: book the reversal, with finance",
	RuleReversalUnfounded:   "the account is credited for a transfer that may have been executed: ask the bank, then finance",
	RuleReversalAmount:      "the account is credited with another amount than it was debited: correct it with finance",
	RuleConflictHash:        byHand,
	RuleConflictFields:      byHand,
	RuleConflictPayload:     byHand,
	RuleConflictDeliveries:  restore,
	RuleConflictResolution:  "settlectl resolve conflict closes it whole, where no name is kept; else restore the columns from a read before (point-in-time recovery)",

	RuleQuarantineIdentity:   byHand,
	RuleQuarantineReason:     "the message may be a payout after all: settlectl check reads it; settlectl release publishes it again",
	RuleQuarantineDeliveries: restore,
	RuleQuarantineRelease:    "settlectl release publishes it again and marks it whole, where no name is kept; else restore the columns from a read before (point-in-time recovery)",
}
