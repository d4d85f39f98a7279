package contender

import (
	"context"
	"fmt"
	"maps"
	"net"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/option"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/settleonce/settleonce/internal/settle"
)

// tables are a contender's tables in Spanner.
type tables struct {
	movements string                             // the name of the table of movements
	rows      func(delivery) []*spanner.Mutation // of a settled payout
}

// database is a Spanner client that avoids the emulator's faults.
type database struct {
	*spanner.Client
	tables
	lock chan struct{} // held by a read-write transaction; nil: real instance
}

func (p Place) open(ctx context.Context, t tables) (database, error) {
	client, err := spanner.NewClientWithConfig(ctx, p.Database, spanner.ClientConfig{DisableNativeMetrics: true}, p.spannerOptions()...)
	if err != nil {
		return database{}, fmt.Errorf("open spanner database %s: %w", p.Database, err)
	}
	d := database{Client: client, tables: t}
	if p.Emulator != "" {
		d.lock = make(chan struct{}, 1)
	}
	return d, nil
}

// readWrite runs fn in a read-write transaction.
func (d database) readWrite(ctx context.Context, fn func(context.Context, *spanner.ReadWriteTransaction) error) error {
	if d.lock != nil {
		select {
		case d.lock <- struct{}{}:
			defer func() { <-d.lock }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	_, err := d.ReadWriteTransaction(ctx, fn)
	return err
}

// insert implements Settler.
func (d database) insert(ctx context.Context, settled []delivery) error {
	var rows []*spanner.Mutation
	for _, p := range settled {
		rows = append(rows, d.rows(p)...)
	}
	_, err := d.Apply(ctx, rows)
	return err
}

// Movements implements Settler.
func (d database) Movements(ctx context.Context) (map[string]int, error) {
	counts := map[string]int{}
	err := d.Single().Read(ctx, d.movements, spanner.AllKeys(), []string{"settlement_id"}).Do(func(row *spanner.Row) error {
		var id string
		err := row.Columns(&id)
		counts[id]++
		return err
	})
	return counts, err
}

// readWriteSettler settles each message in one read-write transaction.
type readWriteSettler struct {
	database
	decide func(ctx context.Context, tx *spanner.ReadWriteTransaction, p delivery) (settle.Outcome, error)
}

// Settle implements Settler.
func (s *readWriteSettler) Settle(ctx context.Context, d settle.Delivery) (outcome settle.Outcome, err error) {
	p, err := decode(d.Message.Data)
	if err != nil {
		return settle.OutcomeUnknown, err
	}
	err = s.readWrite(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) (err error) {
		outcome, err = s.decide(ctx, tx, p)
		return err
	})
	if err != nil {
		return settle.OutcomeUnknown, err
	}
	return outcome, nil
}

// spannerOptions returns the options of a client. Without a retry delay from the server
// the client pauses for 20 ms and more after an abort. Spanner aborts rarely, but the
// emulator aborts all but one of several concurrent commits. So with the emulator an
// interceptor adds a short retry delay to each abort.
func (p Place) spannerOptions() (options []option.ClientOption) {
	if p.Emulator != "" {
		interceptor := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return withRetryDelay(invoke(ctx, method, req, reply, cc, opts...))
		}
		options = []option.ClientOption{
			option.WithEndpoint("passthrough:///" + p.Emulator), // no name resolution, no proxy of the environment
			option.WithoutAuthentication(),
			option.WithTelemetryDisabled(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
			option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(interceptor)),
		}
	}
	if p.Dial != nil {
		dial := func(ctx context.Context, address string) (net.Conn, error) { return p.Dial(ctx, "tcp", address) }
		options = append(options, option.WithGRPCDialOption(grpc.WithContextDialer(dial)))
	}
	return append(options, p.Options...)
}

// withRetryDelay adds a retry delay of a millisecond to an Aborted error.
func withRetryDelay(err error) error {
	if status.Code(err) != codes.Aborted {
		return err
	}
	s, detailErr := status.Convert(err).WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)})
	if detailErr != nil {
		return err
	}
	return s.Err()
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
