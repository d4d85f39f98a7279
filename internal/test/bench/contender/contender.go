// Package contender holds ways to settle a payout once, each written as those who
// use it write it, so that they can be measured against each other.
//
// It exists because a comparison is worth as much as the weakest thing in it. So all
// of them answer the same question about the same message: it is decoded and hashed
// by internal/settle, and the answer is applied, duplicate or conflict. Their tables
// have columns of the same widths, beside what a pattern itself needs. What differs
// is the database work, and that is what is measured.
//
// Two differences are left, and both are to Settle Once's disadvantage: it and its
// transaction-only form keep a record of each conflict, the others only report it;
// and their keys are hashed by the schema, where the others have the plain ID.
//
// Nothing here is deployed.
package contender

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/option"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
)

// System is the database that a contender needs.
type System int

const (
	// Spanner is Cloud Spanner or its emulator.
	Spanner System = iota
	// Postgres is PostgreSQL.
	Postgres
)

// Settler settles messages. It is safe for concurrent use.
type Settler interface {
	// Settle settles the payout of a message and tells what became of it. With an
	// error nothing is known, and the message has to be delivered again.
	Settle(ctx context.Context, message []byte) (settle.Outcome, error)
	// Close closes the connections.
	Close()
}

// Place is where a contender's tables are, and how it gets there.
type Place struct {
	// Database is projects/P/instances/I/databases/D, or a PostgreSQL connection
	// string. Required.
	Database string
	// Options lead a Spanner client there. Usually empty for the real Spanner.
	Options []option.ClientOption
	// Emulator lets one read-write transaction run at a time: the emulator
	// mishandles two of one client. It is for all contenders alike, and spares them
	// the emulator's aborts.
	Emulator bool
	// Dial opens the connections to PostgreSQL. Nil means the driver's own way.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Now tells the time. Required.
	Now func() time.Time
	// NewID returns an ID that is unique to each call. Required.
	NewID func() string
}

// Contender is one way to settle once.
type Contender struct {
	// Key names it in flags and in JSON, Name on paper.
	Key, Name string
	// About says in a line how it works.
	About string
	// System is the database that it needs.
	System System
	// Statements are the DDL of its tables.
	Statements func() ([]string, error)
	// Open connects to its tables.
	Open func(ctx context.Context, p Place) (Settler, error)
	// Load puts n settled payouts there, those of Message(from) to Message(from+n-1),
	// as fast as can be.
	Load func(ctx context.Context, p Place, from, n int) error
	// Movements counts the movements of each settlement ID that has one.
	Movements func(ctx context.Context, p Place) (map[string]int, error)
}

// All returns the contenders, Settle Once first.
func All() []Contender {
	return []Contender{settleOnce(), transactionOnly(), textbook(), storeThenEffect(), postgres()}
}

// Stormed returns the contenders that meet a storm of one settlement. Two of them meet
// nothing else: Settle Once as a fleet of instances, and as if its deliveries did not
// wait for each other.
func Stormed() []Contender {
	return []Contender{settleOnce(), settleOnceFleet(), settleOnceApart(), textbook()}
}

// Find returns the contender with a key.
func Find(key string) (Contender, error) {
	var keys []string
	for _, c := range All() {
		if c.Key == key {
			return c, nil
		}
		keys = append(keys, c.Key)
	}
	return Contender{}, fmt.Errorf("find contender %q: it is none of %s", key, strings.Join(keys, ", "))
}

// Message is a payout message of the usual size with a settlement ID of its own for
// each n.
func Message(n int) []byte { return message(SettlementID(n), 4731) }

// Conflicting is another payout under the settlement ID of Message(n).
func Conflicting(n int) []byte { return message(SettlementID(n), 4732) }

// SettlementID is the settlement ID of Message(n).
func SettlementID(n int) string { return fmt.Sprintf("stl-%09d", n) }

func message(settlementID string, amountCents int) []byte {
	return fmt.Appendf(nil, `{"settlement_id":%q,"account_id":"reserve-claims","amount_cents":%d,"currency":"EUR","reference":"claim 19-4431"}`,
		settlementID, amountCents)
}

// defaultCurrency is never needed: the messages have a currency.
const defaultCurrency = "USD"

// payoutRow is a message as the contenders other than Settle Once see it.
type payoutRow struct {
	payout.Payout
	hash       string
	deliveryID string
}

func (p Place) read(message []byte) (payoutRow, error) {
	decoded, err := payout.Decode(message, defaultCurrency)
	if err != nil {
		return payoutRow{}, fmt.Errorf("read payout message: %w", err)
	}
	return payoutRow{Payout: decoded, hash: string(decoded.Hash()), deliveryID: p.NewID()}, nil
}

// judge compares a payout with the hash that is stored under its settlement ID.
func (p payoutRow) judge(stored string) settle.Outcome {
	if stored == p.hash {
		return settle.OutcomeDuplicate
	}
	return settle.OutcomeConflict
}

// database is a Spanner client that takes care of the emulator.
type database struct {
	*spanner.Client
	turn chan struct{} // nil: the real Spanner
}

func (p Place) open(ctx context.Context) (database, error) {
	client, err := spanner.NewClientWithConfig(ctx, p.Database, spanner.ClientConfig{DisableNativeMetrics: true}, p.Options...)
	if err != nil {
		return database{}, fmt.Errorf("open spanner database %s: %w", p.Database, err)
	}
	d := database{Client: client}
	if p.Emulator {
		d.turn = make(chan struct{}, 1)
	}
	return d, nil
}

// readWrite runs fn in a read-write transaction.
func (d database) readWrite(ctx context.Context, fn func(context.Context, *spanner.ReadWriteTransaction) error) error {
	if d.turn != nil {
		select {
		case d.turn <- struct{}{}:
			defer func() { <-d.turn }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	_, err := d.ReadWriteTransaction(ctx, fn)
	return err
}

// loadBatch is how many settlements are loaded in one commit. The emulator takes ever
// longer for a row the more a commit has: 500 at once took three times as long for each
// as 50.
const loadBatch = 50

// load commits rows(n) for each n, loadBatch of them at a time.
func (p Place) load(ctx context.Context, from, n int, rows func(payoutRow) []*spanner.Mutation) error {
	db, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	for first := from; first < from+n; first += loadBatch {
		var batch []*spanner.Mutation
		for i := first; i < min(first+loadBatch, from+n); i++ {
			settled, err := p.read(Message(i))
			if err != nil {
				return err
			}
			batch = append(batch, rows(settled)...)
		}
		if _, err := db.Apply(ctx, batch); err != nil {
			return fmt.Errorf("load settlements from %d: %w", first, err)
		}
	}
	return nil
}

// count counts the rows of a table for each settlement ID.
func (p Place) count(ctx context.Context, table string) (map[string]int, error) {
	db, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	counts := map[string]int{}
	err = db.Single().Read(ctx, table, spanner.AllKeys(), []string{"settlement_id"}).Do(func(row *spanner.Row) error {
		var id string
		err := row.Columns(&id)
		counts[id]++
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("count movements: %w", err)
	}
	return counts, nil
}

func nullString(s string) spanner.NullString { return spanner.NullString{StringVal: s, Valid: s != ""} }
