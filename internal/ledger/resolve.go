package ledger

import (
	"context"
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// Resolution closes a conflict. Nothing moves by it.
type Resolution struct {
	SettlementID string
	// Hash is the payload hash of the payout that was not settled, or the beginning
	// of one. Empty means the settlement's only conflict.
	Hash string
	// By is the person who closes it, Note the finding. Both are required.
	By, Note string
}

// ConflictSummary is a conflict without its payload.
type ConflictSummary struct{ spannerstore.ConflictRow }

// summaryColumns are the columns of a ConflictSummary.
var summaryColumns = []string{
	"settlement_id", "payload_hash", "fields", "source", "seen_at", "resolved_at", "resolved_by", "note",
}

// MarshalJSONTo implements json.MarshalerTo.
func (c ConflictSummary) MarshalJSONTo(enc *jsontext.Encoder) error {
	return objectOf(spannerstore.Conflicts.Fields(&c.ConflictRow, summaryColumns...)).
		withoutNull("source", "resolved_at", "resolved_by", "note").MarshalJSONTo(enc)
}

// Several reports that a resolution fits several conflicts, open or closed.
type Several struct{ Conflicts []ConflictSummary }

// Error names them.
func (s *Several) Error() string {
	var hashes []string
	for _, c := range s.Conflicts {
		hashes = append(hashes, fmt.Sprintf("%s (%s)", c.PayloadHash, strings.Join(c.Fields, ", ")))
	}
	return fmt.Sprintf("%d conflicts match: %s", len(hashes), strings.Join(hashes, "; "))
}

// Resolve closes a conflict and returns it. It succeeds again where the same person
// closed the conflict with the same note: an answer may have been lost. It fails with
// [ErrNoSettlement], a *[Several] or a *[transfer.Refused].
func (o *Operator) Resolve(ctx context.Context, r Resolution) (ConflictSummary, error) {
	if !transfer.ValidName(r.By) || !transfer.ValidNote(r.Note) {
		return ConflictSummary{}, &transfer.Refused{
			Why: "a name or a note is missing, too long or has invisible characters",
			Do:  "give the name of the person who closes the conflict and the finding, in one line",
		}
	}
	var (
		closed ConflictSummary
		writes bool
	)
	response, err := o.Client.ReadWriteTransactionWithOptions(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		closed, writes = ConflictSummary{}, false
		all, err := conflictsOf(ctx, tx, r.SettlementID)
		if err != nil {
			return err
		}
		if closed, err = choose(all, r); err != nil || closed.ResolvedBy != "" {
			return err
		}
		writes = true
		closed.ResolvedAt, closed.ResolvedBy, closed.Note = &spanner.CommitTimestamp, r.By, r.Note
		return tx.BufferWrite([]*spanner.Mutation{
			spannerstore.Conflicts.Update(closed.ConflictRow, "settlement_id", "payload_hash", "resolved_at", "resolved_by", "note"),
		})
	}, spanner.TransactionOptions{TransactionTag: tagResolve})
	if err != nil {
		return ConflictSummary{}, fmt.Errorf("resolve conflict of settlement %q: %w", r.SettlementID, err)
	}
	if writes {
		closed.ResolvedAt = &response.CommitTs
	}
	return closed, nil
}

// choose returns the conflict that matches the resolution, open or closed by the same
// resolution. Closed conflicts count where several match: otherwise a command that is
// repeated after a lost answer would close a newer conflict, which the person has not
// investigated.
func choose(all []ConflictSummary, r Resolution) (ConflictSummary, error) {
	var matches []ConflictSummary
	for _, c := range all {
		hash := string(c.PayloadHash)
		_, digest, _ := strings.Cut(hash, ":")
		if strings.HasPrefix(hash, r.Hash) || strings.HasPrefix(digest, r.Hash) {
			matches = append(matches, c)
		}
	}
	switch {
	case len(all) == 0:
		return ConflictSummary{}, &transfer.Refused{Why: "the settlement has no conflict", Do: "see it with settlectl show"}
	case len(matches) == 0:
		return ConflictSummary{}, &transfer.Refused{
			Why: fmt.Sprintf("the settlement has no conflict with payload hash %q", r.Hash), Do: "see its conflicts with settlectl show",
		}
	case len(matches) > 1:
		return ConflictSummary{}, &Several{matches}
	}
	c := matches[0]
	if c.ResolvedBy == "" || c.ResolvedBy == r.By && c.Note == r.Note {
		return c, nil
	}
	return ConflictSummary{}, &transfer.Refused{
		Why: fmt.Sprintf("the conflict was resolved by %q at %s", c.ResolvedBy, formatTime(c.ResolvedAt)),
		Do:  "no action needed; record another finding in the ticket",
	}
}

// formatTime writes a time for a message.
func formatTime(t *time.Time) string {
	if t == nil {
		return "an unknown time"
	}
	return t.UTC().Format(time.RFC3339)
}

func conflictsOf(ctx context.Context, tx *spanner.ReadWriteTransaction, id string) (all []ConflictSummary, err error) {
	if _, err := readMovement(ctx, tx, id); err != nil {
		return nil, err
	}
	rows, err := rowsOf(ctx, tx, spannerstore.Conflicts, id, summaryColumns...)
	for _, row := range rows {
		all = append(all, ConflictSummary{row})
	}
	return all, err
}
