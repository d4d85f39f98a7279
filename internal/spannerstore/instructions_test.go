package spannerstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
	"github.com/settleonce/settleonce/internal/test/storetest"
	"github.com/settleonce/settleonce/schema"
)

const wantsBank = `{"settlement_id":"stl-8472","account_id":"a","amount_cents":4731,"creditor_account":"cp-19"}`

// countingBank accepts and confirms every transfer, and counts the requests.
type countingBank struct{ sends, checks atomic.Int64 }

func (*countingBank) Compose(payout.Payout, uuid.UUID) ([]byte, error) { return []byte("{}"), nil }

func (b *countingBank) Send(context.Context, transfer.SendRequest) transfer.SendResult {
	b.sends.Add(1)
	return transfer.SendResult{Class: transfer.SendAccepted, Answer: transfer.BankAnswer{HTTPStatus: 201}}
}

func (b *countingBank) Status(context.Context, transfer.StatusRequest) transfer.StatusResult {
	b.checks.Add(1)
	return transfer.StatusResult{Reading: transfer.StatusConfirmed, Answer: transfer.BankAnswer{HTTPStatus: 200}}
}

// stepper returns a stepper with the clock now.
func stepper(store transfer.Store, bank transfer.Bank, now *atomic.Pointer[time.Time]) *transfer.Stepper {
	return &transfer.Stepper{
		Store: store, Bank: bank, NewID: uuid.NewString, Now: func() time.Time { return *now.Load() }, Log: slog.New(slog.DiscardHandler),
		Policy: transfer.Policy{KeyLifetime: 24 * time.Hour, VisibilityLag: 15 * time.Second, SendTimeout: 20 * time.Second},
	}
}

func clockAt(t time.Time) *atomic.Pointer[time.Time] {
	var p atomic.Pointer[time.Time]
	p.Store(&t)
	return &p
}

// The answers of the transactions around a send are lost. The instruction is sent once,
// and later checks confirm it.
func TestLostAnswerSendsOnce(t *testing.T) {
	t.Parallel()
	eachLostAnswer(t, true, func(t *testing.T, plan func(int) fault) {
		b, w, bank := newBackend(t), &wire{}, &countingBank{}
		store := b.open(t, w.options()...)
		if _, err := store.Settle(t.Context(), storetest.NewSettlement(t, wantsBank)); err != nil {
			t.Fatal(err)
		}
		now := clockAt(storetest.PublishTime)
		steps := stepper(store, bank, now)
		w.watch(plan)
		state, err := steps.Step(t.Context(), "stl-8472")
		w.wantFired(t)
		if err != nil && !errors.Is(err, settle.ErrOutcomeUnknown) {
			t.Errorf("step: %v", err)
		}
		w.watch(nil)
		for n := 0; state != transfer.StateConfirmed && n < 10; n++ {
			later := now.Load().Add(2 * time.Hour)
			now.Store(&later)
			if state, err = steps.Step(t.Context(), "stl-8472"); err != nil {
				t.Fatal(err)
			}
		}
		if bank.sends.Load() != 1 || state != transfer.StateConfirmed {
			t.Errorf("%d sends, state %s; want 1, confirmed", bank.sends.Load(), state)
		}
		for _, violation := range b.Snapshot(t).Violations(false) {
			t.Error(violation)
		}
	})
}

