package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"cloud.google.com/go/pubsub/v2"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settleonce/settleonce/internal/ledger"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

const withoutCurrency = `{"settlement_id":"stl-1","account_id":"a","amount_cents":1}`

// quarantine delivers a message that is refused because it lacks a currency.
func (w *fixture) quarantine(data string) settle.Message {
	w.t.Helper()
	w.service.DefaultCurrency = ""
	defer func() { w.service.DefaultCurrency = "USD" }()
	m := w.message(data)
	m.Attributes = map[string]string{"tenant": "7", "googclient_schemaencoding": "JSON"}
	m.OrderingKey = "order"
	w.deliver(m, settle.OutcomeQuarantined)
	return m
}

func (w *fixture) find(message string) ledger.Message {
	w.t.Helper()
	found, err := w.operator.Find(w.t.Context(), message)
	if err != nil || len(found) != 1 {
		w.t.Fatalf("find %s: %v, %v", message, found, err)
	}
	return found[0]
}

// deliverPublished delivers all published messages, as the subscription does.
func (w *fixture) deliverPublished() (outcomes []settle.Outcome) {
	w.t.Helper()
	for n, m := range w.topic.kept {
		result, err := w.service.Deliver(w.t.Context(), settle.Delivery{Message: settle.Message{
			ID: fmt.Sprintf("published-%d", n+1), Subscription: "projects/p/subscriptions/s", Data: m.Data, Attributes: m.Attributes, OrderingKey: m.OrderingKey,
		}})
		if err != nil {
			w.t.Fatal(err)
		}
		outcomes = append(outcomes, result.Outcome)
	}
	return outcomes
}

func TestReleaseAMessage(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	m := w.quarantine(withoutCurrency)
	k := w.find(m.ID)
	if byKey := w.find(k.Key); !cmp.Equal(byKey, k) {
		t.Errorf("by its key %+v, by its ID %+v", byKey, k)
	}
	if _, err := w.operator.Find(t.Context(), "m-none"); !errors.Is(err, ledger.ErrNoMessage) {
		t.Errorf("no such message: %v", err)
	}
	release := ledger.Release{By: "Ines", DefaultCurrency: "USD"}
	for _, test := range []struct {
		name   string
		change func(r *ledger.Release)
		words  string
	}{
		{"no name", func(r *ledger.Release) { r.By = "" }, "the name, or"},
		{"edited without a note", func(r *ledger.Release) { r.Edited = []byte(withoutCurrency) }, "or the note that an edited message needs"},
		{"refused again", func(r *ledger.Release) { r.DefaultCurrency = "" }, "refused again: missing_field currency; if the function has a DEFAULT_CURRENCY"},
		{"edited to nonsense", func(r *ledger.Release) { r.Edited, r.Note = []byte(`{"a":1}`), "n" }, "no member"},
	} {
		r := release
		test.change(&r)
		_, err := w.operator.Release(t.Context(), k, r)
		wantRefused(t, err, test.words)
	}
	dry := release
	dry.DryRun = true
	if released, err := w.operator.Release(t.Context(), k, dry); err != nil || released.SettlementID != "stl-1" || released.DefaultCurrency != "USD" || len(w.topic.kept) != 0 {
		t.Errorf("dry run: %+v, %v, %d published", released, err, len(w.topic.kept))
	}
	written := dry
	written.Edited, written.Note = []byte(`{"settlement_id":"stl-1","account_id":"a","amount_cents":1,"currency":"USD"}`), "Ada agreed"
	if released, err := w.operator.Release(t.Context(), k, written); err != nil || released.DefaultCurrency != "" {
		t.Errorf("with a currency of its own: %+v, %v", released, err)
	}

	released, err := w.operator.Release(t.Context(), k, release)
	if err != nil || released.PublishedAs != "published-1" || released.ReleasedBy != "Ines" || released.ReleasedAt == nil {
		t.Fatalf("%+v, %v", released, err)
	}
	want := &pubsub.Message{
		Data: []byte(withoutCurrency), OrderingKey: "order",
		Attributes: map[string]string{"tenant": "7", ledger.ReleasedAttribute: k.Key},
	}
	if len(w.topic.kept) != 1 || !cmp.Equal(string(want.Data), string(w.topic.kept[0].Data)) || !cmp.Equal(want.Attributes, w.topic.kept[0].Attributes) || w.topic.kept[0].OrderingKey != "order" {
		t.Errorf("published %+v, want %+v", w.topic.kept, want)
	}
	_, err = w.operator.Release(t.Context(), k, release)
	wantRefused(t, err, `released by "Ines" at `, "nothing was published again")
	row, err := w.client.Single().ReadRow(t.Context(), "quarantined_messages", keyOf(t, k), []string{"note", "expire_from", "released_at"})
	if err != nil {
		t.Fatal(err)
	}
	if text := row.String(); !strings.Contains(text, "published as message published-1") || strings.Contains(text, "<null>") {
		t.Errorf("row %s", text)
	}
	if got := w.deliverPublished(); !slices.Equal(got, []settle.Outcome{settle.OutcomeApplied}) {
		t.Errorf("outcomes %v", got)
	}
	w.snapshot()
}

