package ledger

import (
	"context"
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// Resolution closes a conflict. Nothing moves by it.
type Resolution struct {
	SettlementID string
	// Hash is the payload hash of the payout that was not settled, or the beginning
	// of one. Empty means the only conflict that the settlement has.
	Hash string
	// By is who closes it, Note what was found. Both are required.
	By, Note string
}

// ConflictChoice is a conflict as far as it is shown; never its payload.
type ConflictChoice struct {
	SettlementID string      `json:"settlement_id"`
	PayloadHash  payout.Hash `json:"payload_hash"`
	Fields       []string    `json:"fields"`
	Deliveries   int64       `json:"deliveries"`
	FirstSeenAt  time.Time   `json:"first_seen_at"`
	LastSeenAt   time.Time   `json:"last_seen_at"`
	// ResolvedAt is zero while the conflict is open.
	ResolvedAt time.Time `json:"resolved_at,omitzero"`
	ResolvedBy string    `json:"resolved_by,omitzero"`
	Note       string    `json:"note,omitzero"`
}

func (c ConflictChoice) open() bool { return c.ResolvedBy == "" }

// Several reports conflicts, open or closed, of which none was named.
type Several struct{ Conflicts []ConflictChoice }

// Error names them.
func (s *Several) Error() string {
	var hashes []string
	for _, c := range s.Conflicts {
		hashes = append(hashes, fmt.Sprintf("%s (%s)", c.PayloadHash, strings.Join(c.Fields, ", ")))
	}
	return fmt.Sprintf("%d conflicts fit: %s", len(hashes), strings.Join(hashes, "; "))
}

// Resolve closes a conflict and returns it. A conflict that the same person has
// closed with the same note is closed: an answer may have been lost. It fails with
// [ErrNoSettlement], a *[Several] or a *[Refused].
func (o *Operator) Resolve(ctx context.Context, r Resolution) (ConflictChoice, error) {
	if !transfer.ValidName(r.By) || !transfer.ValidNote(r.Note) {
		return ConflictChoice{}, &Refused{"a name or a note is missing, too long or has characters that cannot be seen", "say in one line who closes it and what was found"}
	}
	var (
		closed ConflictChoice
		writes bool
	)
	response, err := o.Client.ReadWriteTransactionWithOptions(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		closed, writes = ConflictChoice{}, false
		all, err := conflictsOf(ctx, tx, r.SettlementID)
		if err != nil {
			return err
		}
		if closed, err = choose(all, r); err != nil || !closed.open() {
			return err
		}
		writes = true
		closed.ResolvedBy, closed.Note = r.By, r.Note
		return tx.BufferWrite([]*spanner.Mutation{spanner.UpdateMap("settlement_conflicts", map[string]any{
			"settlement_id": r.SettlementID, "payload_hash": string(closed.PayloadHash),
			"resolved_at": spanner.CommitTimestamp, "resolved_by": r.By, "note": r.Note,
		})})
	}, spanner.TransactionOptions{TransactionTag: tagResolve})
	if err != nil {
		return ConflictChoice{}, fmt.Errorf("resolve conflict of settlement %q: %w", r.SettlementID, err)
	}
	if writes {
		closed.ResolvedAt = response.CommitTs
	}
	return closed, nil
}

// choose returns the conflict that the resolution is about, open or closed by the
// same resolution. One that is closed counts where several fit: a command whose
// answer was lost must not close the conflict that came after the one it has
// closed, which nobody has looked into.
func choose(all []ConflictChoice, r Resolution) (ConflictChoice, error) {
	var fit []ConflictChoice
	for _, c := range all {
		hash := string(c.PayloadHash)
		_, digest, _ := strings.Cut(hash, ":")
		if strings.HasPrefix(hash, r.Hash) || strings.HasPrefix(digest, r.Hash) {
			fit = append(fit, c)
		}
	}
	switch {
	case len(all) == 0:
		return ConflictChoice{}, &Refused{"the settlement has no conflict", "look at it with show"}
	case len(fit) == 0:
		return ConflictChoice{}, &Refused{fmt.Sprintf("the settlement has no conflict with payload hash %q", r.Hash), "look at its conflicts with show"}
	case len(fit) > 1:
		return ConflictChoice{}, &Several{fit}
	}
	c := fit[0]
	if c.open() || c.ResolvedBy == r.By && c.Note == r.Note {
		return c, nil
	}
	return ConflictChoice{}, &Refused{
		fmt.Sprintf("the conflict was resolved by %q at %s", c.ResolvedBy, c.ResolvedAt.UTC().Format(time.RFC3339)),
		"nothing is left to do; another finding goes into the ticket",
	}
}

// conflictsOf returns the conflicts of a settlement.
func conflictsOf(ctx context.Context, tx *spanner.ReadWriteTransaction, id string) ([]ConflictChoice, error) {
	if err := settled(ctx, tx, id); err != nil {
		return nil, err
	}
	var all []ConflictChoice
	columns := []string{"payload_hash", "fields", "deliveries", "first_seen_at", "last_seen_at", "resolved_at", "resolved_by", "note"}
	err := tx.Read(ctx, "settlement_conflicts", spanner.Key{spannerstore.SettlementKey(id)}.AsPrefix(), columns).Do(func(row *spanner.Row) error {
		var (
			hash     string
			at       spanner.NullTime
			by, note spanner.NullString
			c        = ConflictChoice{SettlementID: id}
		)
		err := row.Columns(&hash, &c.Fields, &c.Deliveries, &c.FirstSeenAt, &c.LastSeenAt, &at, &by, &note)
		c.PayloadHash, c.ResolvedAt, c.ResolvedBy, c.Note = payout.Hash(hash), at.Time, by.StringVal, note.StringVal
		all = append(all, c)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read conflicts: %w", err)
	}
	return all, nil
}