// Answers from the settling commit on are lost. Only the delivery that recognises its own
// commit sends.
func TestLostSettlingCommitSendsOnce(t *testing.T) {
	t.Parallel()
	eachLostAnswer(t, true, func(t *testing.T, plan func(int) fault) {
		b, w, bank := newBackend(t), &wire{}, &countingBank{}
		store := b.open(t, w.options()...)
		now := clockAt(time.Now())
		steps := stepper(store, bank, now)
		service := &settle.Service{Store: store, Banking: steps, DefaultCurrency: "USD", NewID: uuid.NewString, Now: time.Now}
		delivery := settle.Delivery{Message: settle.Message{Data: []byte(wantsBank)}}
		w.watch(plan)
		if _, err := service.Deliver(t.Context(), delivery); err != nil && !errors.Is(err, settle.ErrOutcomeUnknown) {
			t.Errorf("deliver: %v", err)
		}
		w.wantFired(t)
		w.watch(nil)
		if _, err := service.Deliver(t.Context(), delivery); err != nil { // redelivered
			t.Fatal(err)
		}
		var state transfer.State
		for n := 0; state != transfer.StateConfirmed && n < 5; n++ {
			later := now.Load().Add(2 * time.Hour)
			now.Store(&later)
			var err error
			if state, err = steps.Step(t.Context(), "stl-8472"); err != nil {
				t.Fatal(err)
			}
		}
		if bank.sends.Load() != 1 || state != transfer.StateConfirmed {
			t.Errorf("%d sends, state %s; want 1, confirmed", bank.sends.Load(), state)
		}
		for _, violation := range b.Snapshot(t).Violations(false) {
			t.Error(violation)
		}
	})
}

func TestConcurrentStepsSendOnce(t *testing.T) {
	t.Parallel()
	b, bank := newBackend(t), &countingBank{}
	now := clockAt(storetest.PublishTime)
	stores := openInstances(t, b)
	if _, err := stores[0].Settle(t.Context(), storetest.NewSettlement(t, wantsBank)); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, instances)
	for _, store := range stores {
		go func() {
			_, err := stepper(store, bank, now).Step(t.Context(), "stl-8472")
			failed <- err
		}()
	}
	done := 0
	for range instances {
		switch err := <-failed; {
		case err == nil:
			done++
		case !errors.Is(err, transfer.ErrNotDue):
			t.Error(err)
		}
	}
	if done != 1 || bank.sends.Load() != 1 {
		t.Errorf("%d steps done, %d sends; want 1 each", done, bank.sends.Load())
	}
}

// withBank returns a payout with a creditor account.
func withBank(id string) string {
	return fmt.Sprintf(`{"settlement_id":%q,"account_id":"a","amount_cents":1,"creditor_account":"c"}`, id)
}

// The result does not grow with final or later instructions.
func TestDueOmitsFinalInstructions(t *testing.T) {
	t.Parallel()
	b, queries := newBackend(t), &queryWatch{}
	store := b.open(t, option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(queries.stream)))
	now := storetest.PublishTime
	settleInState := func(id string, next time.Time, state transfer.State) {
		st := storetest.NewSettlement(t, withBank(id))
		st.Instruction.State, st.Instruction.NextCheckAt = state, next
		if _, err := store.Settle(t.Context(), st); err != nil {
			t.Fatal(err)
		}
	}
	settleInState("due", now, transfer.StateUncertain)
	for n := range 100 {
		settleInState(fmt.Sprintf("final-%d", n), time.Time{}, transfer.StateReturned)
		settleInState(fmt.Sprintf("watched-%d", n), now.Add(time.Hour), transfer.StateConfirmed)
	}
	queries.watch()
	due, err := store.Due(t.Context(), now, 1000)
	if diff := cmp.Diff([]string{"due"}, due); err != nil || diff != "" {
		t.Errorf("due: %v (-want +got):\n%s", err, diff)
	}
	if sent, values := queries.seen(); len(sent) != 1 || values != spannerstore.Shards+1 {
		t.Errorf("%d queries and %d values, want 1 with the arrays of %d shards and one ID", len(sent), values, spannerstore.Shards)
	}
	queries.watch()
	backlog, err := store.Backlog(t.Context())
	if err != nil || !backlog.NextDue.Equal(now) {
		t.Errorf("backlog %+v, %v; want %v due next", backlog, err, now)
	}
	if sent, values := queries.seen(); len(sent) != 1 || values != 3 {
		t.Errorf("%d queries and %d values, want 1 with the two times and the count", len(sent), values)
	}
}