func TestReleaseEdited(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	m := w.message(`{"settlement_id":"stl-1","account_id":"a","amount_cents":"1"}`)
	w.deliver(m, settle.OutcomeQuarantined)
	k := w.find(m.ID)
	_, err := w.operator.Release(t.Context(), k, ledger.Release{By: "Ines", DefaultCurrency: "USD"})
	wantRefused(t, err, "refused again: invalid_field amount_cents", "producer")
	released, err := w.operator.Release(t.Context(), k, ledger.Release{
		By: "Ines", Note: "Ada of claims agreed", Edited: []byte(withoutCurrency), DefaultCurrency: "USD",
	})
	if err != nil || !released.Edited {
		t.Fatalf("%+v, %v", released, err)
	}
	row, err := w.client.Single().ReadRow(t.Context(), "quarantined_messages", keyOf(t, k), []string{"note"})
	if err != nil {
		t.Fatal(err)
	}
	if text := row.String(); !strings.Contains(text, "edited, SHA-256 ") || !strings.Contains(text, "Ada of claims agreed") {
		t.Errorf("note %s", text)
	}
	if got := w.deliverPublished(); !slices.Equal(got, []settle.Outcome{settle.OutcomeApplied}) {
		t.Errorf("outcomes %v", got)
	}
}

