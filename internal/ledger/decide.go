package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/iterator"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// Case is a bank instruction that people decide about, and what was known of it at
// one moment.
type Case struct {
	Instruction transfer.Instruction
	// Reversed says that the movement has a reversal.
	Reversed bool
	// Last is the latest event of the instruction's history, LastAt when it was
	// recorded.
	Last   transfer.Event
	LastAt time.Time
	// Decided is the event of the latest decision; its zero value: there is none.
	// Steps can have come after it.
	Decided transfer.Event
	// Asked says that the bank was asked: it is not where the instruction does not
	// wait for a person, or no bank is configured.
	Asked bool
	// Said is what the bank said, and Took when it was asked.
	Said transfer.Statuses
	Took transfer.Interval

	payout payout.Payout
}

// Open reads the instruction of a settlement and asks the bank about every key that
// it has, had or can get: after a restore the row does not know of the last kind
// which was used. It changes nothing. It fails with [ErrNoSettlement] or
// [transfer.ErrNoInstruction].
func (o *Operator) Open(ctx context.Context, settlementID string) (Case, error) {
	c, err := o.read(ctx, settlementID)
	if err != nil {
		return Case{}, fmt.Errorf("settlement %q: %w", settlementID, err)
	}
	c.Took.Began = o.now()
	if c.Instruction.State == transfer.StateManual && o.Bank != nil {
		c.Asked, c.Said = true, transfer.AskAllStatuses(ctx, o.Bank.Status, c.Instruction)
	}
	c.Took.Ended = o.now()
	return c, nil
}

// now is cut to microseconds, which Spanner keeps of a timestamp that is given.
func (o *Operator) now() time.Time { return o.Now().UTC().Truncate(time.Microsecond) }

func (o *Operator) read(ctx context.Context, id string) (c Case, err error) {
	tx := o.Client.ReadOnlyTransaction()
	defer tx.Close()
	if err := settled(ctx, tx, id); err != nil {
		return Case{}, err
	}
	if c.Instruction, err = readInstruction(ctx, tx, id); err != nil {
		return Case{}, err
	}
	if c.payout, err = readPayout(ctx, tx, id); err != nil {
		return Case{}, err
	}
	if c.Last, c.LastAt, err = readEvent(ctx, tx, id, c.Instruction.Version); err != nil {
		return Case{}, err
	}
	if c.Decided, err = readDecision(ctx, tx, id); err != nil {
		return Case{}, err
	}
	_, err = tx.ReadRow(ctx, "ledger_reversals", spanner.Key{spannerstore.SettlementKey(id)}, []string{"reason"})
	c.Reversed = err == nil
	if err != nil && !errors.Is(err, spanner.ErrRowNotFound) {
		return Case{}, fmt.Errorf("read reversal: %w", err)
	}
	return c, nil
}

func readInstruction(ctx context.Context, tx *spanner.ReadOnlyTransaction, id string) (transfer.Instruction, error) {
	rows := tx.Query(ctx, spanner.Statement{
		SQL: spannerstore.InstructionSQL + ` WHERE i.settlement_key = @settlement_key`, Params: map[string]any{"settlement_key": spannerstore.SettlementKey(id)},
	})
	defer rows.Stop()
	row, err := rows.Next()
	if errors.Is(err, iterator.Done) {
		return transfer.Instruction{}, transfer.ErrNoInstruction
	}
	if err != nil {
		return transfer.Instruction{}, fmt.Errorf("read bank instruction: %w", err)
	}
	return spannerstore.ScanInstruction(row)
}

// readPayout returns what a request body is composed of.
func readPayout(ctx context.Context, tx rowReader, id string) (payout.Payout, error) {
	row, err := tx.ReadRow(ctx, "ledger_movements", spanner.Key{spannerstore.SettlementKey(id)},
		[]string{"account_id", "amount_cents", "currency", "creditor_account", "reference"})
	if err != nil {
		return payout.Payout{}, fmt.Errorf("read movement: %w", err)
	}
	var (
		p                   = payout.Payout{SettlementID: id}
		creditor, reference spanner.NullString
	)
	if err := row.Columns(&p.AccountID, &p.AmountCents, &p.Currency, &creditor, &reference); err != nil {
		return payout.Payout{}, fmt.Errorf("read movement: %w", err)
	}
	p.CreditorAccount, p.Reference = creditor.StringVal, reference.StringVal
	return p, nil
}

// eventColumns are what scanEvent reads.
var eventColumns = []string{"from_state", "to_state", "cause", "http_status", "detail", "recorded_at"}

