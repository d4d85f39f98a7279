package main

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/bank"
	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/fakebank"
	"github.com/settleonce/settleonce/internal/test/memstore"
)

// bankToken opens the fake bank, which only this machine reaches.
const bankToken = "local-bank"

// bankPlans are the creditor accounts to which the fake bank does something else
// than to pay at once and say so.
var bankPlans = map[string]fakebank.Plan{
	// Executed, and the connection breaks before the answer.
	"cp-answer-lost": {Attempts: []fakebank.Attempt{{Answer: fakebank.AnswerReset}}},
	// The connection breaks before the bank has done anything.
	"cp-request-lost": {Attempts: []fakebank.Attempt{{Execute: fakebank.ExecuteNever, Answer: fakebank.AnswerReset}}},
	"cp-closed":       {Rest: fakebank.Attempt{Reject: "creditor_account_closed"}},
	// Executed, and sent back two days later.
	"cp-sent-back": {Life: []fakebank.Change{{Status: fakebank.Settled}, {After: 48 * time.Hour, Status: fakebank.Returned}}},
	// Accepted, and then the bank knows nothing of it.
	"cp-forgotten": {Rest: fakebank.Attempt{Execute: fakebank.ExecuteNever}},
}

// badCreditors are the accounts of bankPlans in order.
func badCreditors() []string { return slices.Sorted(maps.Keys(bankPlans)) }

// startBank starts the fake bank.
func (sys *system) startBank(ctx context.Context) (err error) {
	sys.bank = fakebank.New(nil, sys.clock.Now, fakebank.Options{Token: bankToken})
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

// bankVariables lead the functions to the fake bank, which is the generic one.
func (sys *system) bankVariables() map[string]string {
	return map[string]string{config.EnvBankURL: sys.bankURL, config.EnvBankToken: bankToken, config.EnvBankProfile: ""}
}

// newStepper returns what looks after the bank instructions in memory. It is
// wired as function.go does it, but for the clock.
func newStepper(store *memstore.Store, cfg bank.Config, now func() time.Time, log *slog.Logger) (*transfer.Stepper, error) {
	cfg.Now = now
	client, err := bank.New(cfg)
	if err != nil {
		return nil, err
	}
	return &transfer.Stepper{Store: store, Bank: client, Policy: cfg.Policy(), NewID: uuid.NewString, Now: now, Log: log}, nil
}