func TestReleaseRefusesAnUnsupportedEvent(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	m := w.message(withoutCurrency)
	_, err := w.service.Deliver(t.Context(), settle.Delivery{Message: m, Refusal: &payout.Refusal{Reason: payout.ReasonUnsupportedEvent, Detail: "d"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.operator.Release(t.Context(), w.find(m.ID), ledger.Release{By: "Ines", DefaultCurrency: "USD"})
	wantRefused(t, err, "no Pub/Sub message")
}

// TestCrashBetweenPublishingAndMarking loses the database right after the message was
// published. A second release publishes a second copy, and the payout is settled once.
func TestCrashBetweenPublishingAndMarking(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	k := w.find(w.quarantine(withoutCurrency).ID)
	crashing := w.newOperator()
	w.topic.after = crashing.Client.Close
	_, err := crashing.Release(t.Context(), k, ledger.Release{By: "Ines", DefaultCurrency: "USD"})
	if err == nil || !strings.Contains(err.Error(), "published as message published-1, but not marked") {
		t.Fatalf("error %v, want the new message's ID in it", err)
	}
	if again := w.find(k.Key); again.ReleasedBy != "" {
		t.Errorf("marked all the same: %+v", again)
	}
	w.topic.after = nil
	released, err := w.operator.Release(t.Context(), k, ledger.Release{By: "Ines", DefaultCurrency: "USD"})
	if err != nil || released.PublishedAs != "published-2" {
		t.Fatalf("%+v, %v", released, err)
	}
	if got := w.deliverPublished(); !slices.Equal(got, []settle.Outcome{settle.OutcomeApplied, settle.OutcomeDuplicate}) {
		t.Errorf("outcomes %v", got)
	}
	if all := w.snapshot(); len(all.Movements) != 1 || len(all.Quarantined) != 1 {
		t.Errorf("%d movements, %d quarantined", len(all.Movements), len(all.Quarantined))
	}
}

func TestInterruptionAfterPublishingStillMarks(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	k := w.find(w.quarantine(withoutCurrency).ID)
	ctx, cancel := context.WithCancel(t.Context())
	w.topic.after = cancel
	released, err := w.operator.Release(ctx, k, ledger.Release{By: "Ines", DefaultCurrency: "USD"})
	if err != nil || released.ReleasedBy != "Ines" || w.find(k.Key).ReleasedBy != "Ines" {
		t.Errorf("%+v, %v", released, err)
	}
}

func TestConcurrentReleasesReturnTheFirst(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	k := w.find(w.quarantine(withoutCurrency).ID)
	other := w.newOperator()
	w.topic.after = func() {
		if len(w.topic.kept) == 1 { // while the first is between publishing and marking
			w.topic.mu.Unlock()
			defer w.topic.mu.Lock()
			if _, err := other.Release(context.WithoutCancel(t.Context()), k, ledger.Release{By: "Bert", DefaultCurrency: "USD"}); err != nil {
				t.Error(err)
			}
		}
	}
	released, err := w.operator.Release(t.Context(), k, ledger.Release{By: "Ines", DefaultCurrency: "USD"})
	if err != nil || released.ReleasedBy != "Bert" {
		t.Errorf("%+v, %v; want to be told of Bert", released, err)
	}
}

// TestReleaseAll has messages that would be refused again, messages of other reasons,
// and a run that fails.
func TestReleaseAll(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	const many = 130
	for n := range many {
		w.quarantine(fmt.Sprintf(`{"settlement_id":"stl-%d","account_id":"a","amount_cents":1}`, n))
	}
	w.quarantine(`{"account_id":"a","amount_cents":1}`) // missing_field too
	w.quarantine(`not JSON`)
	extent, err := w.operator.Extent(t.Context(), payout.ReasonMissingField)
	if err != nil || extent.Messages != many+1 {
		t.Fatalf("%+v, %v", extent, err)
	}
	release := ledger.Release{By: "Ines", DefaultCurrency: "USD", DryRun: true}
	var (
		mu      sync.Mutex
		refused []string
	)
	each := func(k ledger.Message, r *transfer.Refused) {
		mu.Lock()
		defer mu.Unlock()
		if r != nil {
			refused = append(refused, k.Member)
		}
	}
	want := ledger.Tally{Released: many, Refused: 1, Defaulted: many}
	if tally, err := w.operator.ReleaseAll(t.Context(), extent, release, each); err != nil || tally != want || len(w.topic.kept) != 0 {
		t.Errorf("dry run: %+v, %v, %d published; want %+v", tally, err, len(w.topic.kept), want)
	}
	if !slices.Equal(refused, []string{"settlement_id"}) {
		t.Errorf("refused %v", refused)
	}

	release.DryRun = false
	w.topic.err = errors.New("no such topic")
	if tally, err := w.operator.ReleaseAll(t.Context(), extent, release, each); !errors.Is(err, w.topic.err) || tally.Released != 0 {
		t.Errorf("%+v, %v; want it to end at the first failure", tally, err)
	}
	w.topic.err = nil
	if tally, err := w.operator.ReleaseAll(t.Context(), extent, release, each); err != nil || tally != want || len(w.topic.kept) != many {
		t.Errorf("%+v, %v, %d published; want %+v", tally, err, len(w.topic.kept), want)
	}
	for n, m := range w.topic.kept {
		if want := fmt.Sprintf(`"stl-%d"`, n); !strings.Contains(string(m.Data), want) {
			t.Fatalf("message %d is %s, want %s: the oldest comes first", n, m.Data, want)
		}
	}
	extent, err = w.operator.Extent(t.Context(), payout.ReasonMissingField)
	if err != nil || extent.Messages != 1 {
		t.Errorf("left %+v, %v", extent, err)
	}
}

func TestReleaseAllSettlesTheOldestOfOneSettlement(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	const many = 12
	for n := range many {
		w.quarantine(fmt.Sprintf(`{"settlement_id":"stl-1","account_id":"a","amount_cents":%d}`, n+1))
	}
	extent, err := w.operator.Extent(t.Context(), payout.ReasonMissingField)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.operator.ReleaseAll(t.Context(), extent, ledger.Release{By: "Ines", DefaultCurrency: "USD"}, func(ledger.Message, *transfer.Refused) {}); err != nil {
		t.Fatal(err)
	}
	if got := w.deliverPublished(); got[0] != settle.OutcomeApplied || len(got) != many {
		t.Errorf("outcomes %v", got)
	}
	if all := w.snapshot(); len(all.Movements) != 1 || all.Movements[0].AmountCents != 1 {
		t.Errorf("settled %+v, want the first", all.Movements)
	}
}

// TestReleaseAllSkipsMessagesThatPubSubRefuses: for example, a message with the most
// attributes allowed gets one too many by its release.
func TestReleaseAllSkipsMessagesThatPubSubRefuses(t *testing.T) {
	t.Parallel()
	for _, refusal := range []error{status.Error(codes.InvalidArgument, "too many attributes"), pubsub.ErrOversizedMessage} {
		w := newFixture(t)
		for n := range 3 {
			w.quarantine(fmt.Sprintf(`{"settlement_id":"stl-%d","account_id":"a","amount_cents":1}`, n))
		}
		w.topic.refuses = func(m *pubsub.Message) error {
			if strings.Contains(string(m.Data), "stl-1") {
				return fmt.Errorf("publish to topic: %w", refusal)
			}
			return nil
		}
		extent, err := w.operator.Extent(t.Context(), payout.ReasonMissingField)
		if err != nil {
			t.Fatal(err)
		}
		var refused []string
		tally, err := w.operator.ReleaseAll(t.Context(), extent, ledger.Release{By: "Ines", DefaultCurrency: "USD"}, func(_ ledger.Message, r *transfer.Refused) {
			if r != nil {
				refused = append(refused, r.Error())
			}
		})
		if want := (ledger.Tally{Released: 2, Refused: 1, Defaulted: 2}); err != nil || tally != want || len(w.topic.kept) != 2 {
			t.Errorf("%+v, %v, %d published; want %+v", tally, err, len(w.topic.kept), want)
		}
		if len(refused) != 1 || !strings.Contains(refused[0], "Pub/Sub refuses it: publish to topic: ") {
			t.Errorf("refused %q", refused)
		}
	}
}
