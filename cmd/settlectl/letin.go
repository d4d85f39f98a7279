package main

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/settleonce/settleonce/internal/settle"
)

// door is a bank that notices when it does not let us in: to a step that is an
// answer like any other, which is tried again later; the person who asked has the
// wrong token.
type door struct {
	settle.Bank

	shut *atomic.Int64
}

func newDoor(bank settle.Bank) door { return door{bank, new(atomic.Int64)} }

// Send implements settle.Bank.
func (d door) Send(ctx context.Context, r settle.SendRequest) settle.SendResult {
	result := d.Bank.Send(ctx, r)
	if result.Class == settle.SendHeld {
		d.notice(result.Answer)
	}
	return result
}

// Status implements settle.Bank.
func (d door) Status(ctx context.Context, r settle.StatusRequest) settle.StatusResult {
	result := d.Bank.Status(ctx, r)
	if result.Reading == settle.StatusUnknown {
		d.notice(result.Answer)
	}
	return result
}

func (d door) notice(a settle.BankAnswer) {
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