func readEvent(ctx context.Context, tx rowReader, id string, version int64) (e transfer.Event, at time.Time, err error) {
	row, err := tx.ReadRow(ctx, "bank_instruction_events", spanner.Key{spannerstore.SettlementKey(id), version}, eventColumns)
	if err == nil {
		e, at, err = scanEvent(row)
	}
	if err != nil {
		return e, at, fmt.Errorf("read event %d: %w", version, err)
	}
	return e, at, nil
}

// readDecision reads the event of the latest decision; the zero value: there is none.
func readDecision(ctx context.Context, tx *spanner.ReadOnlyTransaction, id string) (e transfer.Event, err error) {
	rows := tx.Query(ctx, spanner.Statement{
		SQL: `SELECT ` + strings.Join(eventColumns, ", ") + ` FROM bank_instruction_events
WHERE settlement_key = @settlement_key AND cause = @cause ORDER BY version DESC LIMIT 1`,
		Params: map[string]any{"settlement_key": spannerstore.SettlementKey(id), "cause": transfer.CauseDecided},
	})
	defer rows.Stop()
	row, err := rows.Next()
	if errors.Is(err, iterator.Done) {
		return transfer.Event{}, nil
	}
	if err == nil {
		e, _, err = scanEvent(row)
	}
	if err != nil {
		return e, fmt.Errorf("read the latest decision: %w", err)
	}
	return e, nil
}

func scanEvent(row *spanner.Row) (e transfer.Event, at time.Time, err error) {
	var (
		from, detail spanner.NullString
		to           string
		status       spanner.NullInt64
	)
	if err := row.Columns(&from, &to, &e.Cause, &status, &detail, &at); err != nil {
		return e, at, err
	}
	e.From, e.To = transfer.State(from.StringVal), transfer.State(to)
	e.HTTPStatus, e.Detail = int(status.Int64), detail.StringVal
	return e, at, nil
}

// Verdict is what two people decide about a case.
type Verdict struct {
	Decision         transfer.Decision
	By, Second, Note string
	// WithoutBank says that they decide although the bank cannot be reached.
	WithoutBank bool
	// Remark is what else the event is to say; usually empty.
	Remark string
	// DryRun works the change out and does not make it.
	DryRun bool
}

// Decide makes the change of a verdict, and returns the instruction after it. made
// is false where the same people had decided the same before, with the same note.
// A verdict that does not fit the state, or what the bank said, fails with a
// *[transfer.Refused].
func (o *Operator) Decide(ctx context.Context, c Case, v Verdict) (after transfer.Instruction, made bool, err error) {
	r := transfer.Ruling{
		ID: o.NewID(), Decision: v.Decision, By: v.By, Second: v.Second, Note: v.Note,
		Version: c.Instruction.Version, Reversed: c.Reversed, Said: c.Said, Took: c.Took, WithoutBank: v.WithoutBank, Remark: v.Remark,
	}
	if c.Instruction.State != transfer.StateManual && records(c.Decided, r) {
		return c.Instruction, false, nil
	}
	if v.Decision == transfer.DecideResend && o.Bank != nil {
		if r.Body, err = o.Bank.Compose(c.payout, c.Instruction.NextKey()); err != nil {
			return transfer.Instruction{}, false, fmt.Errorf("compose the request under the new key: %w", err)
		}
	}
	if v.DryRun {
		change, err := o.Policy.Decide(c.Instruction, r)
		return change.Next, false, err
	}
	change, err := o.Store.Change(ctx, c.Instruction.SettlementID, func(in transfer.Instruction) (transfer.Change, error) {
		return o.Policy.Decide(in, r)
	})
	if _, objected := errors.AsType[*transfer.Refused](err); objected && o.wasMade(ctx, c, r) {
		again, err := o.read(ctx, c.Instruction.SettlementID)
		return again.Instruction, true, err
	}
	if err != nil {
		return transfer.Instruction{}, false, fmt.Errorf("decide about settlement %q: %w", c.Instruction.SettlementID, err)
	}
	return change.Next, true, nil
}

// records reports whether an event is the one of a ruling.
func records(e transfer.Event, r transfer.Ruling) bool {
	return e.Cause == transfer.CauseDecided && strings.HasPrefix(e.Detail, r.Proof())
}

// wasMade reports whether the ruling stands in the history in spite of an objection:
// the answer to its commit was lost, and a step came before the store tried again.
func (o *Operator) wasMade(ctx context.Context, c Case, r transfer.Ruling) bool {
	tx := o.Client.Single()
	e, _, err := readEvent(ctx, tx, c.Instruction.SettlementID, r.Version+1)
	return err == nil && records(e, r)
}
