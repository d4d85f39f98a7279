package operate

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"cloud.google.com/go/spanner"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/settle"
)

const (
	// releasePage is how many rows are listed at once, without their data.
	releasePage = 100
	// releasesAtOnce bounds the messages in memory, which have up to 10 MiB each.
	releasesAtOnce = 8
	// openShards is the number of values of open_shard.
	openShards = 16
)

// openMessages is the table by the index of open messages. The emulator alone reads
// the second hint: it cannot see by itself that nothing that is asked for is
// filtered out.
const openMessages = `quarantined_messages@{FORCE_INDEX=quarantined_messages_open, spanner_emulator.disable_query_null_filtered_index_check=true}`

// Tally counts what a release of many did.
type Tally struct {
	// Released counts the messages that were published and marked; in a dry run those
	// that would be.
	Released int `json:"released"`
	// Refused counts those that stay in quarantine.
	Refused int `json:"refused"`
}

// Extent is what a release of many is about: the messages that were open at one
// moment. Those that come later, such as a released one that is refused again, are
// not among them.
type Extent struct {
	Reason settle.Reason
	// Until is that moment, by Spanner's clock.
	Until time.Time
	// Messages is how many there are.
	Messages int64
}

// Extent returns what there is to release for a reason.
func (o *Operator) Extent(ctx context.Context, reason settle.Reason) (Extent, error) {
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

// ReleaseAll releases every message of an extent. each is told of one after the
// other, with the *[Refused] of those that stay. The first failure ends it; what was
// released is, and another run goes on with the rest.
func (o *Operator) ReleaseAll(ctx context.Context, e Extent, r Release, each func(Kept, *Refused)) (Tally, error) {
	var (
		mu    sync.Mutex
		tally Tally
	)
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(releasesAtOnce)
	err := o.open(ctx, e, func(k Kept) {
		work.Go(func() error {
			_, err := o.Release(ctx, k, r)
			refused, is := errors.AsType[*Refused](err)
			if err != nil && !is {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if is {
				tally.Refused++
			} else {
				tally.Released++
			}
			each(k, refused)
			return nil
		})
	})
	if failed := work.Wait(); failed != nil {
		err = failed // the listing ended because of it
	}
	return tally, err
}

// open lists the extent's messages, newest first in each shard, a page at a time.
func (o *Operator) open(ctx context.Context, e Extent, each func(Kept)) error {
	for shard := range int64(openShards) {
		at, key := e.Until, []byte{}
		for more := true; more; {
			page, err := o.openPage(ctx, e.Reason, shard, at, key)
			if err != nil {
				return err
			}
			for _, k := range page {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				each(k)
			}
			if more = len(page) == releasePage; more {
				last := page[len(page)-1]
				at = last.QuarantinedAt
				if key, err = hex.DecodeString(last.Key); err != nil {
					return fmt.Errorf("message key: %w", err)
				}
			}
		}
	}
	return nil
}

func (o *Operator) openPage(ctx context.Context, reason settle.Reason, shard int64, at time.Time, key []byte) (page []Kept, err error) {
	err = o.Client.Single().Query(ctx, spanner.Statement{
		SQL: `SELECT ` + keptColumns + ` FROM ` + openMessages + `
WHERE open_shard IS NOT NULL AND open_shard = @shard AND reason = @reason
  AND (quarantined_at < @at OR (quarantined_at = @at AND message_key > @key))
ORDER BY quarantined_at DESC, message_key LIMIT @page`,
		Params: map[string]any{"shard": shard, "reason": string(reason), "at": at, "key": key, "page": releasePage},
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
