package capacity

// perValue is Spanner's storage overhead per value, in bytes.
const perValue = 8

// sizes are the bytes of each column's value in a typical payout: UUIDs as IDs, a
// reference of 35 characters, some metadata. A column that ends as NULL has size 0.
var sizes = map[string]map[string]int{
	"ledger_movements": {
		"settlement_key": 32, "settlement_id": 36, "account_id": 24, "amount_cents": 8, "currency": 3,
		"creditor_account": 24, "reference": 35, "payload_hash": 67, "source": 40, "recorded_at": 12,
	},
	"settlement_receipts": {
		"settlement_key": 32, "settlement_id": 36, "payload_hash": 67, "result_status": 7, "delivery_id": 36,
		"message_id": 17, "publish_time": 12, "metadata": 100, "applied_at": 12,
	},
	"bank_instructions": {
		"settlement_key": 32, "settlement_id": 36, "idempotency_key": 36, "request_body": 400, "state": 9, "version": 8,
		"lease_owner": 36, "lease_until": 0, "sends": 8, "send_deferred": 1, "first_sent_at": 12, "last_sent_at": 12,
		"resend_not_after": 12, "not_found_since": 0, "accepted_at": 12, "final_at": 12, "bank_transfer_id": 36,
		"bank_status": 4, "checks": 8, "next_check_at": 0, "created_at": 12, "uncertain_since": 0, "due_shard": 8,
	},
	"bank_instruction_events": {
		"settlement_key": 32, "settlement_id": 36, "version": 8, "from_state": 9, "to_state": 9, "cause": 13,
		"http_status": 8, "detail": 20, "recorded_at": 12,
	},
}

func rowBytes(table string) float64 {
	sum := 0.0
	for _, bytes := range sizes[table] {
		if bytes > 0 {
			sum += float64(bytes + perValue)
		}
	}
	return sum
}

// instructionBytes is the permanent size of a bank instruction: its row and its events.
func instructionBytes() float64 {
	return rowBytes("bank_instructions") + EventRows*rowBytes("bank_instruction_events")
}