// shardOf matches the expression of a column that spreads an index.
var shardOf = regexp.MustCompile(`ABS\(MOD\(FARM_FINGERPRINT\(\w+\), (\d+)\)\)`)

// The readers list as many shards as the schema makes.
func TestSchemaHasTheShards(t *testing.T) {
	t.Parallel()
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	ddl := strings.Join(statements, ";")
	found := shardOf.FindAllStringSubmatch(ddl, -1)
	if len(found) != strings.Count(ddl, "FARM_FINGERPRINT") || len(found) != 4 {
		t.Errorf("%d shard columns in %q", len(found), found)
	}
	for _, match := range found {
		if match[1] != strconv.Itoa(spannerstore.Shards) {
			t.Errorf("%s, want %d shards", match[0], spannerstore.Shards)
		}
	}
}

// manyPayouts have IDs in every shard.
const manyPayouts = 400

// All instructions of one shard are due long before those of the others.
func TestDueServesEveryShardDespiteABacklog(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	store := b.open(t)
	for n := range manyPayouts {
		if _, err := store.Settle(t.Context(), storetest.NewSettlement(t, withBank(fmt.Sprintf("stl-%d", n)))); err != nil {
			t.Fatal(err)
		}
	}
	byShard := map[int64][]string{}
	rows := b.client.Single().Query(t.Context(), spanner.NewStatement("SELECT due_shard, settlement_id FROM bank_instructions ORDER BY settlement_id"))
	err := rows.Do(func(row *spanner.Row) error {
		var (
			shard int64
			id    string
		)
		err := row.Columns(&shard, &id)
		byShard[shard] = append(byShard[shard], id)
		return err
	})
	if err != nil || len(byShard) != spannerstore.Shards {
		t.Fatalf("%d shards with instructions, %v; want %d", len(byShard), err, spannerstore.Shards)
	}
	if due, err := store.Due(t.Context(), storetest.PublishTime, 2*manyPayouts); err != nil || len(due) != manyPayouts {
		t.Errorf("%d due in all shards, %v; want %d", len(due), err, manyPayouts)
	}
	var (
		update                    []*spanner.Mutation
		want                      []string
		crowded, first, ofCrowded = mostIn(byShard), storetest.PublishTime, 0
	)
	for shard, ids := range byShard {
		since := first
		if shard == crowded {
			since, ofCrowded = first.Add(-time.Hour), len(ids)
		}
		for n, id := range ids { // the last one is the oldest
			at := since.Add(-time.Duration(n) * time.Second)
			update = append(update, spanner.Update("bank_instructions", []string{"settlement_id", "next_check_at"}, []any{id, at}))
		}
		want = append(want, ids[len(ids)-1])
	}
	if _, err := b.client.Apply(t.Context(), update); err != nil {
		t.Fatal(err)
	}
	due, err := store.Due(t.Context(), first, len(want))
	slices.Sort(want)
	slices.Sort(due)
	if diff := cmp.Diff(want, due); err != nil || diff != "" || ofCrowded < 2 {
		t.Errorf("%d in the crowded shard, %v; the oldest of each shard (-want +got):\n%s", ofCrowded, err, diff)
	}
	oldest := first.Add(-time.Hour - time.Duration(ofCrowded-1)*time.Second)
	if backlog, err := store.Backlog(t.Context()); err != nil || !backlog.NextDue.Equal(oldest) {
		t.Errorf("backlog %+v, %v; want %v due next", backlog, err, oldest)
	}
}

// mostIn returns the shard with the most instructions.
func mostIn(byShard map[int64][]string) (most int64) {
	for shard, ids := range byShard {
		if len(ids) > len(byShard[most]) {
			most = shard
		}
	}
	return most
}

// perShard matches a subquery that Spanner can seek and stop: one index, one shard, the
// index's order and a limit.
var perShard = regexp.MustCompile(`SELECT (\w+) FROM bank_instructions@\{FORCE_INDEX=(\w+)\} ` +
	`WHERE due_shard = shard AND (\w+) IS NOT NULL (?:AND (\w+) <= @now )?ORDER BY (\w+) LIMIT (\S+)\)`)

