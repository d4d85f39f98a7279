package crash

import (
	"context"
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
)

// InstructionTimes are the columns of bank_instructions that hold a time.
var InstructionTimes = []string{
	"next_check_at", "lease_until", "first_sent_at", "last_sent_at", "resend_not_after", "not_found_since", "accepted_at", "final_at",
	"created_at", "uncertain_since",
}

// Pass lets time pass for a settlement's instruction, if it has one: everything that
// has happened to it becomes older. The processes that are walked have the machine's
// clock, which nobody can set.
func Pass(t testing.TB, client *spanner.Client, settlementID string, d time.Duration) {
	t.Helper()
	pass(t, client, settlementID, func(spanner.NullTime) time.Duration { return d })
}

// PassUntilDue lets time pass from now until the settlement's instruction is due, if it
// ever is, and returns how much.
func PassUntilDue(t testing.TB, client *spanner.Client, settlementID string, now time.Time) time.Duration {
	t.Helper()
	return pass(t, client, settlementID, func(next spanner.NullTime) time.Duration {
		if next.IsNull() {
			return 0
		}
		return next.Time.Sub(now) + time.Second
	})
}

func pass(t testing.TB, client *spanner.Client, settlementID string, until func(next spanner.NullTime) time.Duration) (d time.Duration) {
	t.Helper()
	key := sha256.Sum256([]byte(settlementID))
	_, err := client.ReadWriteTransaction(t.Context(), func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		d = 0
		row, err := tx.ReadRow(ctx, "bank_instructions", spanner.Key{key[:]}, InstructionTimes)
		if errors.Is(err, spanner.ErrRowNotFound) {
			return nil
		}
		times := make([]spanner.NullTime, len(InstructionTimes))
		if err == nil {
			err = row.Columns(pointers(times)...)
		}
		if err != nil {
			return err
		}
		if d = max(0, until(times[0])); d == 0 {
			return nil
		}
		values := []any{settlementID}
		for _, at := range times {
			at.Time = at.Time.Add(-d) // NULL stays NULL
			values = append(values, at)
		}
		return tx.BufferWrite([]*spanner.Mutation{spanner.Update("bank_instructions", append([]string{"settlement_id"}, InstructionTimes...), values)})
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func pointers[T any](values []T) []any {
	var all []any
	for i := range values {
		all = append(all, &values[i])
	}
	return all
}
