package capacity

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/memstore"
	"github.com/settleonce/settleonce/internal/test/storetest"
	"github.com/settleonce/settleonce/schema"
)

// written are the rows that a commit writes to each table, and the entries that it
// deletes from or inserts into each index.
type written map[string]int

// counter counts the rows of each Commit of a store. The rows of the tables are those of
// the request's mutations. The entries of an index are compared with those before.
type counter struct {
	t       *testing.T
	client  *spanner.Client
	indexes map[string]string // the query of each index's entries
	entries map[string]map[string]bool
	commits []written
}

func newCounter(t *testing.T) (*counter, *spannerstore.Store) {
	t.Helper()
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	database, options := emulatortest.Database(t, statements), emulatortest.Spanner(t).ClientOptions()
	client, err := spanner.NewClientWithConfig(t.Context(), database, spanner.ClientConfig{DisableNativeMetrics: true}, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	c := &counter{t: t, client: client, indexes: map[string]string{}, entries: map[string]map[string]bool{}}
	c.readIndexes()
	store, err := spannerstore.Open(t.Context(), spannerstore.Config{
		Database: database, Emulator: true, Options: append(options, option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(c.intercept))),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return c, store
}

// query calls each for the rows of a query.
func (c *counter) query(ctx context.Context, sql string, each func(*spanner.Row) error) {
	c.t.Helper()
	if err := c.client.Single().Query(ctx, spanner.NewStatement(sql)).Do(each); err != nil {
		c.t.Fatal(err)
	}
}

// readIndexes makes the query of each index from the database's own description: the
// index's columns, and the primary key of its table, which tells entries apart.
func (c *counter) readIndexes() {
	c.query(c.t.Context(), `SELECT i.index_name, ANY_VALUE(i.table_name), ARRAY_AGG(c.column_name),
  ARRAY_AGG(IF(i.is_null_filtered AND c.ordinal_position IS NOT NULL, c.column_name || ' IS NOT NULL', 'TRUE'))
FROM information_schema.indexes AS i
JOIN information_schema.index_columns AS c ON c.table_name = i.table_name AND c.index_name IN (i.index_name, 'PRIMARY_KEY')
WHERE i.index_type = 'INDEX' GROUP BY i.index_name`, func(row *spanner.Row) error {
		var (
			index, table      string
			columns, filtered []string
		)
		err := row.Columns(&index, &table, &columns, &filtered)
		slices.Sort(columns)
		c.indexes[index] = fmt.Sprintf("SELECT FORMAT('%%T', (%s)) FROM %s WHERE %s",
			strings.Join(slices.Compact(columns), ", "), table, strings.Join(filtered, " AND "))
		return err
	})
	if c.indexes["bank_instructions_due"] == "" {
		c.t.Fatalf("indexes %v", slices.Sorted(maps.Keys(c.indexes)))
	}
}

func (c *counter) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	if commit, is := req.(*spannerpb.CommitRequest); is && err == nil {
		c.commits = append(c.commits, c.count(ctx, commit.GetMutations()))
	}
	return err
}

// count returns the rows of a commit that has just succeeded.
func (c *counter) count(ctx context.Context, mutations []*spannerpb.Mutation) written {
	w := written{}
	for _, m := range mutations {
		write := m.GetInsert()
		if write == nil {
			write = m.GetUpdate()
		}
		if write == nil {
			c.t.Errorf("neither an insert nor an update: %v", m)
		}
		w[write.GetTable()] += len(write.GetValues())
	}
	for index, sql := range c.indexes {
		now := map[string]bool{}
		c.query(ctx, sql, func(row *spanner.Row) error {
			var entry string
			err := row.Columns(&entry)
			now[entry] = true
			return err
		})
		for _, pair := range [][2]map[string]bool{{c.entries[index], now}, {now, c.entries[index]}} {
			for entry := range pair[0] {
				if !pair[1][entry] {
					w[index]++
				}
			}
		}
		c.entries[index] = now
	}
	return w
}

// take returns the commits since the last call.
func (c *counter) take() []written {
	commits := c.commits
	c.commits = nil
	return commits
}

// expiring returns how many of the rows are in tables with a row deletion policy.
func (c *counter) expiring(w written) (rows int) {
	c.query(c.t.Context(), "SELECT table_name FROM information_schema.tables WHERE row_deletion_policy_expression IS NOT NULL", func(row *spanner.Row) error {
		var table string
		err := row.Columns(&table)
		rows += w[table]
		return err
	})
	return rows
}

// bank accepts and confirms every transfer.
type bank struct{}

func (bank) Compose(payout.Payout, uuid.UUID) ([]byte, error) { return []byte("{}"), nil }

func (bank) Send(context.Context, transfer.SendRequest) transfer.SendResult {
	return transfer.SendResult{Class: transfer.SendAccepted, Answer: transfer.BankAnswer{HTTPStatus: 201}}
}

func (bank) Status(context.Context, transfer.StatusRequest) transfer.StatusResult {
	return transfer.StatusResult{Reading: transfer.StatusConfirmed, Answer: transfer.BankAnswer{HTTPStatus: 200}}
}

// life settles payouts and steps their instructions at the time that each asks for.
type life struct {
	t     *testing.T
	store storetest.Store
	steps *transfer.Stepper
	now   time.Time
}

func newLife(t *testing.T, store storetest.Store) *life {
	l := &life{t: t, store: store, now: storetest.PublishTime}
	l.steps = &transfer.Stepper{
		Store: store, Bank: bank{}, NewID: uuid.NewString, Now: func() time.Time { return l.now }, Log: slog.New(slog.DiscardHandler),
		Policy: transfer.Policy{KeyLifetime: 24 * time.Hour, VisibilityLag: 15 * time.Second, SendTimeout: 20 * time.Second},
	}
	return l
}

func (l *life) settle(message string) settle.Settlement {
	l.t.Helper()
	st := storetest.NewSettlement(l.t, message)
	if st.Instruction != nil {
		var err error
		if st.Instruction, err = l.steps.Create(st.Payout, st.DeliveryID); err != nil {
			l.t.Fatal(err)
		}
	}
	if _, err := l.store.Settle(l.t.Context(), st); err != nil {
		l.t.Fatal(err)
	}
	return st
}

func (l *life) send(st settle.Settlement) {
	l.t.Helper()
	if _, err := l.steps.SendCreated(l.t.Context(), *st.Instruction); err != nil {
		l.t.Fatal(err)
	}
}

// check makes the next status check and reports whether there was one.
func (l *life) check(st settle.Settlement) bool {
	l.t.Helper()
	backlog, err := l.store.Backlog(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	if backlog.NextDue.IsZero() {
		return false
	}
	l.now = backlog.NextDue
	if _, err := l.steps.Step(l.t.Context(), st.Payout.SettlementID); err != nil {
		l.t.Fatal(err)
	}
	return true
}

// TestCounted counts the rows of every kind of commit, and compares them with the figures
// of this package and with the table in docs/capacity.md.
func TestCounted(t *testing.T) {
	t.Parallel()
	c, store := newCounter(t)
	l := newLife(t, store)
	rows := map[string][]written{}
	var names []string
	note := func(name string) {
		names, rows[name] = append(names, name), c.take()
	}
	l.settle(`{"settlement_id":"stl-1","account_id":"a","amount_cents":1}`)
	note("payout without a bank")
	st := l.settle(withBank("stl-2"))
	note("payout with a bank, send claimed")
	l.send(st)
	note("answer to the send")
	l.check(st)
	note("status check")
	var last []written
	for checks := 1; l.check(st); checks++ {
		if diff := cmp.Diff(rows["status check"], last); last != nil && diff != "" {
			t.Errorf("status check %d (-want +got):\n%s", checks, diff)
		}
		last = c.take()
	}
	names, rows["last status check"] = append(names, "last status check"), last
	unsent := storetest.NewSettlement(t, withBank("stl-3"))
	if _, err := store.Settle(t.Context(), unsent); err != nil {
		t.Fatal(err)
	}
	c.take()
	l.check(unsent)
	note("send by the reconciler: claim, and answer")
	l.settle(`{"settlement_id":"stl-1","account_id":"a","amount_cents":2}`)
	note("conflict")
	if _, err := store.Quarantine(t.Context(), settle.Quarantined{Refusal: payout.Refusal{Reason: payout.ReasonEmptyData}}); err != nil {
		t.Fatal(err)
	}
	note("quarantined message")
	c.wantFigures(rows)
	c.wantDocumented(names, rows)
}

func withBank(id string) string {
	return fmt.Sprintf(`{"settlement_id":%q,"account_id":"a","amount_cents":1,"creditor_account":"c"}`, id)
}

// total returns the rows of several commits.
func total(commits []written) (rows int) {
	for _, w := range commits {
		for _, n := range w {
			rows += n
		}
	}
	return rows
}

// of returns the rows of several commits in one table or index.
func of(commits []written, name string) (rows int) {
	for _, w := range commits {
		rows += w[name]
	}
	return rows
}

func (c *counter) wantFigures(rows map[string][]written) {
	c.t.Helper()
	plain, created, answered := rows["payout without a bank"], rows["payout with a bank, send claimed"], rows["answer to the send"]
	check, last := rows["status check"], rows["last status check"]
	// entries are the writes of one instruction to an index.
	entries := func(index string) float64 {
		return float64(of(created, index)+of(answered, index)+of(last, index)) + (StatusChecks-1)*float64(of(check, index))
	}
	for _, figure := range []struct {
		name      string
		got, want float64
	}{
		{"PayoutRows", PayoutRows, float64(total(plain))},
		{"ExpiredRows", ExpiredRows, float64(c.expiring(created[0]))},
		{"CreatedRows", CreatedRows, float64(total(created) - total(plain))},
		{"AnsweredRows", AnsweredRows, float64(total(answered))},
		{"CheckRows", CheckRows, float64(total(check))},
		{"rows of the last check", CheckRows - 1, float64(total(last))},
		{"BankCommits", BankCommits, float64(len(answered)) + StatusChecks*float64(len(check))},
		{"DueEntries", DueEntries, entries("bank_instructions_due")},
	} {
		if figure.got != figure.want {
			c.t.Errorf("%s is %g, counted %g", figure.name, figure.got, figure.want)
		}
	}
	for index := range c.indexes {
		if entries(index) > DueEntries {
			c.t.Errorf("%s has %g writes, more than bank_instructions_due", index, entries(index))
		}
	}
}

// wantDocumented compares the rows with the table in docs/capacity.md.
func (c *counter) wantDocumented(names []string, rows map[string][]written) {
	c.t.Helper()
	document, err := os.ReadFile("../../docs/capacity.md")
	if err != nil {
		c.t.Fatal(err)
	}
	lines := []string{
		fmt.Sprintf("adds %g commits and %g rows with index entries", BankCommits, BankRows),
		fmt.Sprintf("`bank_instructions_due`: %g for each bank payout", DueEntries),
	}
	for _, name := range names {
		entries := 0
		for index := range c.indexes {
			entries += of(rows[name], index)
		}
		lines = append(lines, fmt.Sprintf("| %s | %d | %d | %d |\n", name, len(rows[name]), total(rows[name])-entries, entries))
	}
	for _, line := range lines {
		if !strings.Contains(string(document), line) {
			c.t.Errorf("docs/capacity.md lacks %q", line)
		}
	}
}

// TestStatusChecks counts the status checks of many instructions. Each has its own jitter.
func TestStatusChecks(t *testing.T) {
	t.Parallel()
	const payouts = 500
	checks := 0
	for n := range payouts {
		l := newLife(t, nil)
		store := memstore.New(func() time.Time { return l.now })
		l.store, l.steps.Store = store, store
		st := l.settle(withBank(fmt.Sprintf("stl-%d", n)))
		l.send(st)
		for l.check(st) {
			checks++
		}
	}
	if mean := float64(checks) / payouts; math.Abs(mean-StatusChecks) > 0.1 {
		t.Errorf("%g status checks on average, want %g", mean, StatusChecks)
	}
}