// bounded matches a subquery with a limit over a whole index.
var bounded = regexp.MustCompile(`SELECT COUNT\(\*\) FROM \( SELECT settlement_key ` +
	`FROM bank_instructions@\{FORCE_INDEX=bank_instructions_manual\} WHERE manual_shard IS NOT NULL LIMIT @manual\)`)

// The test reads the sent queries, because the emulator shows no query plan.
func TestDueSeeksEachShard(t *testing.T) {
	t.Parallel()
	b, queries := newBackend(t), &queryWatch{}
	store := b.open(t, option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(queries.stream)))
	queries.watch()
	if _, err := store.Due(t.Context(), storetest.PublishTime, 7); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Backlog(t.Context()); err != nil {
		t.Fatal(err)
	}
	const due, uncertain = "bank_instructions_due", "bank_instructions_uncertain"
	want := [][][]string{
		{{"settlement_id", due, "next_check_at", "next_check_at", "next_check_at", "@limit"}},
		{
			{"uncertain_since", uncertain, "uncertain_since", "", "uncertain_since", "1"},
			{"next_check_at", due, "next_check_at", "", "next_check_at", "1"},
		},
	}
	sent, _ := queries.seen()
	var got [][][]string
	for _, q := range sent {
		sql := strings.Join(strings.Fields(q.GetSql()), " ")
		var subqueries [][]string
		for _, match := range perShard.FindAllStringSubmatch(sql, -1) {
			subqueries = append(subqueries, match[1:])
		}
		got = append(got, subqueries)
		sql = bounded.ReplaceAllString(sql, "")
		if strings.Count(sql, "bank_instructions@") != len(subqueries) || strings.Contains(perShard.ReplaceAllString(sql, ""), "bank_instructions") {
			t.Errorf("reads the table outside these subqueries: %s", sql)
		}
		if hint := `@{spanner_emulator.`; strings.LastIndex(sql, hint) != 0 {
			t.Errorf("the emulator's hint does not begin the query: %s", sql)
		}
		if q.GetRequestOptions().GetRequestTag() != "due" || q.GetTransaction().GetSingleUse().GetReadOnly().GetStrong() != true {
			t.Errorf("sent with %v, %v", q.GetRequestOptions(), q.GetTransaction())
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("subqueries (-want +got):\n%s", diff)
	}
	if limit := sent[0].GetParams().GetFields()["limit"].GetStringValue(); limit != "7" {
		t.Errorf("limit %s, want 7", limit)
	}
	if most := sent[1].GetParams().GetFields()["manual"].GetStringValue(); most != "1000" || !bounded.MatchString(strings.Join(strings.Fields(sent[1].GetSql()), " ")) {
		t.Errorf("manual instructions counted up to %q, want 1000: %s", most, sent[1].GetSql())
	}
}

// Spanner must not scan the table instead.
func TestDueFailsWithoutItsIndex(t *testing.T) {
	t.Parallel()
	for index, refused := range map[string]struct{ due, backlog bool }{
		"bank_instructions_due": {true, true}, "bank_instructions_uncertain": {false, true}, "bank_instructions_manual": {false, true}, "no index": {false, false},
	} {
		statements, err := schema.Statements()
		if err != nil {
			t.Fatal(err)
		}
		b := backend{database: emulatortest.Database(t, slices.DeleteFunc(statements, func(s string) bool { return strings.Contains(s, index+" ON ") }))}
		store := b.open(t)
		if due, err := store.Due(t.Context(), storetest.PublishTime, 1); (err != nil) != refused.due {
			t.Errorf("without %s: due %v, %v", index, due, err)
		}
		if backlog, err := store.Backlog(t.Context()); (err != nil) != refused.backlog {
			t.Errorf("without %s: backlog %v, %v", index, backlog, err)
		}
	}
}

