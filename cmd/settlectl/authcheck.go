package main

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/term"
)

// authObserver records authentication failures of a bank, and can add a remark to its
// answers. A step treats an authentication failure as an answer to retry later, but the
// person who ran the command has to set another token.
type authObserver struct {
	transfer.Bank

	failures *atomic.Int64
	remark   string // empty: none
}

// Send implements transfer.Bank.
func (o authObserver) Send(ctx context.Context, r transfer.SendRequest) transfer.SendResult {
	result := o.Bank.Send(ctx, r)
	o.observe(&result.Answer, result.Class == transfer.SendHeld)
	return result
}

// Status implements transfer.Bank.
func (o authObserver) Status(ctx context.Context, r transfer.StatusRequest) transfer.StatusResult {
	result := o.Bank.Status(ctx, r)
	o.observe(&result.Answer, result.Reading == transfer.StatusUnknown)
	return result
}

func (o authObserver) observe(a *transfer.BankAnswer, failed bool) {
	if failed && (a.HTTPStatus == http.StatusUnauthorized || a.HTTPStatus == http.StatusForbidden) {
		o.failures.Add(1)
	}
	if a.Detail != "" && o.remark != "" {
		a.Detail += "; "
	}
	a.Detail += o.remark
}

// err reports that the bank rejected our credentials; nil if it accepted them or
// received no request.
func (o authObserver) err() error {
	if o.failures == nil || o.failures.Load() == 0 {
		return nil
	}
	return term.Failf("the bank rejected our credentials (HTTP 401 or 403); set BANK_TOKEN to the function's token and run the command again; nothing was lost")
}
