package event

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/settleonce/settleonce/internal/settle"
)

// Deliverer settles deliveries; [*settle.Service] is one. A nil error means that the
// result is committed and the message can be acknowledged. It is safe for concurrent
// use.
type Deliverer interface {
	Deliver(ctx context.Context, d settle.Delivery) (settle.Result, error)
}

// errNotFinal reports a deliverer that breaks its contract. An acknowledgement could lose
// the message.
var errNotFinal = errors.New("deliverer gave neither an outcome nor an error")

// Settle returns the work of SettlePayout: it settles the delivery and answers 200
// with the stored outcome, or an error status.
func Settle(deliverer Deliverer) Work { return func(c *call) reply { return c.settle(deliverer) } }

// Misconfigured returns the work of a function with a wrong configuration: it fails every
// request, so messages stay in the subscription until the configuration is right.
func Misconfigured(err error) Work {
	return func(c *call) reply {
		c.log(c.Now(), slog.LevelError, "configuration rejected", slog.Any("", settle.Result{}), slog.String("error", err.Error()))
		return failed(http.StatusInternalServerError, textOther)
	}
}