// queryWatch records the queries of a client and counts the values of the results, also
// within arrays.
type queryWatch struct {
	mu      sync.Mutex
	queries []*spannerpb.ExecuteSqlRequest
	values  int
}

func (w *queryWatch) watch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queries, w.values = nil, 0
}

func (w *queryWatch) seen() ([]*spannerpb.ExecuteSqlRequest, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queries, w.values
}

func (w *queryWatch) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := streamer(ctx, desc, cc, method, opts...)
	return &watchedStream{stream, w}, err
}

type watchedStream struct {
	grpc.ClientStream

	w *queryWatch
}

func (s *watchedStream) SendMsg(m any) error {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	switch request := m.(type) {
	case *spannerpb.ExecuteSqlRequest:
		s.w.queries = append(s.w.queries, request)
	case *spannerpb.ReadRequest:
		return fmt.Errorf("unexpected read: %v", request)
	}
	return s.ClientStream.SendMsg(m)
}

func (s *watchedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if part, ok := m.(*spannerpb.PartialResultSet); ok && err == nil {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		for _, value := range part.GetValues() {
			s.w.values += 1 + len(value.GetListValue().GetValues())
		}
	}
	return err
}

// sendWatch is a bank that stores the RPCs before its send.
type sendWatch struct {
	countingBank

	w      *wire
	before []string
}

func (b *sendWatch) Send(ctx context.Context, r transfer.SendRequest) transfer.SendResult {
	b.before = b.w.seen()
	b.w.watch(nil)
	return b.countingBank.Send(ctx, r)
}

// change are the RPCs of a change: reads of instruction, movement and former keys, and
// the Commit.
var change = []string{"StreamingRead", "StreamingRead", "StreamingRead", "Commit"}

func TestRPCsOfADeliveryWithABank(t *testing.T) {
	t.Parallel()
	b, w := newBackend(t), &wire{}
	store := b.open(t, w.options()...)
	if _, err := store.Settle(t.Context(), storetest.NewSettlement(t, other)); err != nil { // creates the client's session
		t.Fatal(err)
	}
	bank := &sendWatch{w: w}
	now := clockAt(storetest.PublishTime)
	service := &settle.Service{Store: store, Banking: stepper(store, bank, now), DefaultCurrency: "USD", NewID: uuid.NewString, Now: time.Now}
	w.watch(nil)
	result, err := service.Deliver(t.Context(), settle.Delivery{Message: settle.Message{Data: []byte(wantsBank)}})
	if err != nil || result.Instruction != transfer.StateAccepted {
		t.Fatalf("%+v, %v", result, err)
	}
	if diff := cmp.Diff([]string{"Commit"}, bank.before); diff != "" {
		t.Errorf("RPCs before the send (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(change, w.seen()); diff != "" {
		t.Errorf("RPCs of recording (-want +got):\n%s", diff)
	}
	w.watch(nil)
	later := now.Load().Add(time.Minute)
	now.Store(&later)
	if _, err := stepper(store, bank, now).Step(t.Context(), "stl-8472"); err != nil {
		t.Fatal(err)
	}
	check := slices.Concat(change, change)
	if diff := cmp.Diff(check, w.seen()); diff != "" {
		t.Errorf("RPCs of a status check (-want +got):\n%s", diff)
	}
	w.watch(nil)
	later = later.Add(48 * time.Hour)
	reconciler := &transfer.Reconciler{Store: store, Banking: stepper(store, bank, now), Now: func() time.Time { return later }, Limit: 2, Concurrency: 1}
	if run, err := reconciler.Reconcile(t.Context()); err != nil || run.Due != 1 || run.States[transfer.StateConfirmed] != 1 {
		t.Fatalf("%+v, %v", run, err)
	}
	if diff := cmp.Diff(slices.Concat([]string{"ExecuteStreamingSql"}, check, []string{"ExecuteStreamingSql"}), w.seen()); diff != "" {
		t.Errorf("RPCs of a run with one status check (-want +got):\n%s", diff)
	}
}
