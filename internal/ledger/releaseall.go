package ledger

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/settle/payout"
)

// releasePage is how many rows are listed at once. The oldest can be in any shard of
// the index, so each page reads all of it.
const releasePage = 1000

// openMessages is the table by the index of open messages. The emulator alone reads
// the second hint: it cannot see by itself that nothing that is asked for is
// filtered out.
const openMessages = `quarantined_messages@{FORCE_INDEX=quarantined_messages_open, spanner_emulator.disable_query_null_filtered_index_check=true}`

// Tally counts what a release of many did.
type Tally struct {
	// Released counts the messages that were published and marked; in a dry run those
	// that would be.
	Released int `json:"released"`
	// Defaulted counts those of them that have no currency of their own.
	Defaulted int `json:"defaulted,omitzero"`
	// Refused counts those that stay in quarantine.
	Refused int `json:"refused"`
}

// Extent is what a release of many is about: the messages that were open at one
// moment. Those that come later, such as a released one that is refused again, are
// not among them.
type Extent struct {
	Reason payout.Reason
	// Until is that moment, by Spanner's clock.
	Until time.Time
	// Messages is how many there are.
	Messages int64
}

// Extent returns what there is to release for a reason.
func (o *Operator) Extent(ctx context.Context, reason payout.Reason) (Extent, error) {
	e := Extent{Reason: reason}
	err := o.Client.Single().Query(ctx, spanner.Statement{
		SQL: `SELECT CURRENT_TIMESTAMP() AS until, COUNT(*) AS messages FROM ` + openMessages + `
WHERE open_shard IS NOT NULL AND reason = @reason`,
		Params: map[string]any{"reason": string(reason)},
	}).Do(func(row *spanner.Row) error { return row.Columns(&e.Until, &e.Messages) })
	if err != nil {
		return e, fmt.Errorf("count open messages in quarantine: %w", err)
	}
	return e, nil
}

// ReleaseAll releases every message of an extent, one after the other and the oldest
// first: of two payouts with one settlement ID the first is settled. each is told of
// every one, with the *[Refused] of those that stay. The first failure ends it; what
// was released is, and another run goes on with the rest.
func (o *Operator) ReleaseAll(ctx context.Context, e Extent, r Release, each func(Kept, *Refused)) (tally Tally, err error) {
	err = o.open(ctx, e, func(k Kept) error {
		released, err := o.Release(ctx, k, r)
		refused, is := errors.AsType[*Refused](err)
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
		each(k, refused)
		return nil
	})
	return tally, err
}

// open lists the extent's messages, the oldest first, until one fails. It reads a
// page at a time, without the messages' data.
func (o *Operator) open(ctx context.Context, e Extent, each func(Kept) error) error {
	after, key := time.Unix(0, 0), []byte{}
	for more := true; more; {
		page, err := o.openPage(ctx, e, after, key)
		if err != nil {
			return err
		}
		for _, k := range page {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := each(k); err != nil {
				return err
			}
		}
		if more = len(page) == releasePage; more {
			last := page[len(page)-1]
			after = last.QuarantinedAt
			if key, err = hex.DecodeString(last.Key); err != nil {
				return fmt.Errorf("message key: %w", err)
			}
		}
	}
	return nil
}

func (o *Operator) openPage(ctx context.Context, e Extent, after time.Time, key []byte) (page []Kept, err error) {
	err = o.Client.Single().Query(ctx, spanner.Statement{
		SQL: `SELECT ` + keptColumns + ` FROM ` + openMessages + `
WHERE open_shard IS NOT NULL AND reason = @reason AND quarantined_at <= @until
  AND (quarantined_at > @after OR (quarantined_at = @after AND message_key > @key))
ORDER BY quarantined_at, message_key LIMIT @page`,
		Params: map[string]any{"reason": string(e.Reason), "until": e.Until, "after": after, "key": key, "page": releasePage},
	}).Do(func(row *spanner.Row) error {
		k, err := scanKept(row)
		page = append(page, k)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list messages in quarantine: %w", err)
	}
	return page, nil
}
