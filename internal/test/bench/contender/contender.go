// Package contender holds several ways to settle a payout once, so that the benchmark
// can compare them.
//
// All of them decode and hash the same message with Settle Once's own code and return
// applied, duplicate or conflict. Their tables have columns of the same widths, beside
// the columns that a pattern itself needs. They differ in the database work only.
//
// Two differences put Settle Once at a disadvantage. It and its transaction-only form
// record each conflict; the others only report it. The schema hashes their keys; the
// others use the plain ID.
package contender

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/uuid"
	"google.golang.org/api/option"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
)

// System is the database system of a contender.
type System int

const (
	// Spanner is Cloud Spanner or its emulator.
	Spanner System = iota
	// Postgres is PostgreSQL.
	Postgres
)

// Settler settles messages. It is safe for concurrent use.
type Settler interface {
	// Settle settles the payout of a message. After an error the outcome is unknown,
	// and the caller delivers the message again.
	Settle(ctx context.Context, message []byte) (settle.Outcome, error)
	// Close closes the connections.
	Close()
}

// Place locates a contender's tables.
type Place struct {
	// Database is projects/P/instances/I/databases/D, or a PostgreSQL connection
	// string. Required.
	Database string
	// Options are passed to the Spanner client. Usually empty.
	Options []option.ClientOption
	// Emulator is the host:port of the Spanner emulator or of a proxy in front of it.
	// Empty means a real instance. With the emulator each client runs one read-write
	// transaction at a time, because the emulator mishandles two of one client, and
	// repeats aborted ones after a millisecond.
	Emulator string
	// Dial opens the connections to PostgreSQL. Nil means the driver's default.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Now returns the time. Required.
	Now func() time.Time
}

// Contender is one way to settle once.
type Contender struct {
	// Key identifies the contender on the command line of a child process, Name in
	// tables.
	Key, Name string
	// About describes the method in one line.
	About string
	// System is the database system.
	System System
	// Statements returns the DDL of the tables.
	Statements func() ([]string, error)
	// Open connects to the tables.
	Open func(ctx context.Context, p Place) (Settler, error)

	table string                             // of the movements
	rows  func(delivery) []*spanner.Mutation // of a settled payout; only Spanner
}

// loadBatch is the number of settlements in one commit of Load. In the emulator the time
// for a row grows with the commit: in commits of 500 settlements, each took three times
// as long as in commits of 50.
const loadBatch = 50

// Load inserts n settled payouts, of Message(from) to Message(from+n-1).
func (c Contender) Load(ctx context.Context, p Place, from, n int) error {
	insert, closeDatabase, err := c.inserter(ctx, p)
	if err != nil {
		return err
	}
	defer closeDatabase()
	for first := from; first < from+n; first += loadBatch {
		var batch []delivery
		for i := first; i < min(first+loadBatch, from+n); i++ {
			settled, err := decode(Message(i))
			if err != nil {
				return err
			}
			batch = append(batch, settled)
		}
		if err := insert(batch); err != nil {
			return fmt.Errorf("load settlements from %d: %w", first, err)
		}
	}
	return nil
}

// inserter returns a function that inserts settled payouts in one commit.
func (c Contender) inserter(ctx context.Context, p Place) (insert func([]delivery) error, closeDatabase func(), err error) {
	if c.System == Postgres {
		pool, err := p.pool(ctx)
		if err != nil {
			return nil, nil, err
		}
		return func(batch []delivery) error { return insertRows(ctx, pool, batch) }, pool.Close, nil
	}
	db, err := p.open(ctx)
	return func(batch []delivery) error {
		var rows []*spanner.Mutation
		for _, settled := range batch {
			rows = append(rows, c.rows(settled)...)
		}
		_, err := db.Apply(ctx, rows)
		return err
	}, db.Close, err
}

// Movements counts the movements of each settlement ID.
func (c Contender) Movements(ctx context.Context, p Place) (map[string]int, error) {
	count := p.countSpanner
	if c.System == Postgres {
		count = p.countPostgres
	}
	counts, err := count(ctx, c.table)
	if err != nil {
		return nil, fmt.Errorf("count movements: %w", err)
	}
	return counts, nil
}

// All returns the contenders, Settle Once first.
func All() []Contender {
	return []Contender{settleOnce(), transactionOnly(), textbook(), storeThenEffect(), postgres()}
}

// Stormed returns the contenders for concurrent deliveries of one settlement. Two of
// them are for these only: Settle Once with several instances, and without coalescing.
func Stormed() []Contender {
	return []Contender{settleOnce(), settleOnceFleet(), settleOnceUncoalesced(), textbook()}
}

// Find returns the contender of All with a key.
func Find(key string) (Contender, error) {
	all := All()
	i := slices.IndexFunc(all, func(c Contender) bool { return c.Key == key })
	if i < 0 {
		return Contender{}, fmt.Errorf("unknown contender %q", key)
	}
	return all[i], nil
}

// Message returns a payout message of the usual size. Each n has its own settlement ID.
func Message(n int) []byte { return message(n, 4731) }

// Conflicting returns another payout with the settlement ID of Message(n).
func Conflicting(n int) []byte { return message(n, 4732) }

// SettlementID returns the settlement ID of Message(n).
func SettlementID(n int) string { return fmt.Sprintf("stl-%09d", n) }

func message(n, amountCents int) []byte {
	return fmt.Appendf(nil, `{"settlement_id":%q,"account_id":"reserve-claims","amount_cents":%d,"currency":"EUR","reference":"claim 19-4431"}`,
		SettlementID(n), amountCents)
}

// All messages carry a currency, so none uses the default.
const defaultCurrency = "USD"

// delivery is a decoded message of the contenders other than Settle Once.
type delivery struct {
	payout.Payout
	hash       string
	deliveryID string
	message    []byte
}

func decode(message []byte) (delivery, error) {
	decoded, err := payout.Decode(message, defaultCurrency)
	if err != nil {
		return delivery{}, fmt.Errorf("decode payout message: %w", err)
	}
	return delivery{Payout: decoded, hash: string(decoded.Hash()), deliveryID: uuid.NewString(), message: message}, nil
}

// compare compares the payout with the stored hash of its settlement ID.
func (p delivery) compare(storedHash string) settle.Outcome {
	if storedHash == p.hash {
		return settle.OutcomeDuplicate
	}
	return settle.OutcomeConflict
}

// movement inserts the payout's movement. Every table has these columns; extra are the
// columns of one table.
func (p delivery) movement(table string, extra map[string]any) *spanner.Mutation {
	row := map[string]any{
		"settlement_id": p.SettlementID, "account_id": p.AccountID, "amount_cents": p.AmountCents, "currency": p.Currency,
		"creditor_account": nullString(p.CreditorAccount), "reference": nullString(p.Reference), "recorded_at": spanner.CommitTimestamp,
	}
	maps.Copy(row, extra)
	return spanner.InsertMap(table, row)
}

// receipt inserts the payout's receipt.
func (p delivery) receipt(table string, extra map[string]any) *spanner.Mutation {
	row := map[string]any{
		"settlement_id": p.SettlementID, "payload_hash": p.hash, "result_status": "applied", "delivery_id": p.deliveryID,
		"message_id": "1", "applied_at": spanner.CommitTimestamp,
	}
	maps.Copy(row, extra)
	return spanner.InsertMap(table, row)
}

func nullString(s string) spanner.NullString { return spanner.NullString{StringVal: s, Valid: s != ""} }
