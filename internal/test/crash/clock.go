package crash

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
)

// instructionTimes are the columns of bank_instructions that hold a time.
var instructionTimes = []string{
	"next_check_at", "lease_until", "first_sent_at", "last_sent_at", "resend_not_after", "not_found_since", "accepted_at", "final_at",
	"created_at", "uncertain_since",
}

// AdvanceClock simulates that d has passed: it subtracts d from every stored time of the
// settlement's bank instruction, or of all instructions for an empty settlement ID. The
// processes under test use the machine's clock, which a test cannot set.
func AdvanceClock(t testing.TB, client *spanner.Client, settlementID string, d time.Duration) {
	t.Helper()
	older := make([]string, len(instructionTimes))
	for i, column := range instructionTimes {
		older[i] = fmt.Sprintf("%[1]s = TIMESTAMP_SUB(%[1]s, INTERVAL @ns NANOSECOND)", column)
	}
	update := spanner.Statement{
		SQL:    "UPDATE bank_instructions SET " + strings.Join(older, ", ") + " WHERE settlement_id = @id OR @id = ''",
		Params: map[string]any{"id": settlementID, "ns": d.Nanoseconds()},
	}
	_, err := client.ReadWriteTransaction(t.Context(), func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		_, err := tx.Update(ctx, update)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// AdvanceClockUntilDue advances the clock until one second after the instruction is due,
// and returns by how much: 0 when the settlement has no instruction, or an instruction
// that is due already or never.
func AdvanceClockUntilDue(t testing.TB, client *spanner.Client, settlementID string, now time.Time) time.Duration {
	t.Helper()
	var next spanner.NullTime
	key := sha256.Sum256([]byte(settlementID))
	row, err := client.Single().ReadRow(t.Context(), "bank_instructions", spanner.Key{key[:]}, []string{"next_check_at"})
	if err == nil {
		err = row.Columns(&next)
	}
	if err != nil && !errors.Is(err, spanner.ErrRowNotFound) {
		t.Fatal(err)
	}
	d := next.Time.Sub(now) + time.Second
	if !next.Valid || d <= 0 {
		return 0
	}
	AdvanceClock(t, client, settlementID, d)
	return d
}
