package main

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// door is a bank that notices when it does not let us in: to a step that is an
// answer like any other, which is tried again later; the person who asked has the
// wrong token.
type door struct {
	transfer.Bank

	shut *atomic.Int64
}

func newDoor(bank transfer.Bank) door { return door{bank, new(atomic.Int64)} }

// Send implements transfer.Bank.
func (d door) Send(ctx context.Context, r transfer.SendRequest) transfer.SendResult {
	result := d.Bank.Send(ctx, r)
	if result.Class == transfer.SendHeld {
		d.notice(result.Answer)
	}
	return result
}

// Status implements transfer.Bank.
func (d door) Status(ctx context.Context, r transfer.StatusRequest) transfer.StatusResult {
	result := d.Bank.Status(ctx, r)
	if result.Reading == transfer.StatusUnknown {
		d.notice(result.Answer)
	}
	return result
}

func (d door) notice(a transfer.BankAnswer) {
	if a.HTTPStatus == http.StatusUnauthorized || a.HTTPStatus == http.StatusForbidden {
		d.shut.Add(1)
	}
}

// err says what to do where the bank did not let us in; nil where it did, or was
// not asked.
func (d door) err() error {
	if d.shut == nil || d.shut.Load() == 0 {
		return nil
	}
	return failf("the bank did not let us in (HTTP 401 or 403): set BANK_TOKEN to the function's own token, and try again; nothing was lost")
}
