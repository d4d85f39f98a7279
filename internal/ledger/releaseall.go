package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// releasePage is the number of rows of one query. The oldest message can be in any
// shard of the index, so each query reads the whole index.
const releasePage = 1000

// openMessages are the open messages of a reason, by their index.
var openMessages = `quarantined_messages` + index("quarantined_messages_open") + ` AS q WHERE q.open_shard IS NOT NULL AND q.reason = @reason`

// Tally counts the results of [Operator.ReleaseAll].
type Tally struct {
	// Released counts the messages that were published and marked, or would be in a
	// dry run.
	Released int `json:"released"`
	// Defaulted counts those of them without a currency of their own.
	Defaulted int `json:"defaulted,omitzero"`
	// Refused counts the messages that stay in quarantine.
	Refused int `json:"refused"`
}

// Extent is the scope of [Operator.ReleaseAll]: the messages that were open at one
// moment. Later ones, such as a released message that is refused again, are not in it.
type Extent struct {
	Reason payout.Reason
	// Until is that moment, by Spanner's clock.
	Until time.Time
	// Messages is their number.
	Messages int64
}

// Extent returns the open messages of a reason.
func (o *Operator) Extent(ctx context.Context, reason payout.Reason) (Extent, error) {
	e := Extent{Reason: reason}
	err := o.Client.Single().Query(ctx, spanner.Statement{
		SQL:    `SELECT CURRENT_TIMESTAMP() AS until, COUNT(*) AS messages FROM ` + openMessages,
		Params: map[string]any{"reason": string(reason)},
	}).Do(func(row *spanner.Row) error { return row.Columns(&e.Until, &e.Messages) })
	if err != nil {
		return e, fmt.Errorf("count open messages in quarantine: %w", err)
	}
	return e, nil
}

// ReleaseAll releases every message of an extent, one after the other and the oldest
// first: of two payouts with one settlement ID the first is settled. It calls each
// for every message, with the *[transfer.Refused] of those that stay. The first
// failure ends it; released messages stay released, and another run continues.
func (o *Operator) ReleaseAll(ctx context.Context, e Extent, r Release, each func(Message, *transfer.Refused)) (tally Tally, err error) {
	err = o.eachOpen(ctx, e, func(m Message) error {
		released, err := o.Release(ctx, m, r)
		refused, is := errors.AsType[*transfer.Refused](err)
		switch {
		case is:
			tally.Refused++
		case err != nil:
			return err
		default:
			tally.Released++
			if released.DefaultCurrency != "" {
				tally.Defaulted++
			}
		}
		each(m, refused)
		return nil
	})
	return tally, err
}

// eachOpen calls each for the extent's messages, the oldest first, until it fails. It
// reads a page at a time, without the messages' data.
func (o *Operator) eachOpen(ctx context.Context, e Extent, each func(Message) error) error {
	after, key := time.Unix(0, 0), ""
	for {
		page, err := o.queryMessages(ctx, openMessages+` AND q.quarantined_at <= @until
  AND (q.quarantined_at > @after OR (q.quarantined_at = @after AND TO_HEX(q.message_key) > @key))
ORDER BY q.quarantined_at, q.message_key LIMIT @page`,
			map[string]any{"reason": string(e.Reason), "until": e.Until, "after": after, "key": key, "page": int64(releasePage)})
		if err != nil {
			return fmt.Errorf("list messages in quarantine: %w", err)
		}
		for _, m := range page {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := each(m); err != nil {
				return err
			}
			after, key = m.QuarantinedAt, m.Key
		}
		if len(page) < releasePage {
			return nil
		}
	}
}
