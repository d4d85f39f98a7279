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
	"net"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/api/option"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
)

// Contender is one way to settle once.
type Contender struct {
	// Name identifies the contender, About describes its method in one line.
	Name, About string
	// Postgres is set for PostgreSQL; the others use Spanner or its emulator.
	Postgres bool
	// Statements returns the DDL of the tables.
	Statements func() ([]string, error)
	// Open connects to the tables.
	Open func(ctx context.Context, p Place) (Settler, error)
}

// Settler is a contender's client of one database. It is safe for concurrent use.
type Settler interface {
	// Settle settles a delivery's payout. After an error the outcome is unknown, and
	// the caller delivers the message again.
	Settle(ctx context.Context, d settle.Delivery) (settle.Outcome, error)
	// Movements counts the movements of each settlement ID.
	Movements(ctx context.Context) (map[string]int, error)
	// Close closes the connections.
	Close()

	insert(ctx context.Context, settled []delivery) error
}

// Place locates a contender's tables.
type Place struct {
	// Database is projects/P/instances/I/databases/D, or a PostgreSQL connection
	// string. Required.
	Database string
	// Emulator is the host:port of the Spanner emulator. Empty means a real instance.
	// With the emulator each client runs one read-write transaction at a time, because
	// the emulator mishandles two of one client, and repeats aborted ones after a
	// millisecond.
	Emulator string
	// Dial opens the client's connections. Nil means the client's default.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Options are passed to the Spanner client. Usually empty.
	Options []option.ClientOption
	// Now returns the time. Required.
	Now func() time.Time
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

// Find returns the contender of All with a name.
func Find(name string) (Contender, error) {
	all := All()
	i := slices.IndexFunc(all, func(c Contender) bool { return c.Name == name })
	if i < 0 {
		return Contender{}, fmt.Errorf("unknown contender %q", name)
	}
	return all[i], nil
}

// loadBatch is the number of settlements in one commit of Load. In the emulator the time
// for a row grows with the commit: in commits of 500 settlements, each took three times
// as long as in commits of 50.
const loadBatch = 50

// Load inserts n settled payouts, those of Message(0) to Message(n-1).
func Load(ctx context.Context, s Settler, n int) error {
	for first := 0; first < n; first += loadBatch {
		var batch []delivery
		for i := first; i < min(first+loadBatch, n); i++ {
			settled, err := decode(Message(i).Message.Data)
			if err != nil {
				return err
			}
			batch = append(batch, settled)
		}
		if err := s.insert(ctx, batch); err != nil {
			return fmt.Errorf("load settlements from %d: %w", first, err)
		}
	}
	return nil
}

// Message returns a first delivery of a payout message of the usual size. Each n has its
// own settlement ID.
func Message(n int) settle.Delivery { return Conflicting(n, 0) }

// Conflicting returns another payout with the settlement ID of Message(n). Each variant
// above 0 is another conflict.
func Conflicting(n, variant int) settle.Delivery {
	data := fmt.Appendf(nil, `{"settlement_id":%q,"account_id":"reserve-claims","amount_cents":%d,"currency":"EUR","reference":"claim 19-4431"}`,
		SettlementID(n), 4731+variant)
	return settle.Delivery{Attempt: 1, Message: settle.Message{ID: fmt.Sprint(n), Data: data}}
}

// Malformed returns a delivery that is no payout. Each n is another message.
func Malformed(n int) settle.Delivery {
	return settle.Delivery{Attempt: 1, Message: settle.Message{ID: fmt.Sprint(n), Data: []byte("no payout")}}
}

// SettlementID returns the settlement ID of Message(n).
func SettlementID(n int) string { return fmt.Sprintf("stl-%09d", n) }

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
