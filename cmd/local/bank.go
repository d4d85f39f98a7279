package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/test/fakebank"
)

// bankToken authenticates callers of the fake bank, which only this machine reaches.
const bankToken = "local-bank"

// bankPlans are the creditor accounts for which the fake bank fails on purpose. It
// executes every other transfer at once.
var bankPlans = map[string]fakebank.Plan{
	// Executed, and the connection breaks before the answer.
	"cp-answer-lost": {Attempts: []fakebank.Attempt{{Answer: fakebank.AnswerReset}}},
	// The connection breaks before the bank executes the transfer.
	"cp-request-lost": {Attempts: []fakebank.Attempt{{Execute: fakebank.ExecuteNever, Answer: fakebank.AnswerReset}}},
	"cp-closed":       {Rest: fakebank.Attempt{Reject: "creditor_account_closed"}},
	// Executed, and returned two days later.
	"cp-sent-back": {Life: []fakebank.Change{{Status: fakebank.Settled}, {After: 48 * time.Hour, Status: fakebank.Returned}}},
	// Accepted, and unknown to the bank afterwards.
	"cp-forgotten": {Rest: fakebank.Attempt{Execute: fakebank.ExecuteNever}},
}

// badCreditors returns the accounts of bankPlans, sorted.
func badCreditors() []string { return slices.Sorted(maps.Keys(bankPlans)) }

// startBank starts the fake bank.
func (sys *system) startBank(ctx context.Context) (err error) {
	sys.bank = fakebank.New(nil, sys.clock.now, fakebank.Options{Token: bankToken})
	sys.onClose(func(context.Context) error {
		sys.bank.Close()
		return nil
	})
	for account, plan := range bankPlans {
		sys.bank.ScriptCreditor(account, plan)
	}
	sys.bankURL, err = sys.bank.Start(ctx)
	return err
}

// clock is the machine's clock plus an offset, zero by default. It is safe for
// concurrent use.
type clock struct{ offset atomic.Int64 } // nanoseconds

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) }

// advanceClock advances the fake bank's clock by d. The functions read the machine's
// clock, and compare it with the times of the instructions. advanceClock therefore sets
// each of these times in Spanner back by d. The caller must not run the functions
// meanwhile. The breaker of the bank client keeps its times.
func (sys *system) advanceClock(ctx context.Context, client *spanner.Client, d time.Duration) error {
	sys.clock.offset.Add(int64(d))
	return setBack(ctx, client, d)
}

// instructionTimes are the columns of bank_instructions that hold a time.
var instructionTimes = []string{
	"created_at", "uncertain_since", "first_sent_at", "last_sent_at", "resend_not_after", "not_found_since",
	"accepted_at", "final_at", "lease_until", "next_check_at",
}

// setBack sets each time of the bank instructions back by d. NULL stays NULL.
func setBack(ctx context.Context, client *spanner.Client, d time.Duration) error {
	var columns []string
	for _, column := range instructionTimes {
		columns = append(columns, fmt.Sprintf("%[1]s = TIMESTAMP_SUB(%[1]s, INTERVAL @microseconds MICROSECOND)", column))
	}
	statement := spanner.Statement{
		SQL:    "UPDATE bank_instructions SET " + strings.Join(columns, ", ") + " WHERE TRUE",
		Params: map[string]any{"microseconds": d.Microseconds()},
	}
	_, err := client.ReadWriteTransaction(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		_, err := tx.Update(ctx, statement)
		return err
	})
	if err != nil {
		return fmt.Errorf("set the times of the bank instructions back by %s: %w", d, err)
	}
	return nil
}
