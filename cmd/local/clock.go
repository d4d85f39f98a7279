package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"cloud.google.com/go/spanner"
)

// clock is the machine's clock and what the demo let pass on top of it. The zero
// value is the machine's clock. It is safe for concurrent use.
type clock struct{ passed atomic.Int64 } // nanoseconds

// Now returns what the clock shows.
func (c *clock) Now() time.Time { return time.Now().Add(time.Duration(c.passed.Load())) }

// letTimePass makes d pass in an instant, for all that the schedules of bank
// instructions depend on: the fake bank and, in memory, the functions read a
// clock that is set forward. The functions under the framework read the machine's
// clock, as they do in the cloud, so for them the instructions in Spanner are made
// older by d. It is the same to them: all they look at is how long ago or how far
// ahead something is.
//
// Nothing else may be at work meanwhile. The breaker of the bank's client is not
// made older; it stays closed in the demo.
func (sys *system) letTimePass(ctx context.Context, d time.Duration) error {
	if sys.memory == nil {
		client, err := sys.openDatabase(ctx)
		if err != nil {
			return err
		}
		defer client.Close()
		if err := makeOlder(ctx, client, d); err != nil {
			return err
		}
	}
	sys.clock.passed.Add(int64(d))
	return nil
}

// makeOlder sets every time of the bank instructions back by d. A time that is
// NULL stays so.
func makeOlder(ctx context.Context, client *spanner.Client, d time.Duration) error {
	const back = `TIMESTAMP_SUB(%[1]s, INTERVAL @microseconds MICROSECOND)`
	sql, separator := "UPDATE bank_instructions SET ", ""
	for _, column := range []string{
		"created_at", "uncertain_since", "first_sent_at", "last_sent_at", "resend_not_after", "not_found_since",
		"accepted_at", "final_at", "lease_until", "next_check_at",
	} {
		sql += separator + column + " = " + fmt.Sprintf(back, column)
		separator = ", "
	}
	statement := spanner.Statement{SQL: sql + " WHERE TRUE", Params: map[string]any{"microseconds": d.Microseconds()}}
	_, err := client.ReadWriteTransaction(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		_, err := tx.Update(ctx, statement)
		return err
	})
	if err != nil {
		return fmt.Errorf("make the bank instructions %s older: %w", d, err)
	}
	return nil
}
