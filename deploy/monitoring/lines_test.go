package monitoring_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/memstore"
)

const (
	settler    = "settle-payout"
	reconciler = "reconcile-bank"
)

// functions are both functions on a store in memory and a scripted bank, with all
// lines that they log.
type functions struct {
	t       *testing.T
	now     time.Time
	store   *memstore.Store
	bank    *bank
	level   slog.Level               // LOG_LEVEL
	log     map[string]*bytes.Buffer // by function
	entries map[string]map[string]any
	ids     int
}

// bank gives the same answer to every send and to every status request.
type bank struct {
	send    transfer.SendClass
	reading transfer.StatusReading
	panics  bool
}

func (*bank) Compose(p payout.Payout, _ uuid.UUID) ([]byte, error) {
	return []byte(p.SettlementID), nil
}

func (b *bank) Send(context.Context, transfer.SendRequest) transfer.SendResult {
	return transfer.SendResult{Class: b.send, Answer: transfer.BankAnswer{HTTPStatus: 200}}
}

func (b *bank) Status(context.Context, transfer.StatusRequest) transfer.StatusResult {
	if b.panics {
		panic("x")
	}
	return transfer.StatusResult{Reading: b.reading, Answer: transfer.BankAnswer{HTTPStatus: 200}}
}

func newFunctions(t *testing.T, level slog.Level) *functions {
	f := &functions{
		t: t, now: time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC), bank: &bank{}, level: level,
		log: map[string]*bytes.Buffer{settler: {}, reconciler: {}}, entries: map[string]map[string]any{},
	}
	f.store = memstore.New(f.clock)
	return f
}

func (f *functions) clock() time.Time { return f.now }
func (f *functions) logOf(name string) *slog.Logger {
	return event.NewLoggerIn("p", f.log[name], f.level)
}

// bothStores keeps settlements and instructions.
type bothStores interface {
	settle.Store
	transfer.Store
}

func (f *functions) stepper(name string, store transfer.Store) *transfer.Stepper {
	return &transfer.Stepper{
		Store: store, Bank: f.bank, NewID: uuid.NewString, Now: f.clock, Log: f.logOf(name),
		Policy: transfer.Policy{KeyLifetime: 24 * time.Hour, VisibilityLag: 15 * time.Second, SendTimeout: 20 * time.Second, StatusTimeout: 10 * time.Second},
	}
}

func (f *functions) service(banking *transfer.Stepper, store bothStores) *settle.Service {
	return &settle.Service{Store: store, Banking: banking, DefaultCurrency: "USD", NewID: uuid.NewString, Now: f.clock}
}

// ask sends a request to a function and stores its log lines, by name and message.
func (f *functions) ask(name string, to http.Handler, r *http.Request) {
	f.t.Helper()
	to.ServeHTTP(httptest.NewRecorder(), r)
	for function, log := range f.log {
		for line := range strings.Lines(log.String()) {
			var members map[string]any
			if err := json.Unmarshal([]byte(line), &members); err != nil {
				f.t.Fatalf("%v: %s", err, line)
			}
			key := fmt.Sprintf("%s: %s", name, members["message"])
			if f.entries[key] != nil {
				f.t.Fatalf("two lines %q", key)
			}
			f.entries[key] = entry(function, members)
		}
		log.Reset()
	}
}

// entry converts a line on standard error like Cloud Logging, which moves the fields
// that it knows out of the payload.
func entry(function string, payload map[string]any) map[string]any {
	e := map[string]any{
		"severity": payload["severity"], "jsonPayload": payload,
		"resource": map[string]any{"type": "cloud_run_revision", "labels": map[string]any{"service_name": function}},
	}
	delete(payload, "severity")
	delete(payload, "time")
	maps.DeleteFunc(payload, func(key string, _ any) bool { return strings.HasPrefix(key, "logging.googleapis.com/") })
	return e
}

func (f *functions) request(data string) *http.Request {
	f.ids++
	body := fmt.Sprintf(`{"message":{"data":%q,"messageId":"%d","publishTime":%q},"subscription":"projects/p/subscriptions/s","deliveryAttempt":1}`,
		base64.StdEncoding.EncodeToString([]byte(data)), f.ids, f.now.Add(-time.Second).Format(time.RFC3339))
	return httptest.NewRequestWithContext(f.t.Context(), http.MethodPost, "/", strings.NewReader(body))
}

func (f *functions) handler(d event.Deliverer) http.Handler {
	return &event.Handler{Work: event.Settle(d), Log: f.logOf(settler), Now: f.clock}
}

func (f *functions) deliver(name, data string) {
	f.t.Helper()
	f.ask(name, f.handler(f.service(f.stepper(settler, f.store), f.store)), f.request(data))
}

// settleUnderAnotherHash stores a movement whose payload hash is not that of its columns.
func (f *functions) settleUnderAnotherHash(id string) {
	f.t.Helper()
	p, err := payout.Decode([]byte(payoutJSON(id, 1, false)), "USD")
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.store.Settle(f.t.Context(), settle.Settlement{Payout: p, Hash: "v2:00", DeliveryID: "d"}); err != nil {
		f.t.Fatal(err)
	}
}

func payoutJSON(id string, amount int, bank bool) string {
	text := fmt.Sprintf(`{"settlement_id":%q,"account_id":"a","amount_cents":%d`, id, amount)
	if bank {
		text += `,"creditor_account":"c"`
	}
	return text + "}"
}

// sent settles a payout with that answer to its send.
func (f *functions) sent(class transfer.SendClass) (id string) {
	f.t.Helper()
	f.bank.send = class
	id = fmt.Sprintf("sent-%s-%d", class, f.ids)
	f.deliver("sent, "+class.String()+" "+id, payoutJSON(id, 1, true))
	return id
}

// run runs the reconciler when the instruction is due.
func (f *functions) run(name string, r event.Reconciler) {
	f.t.Helper()
	handler := &event.Handler{Work: event.Reconcile(r), Log: f.logOf(reconciler), Now: f.clock}
	f.ask(name, handler, f.request(event.Tick))
}

func (f *functions) reconcile(name string, store transfer.Store, banking *transfer.Stepper) {
	f.t.Helper()
	f.run(name, &transfer.Reconciler{Store: store, Banking: banking, Now: f.clock, Limit: 1000, Concurrency: 1})
}

// onlyOf is a store with one due instruction, so that a run logs one line about it.
type onlyOf struct {
	transfer.Store
	id   string
	fail error
}

func (s onlyOf) Due(context.Context, time.Time, int) ([]string, error) { return []string{s.id}, nil }

func (s onlyOf) Change(ctx context.Context, id string, decide func(transfer.Instruction) (transfer.Change, error)) (transfer.Change, error) {
	if s.fail != nil {
		return transfer.Change{}, s.fail
	}
	return s.Store.Change(ctx, id, decide)
}

// asked runs the reconciler for one instruction with that answer of the status API.
func (f *functions) asked(name, id string, reading transfer.StatusReading) {
	f.t.Helper()
	f.now = f.now.Add(30 * time.Hour) // later than any next check: 24 hours and a fifth
	f.bank.reading = reading
	store := onlyOf{Store: f.store, id: id}
	f.reconcile(name, store, f.stepper(reconciler, store))
}

type delivererFunc func() (settle.Result, error)

func (d delivererFunc) Deliver(context.Context, settle.Delivery) (settle.Result, error) { return d() }

type reconcilerFunc func(context.Context) (transfer.Reconciled, error)

func (r reconcilerFunc) Reconcile(ctx context.Context) (transfer.Reconciled, error) { return r(ctx) }

// allLines makes the functions log every kind of line with a LOG_LEVEL, and returns the
// entries by name.
func allLines(t *testing.T, level slog.Level) map[string]map[string]any {
	t.Helper()
	f := newFunctions(t, level)
	f.deliver("applied", payoutJSON("stl-1", 1, false))
	f.deliver("duplicate", payoutJSON("stl-1", 1, false))
	f.deliver("conflict", payoutJSON("stl-1", 2, false))
	f.deliver("known conflict", payoutJSON("stl-1", 2, false))
	f.deliver("quarantined", "not a payout")
	f.ids-- // the same message again
	f.deliver("known message", "not a payout")
	f.now = f.now.Add(79 * 24 * time.Hour)
	f.deliver("duplicate after 79 days", payoutJSON("stl-1", 1, false))
	f.now = f.now.Add(24 * time.Hour)
	f.deliver("duplicate after 80 days", payoutJSON("stl-1", 1, false))
	f.deliver("conflict after 80 days", payoutJSON("stl-1", 3, false))
	f.settleUnderAnotherHash("stl-tampered")
	f.deliver("tampered", payoutJSON("stl-tampered", 1, false))
	f.deliver("applied again", payoutJSON("stl-expired", 1, false))
	f.store.DeleteReceipt("stl-expired")
	f.deliver("expired", payoutJSON("stl-expired", 1, false))
	f.ask("no bank", f.handler(f.service(nil, f.store)), f.request(payoutJSON("stl-2", 1, true)))
	f.ask("panic", f.handler(delivererFunc(func() (settle.Result, error) { panic("x") })), f.request("{}"))
	f.ask("rejected", f.handler(nil), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	misconfigured := &event.Handler{Work: event.Misconfigured(errors.New("BANK_URL: no URL")), Log: f.logOf(settler), Now: f.clock}
	f.ask("misconfigured", misconfigured, f.request("{}"))
	failing := onlyOf{Store: f.store, fail: errors.New("spanner: down")}
	f.ask("left", f.handler(f.service(f.stepper(settler, failing), f.store)), f.request(payoutJSON("stl-3", 1, true)))

	for _, class := range []transfer.SendClass{transfer.SendNotSent, transfer.SendHeld, transfer.SendRetryLater, transfer.SendManual} {
		f.sent(class)
	}
	uncertain, accepted, rejected := f.sent(transfer.SendUncertain), f.sent(transfer.SendAccepted), f.sent(transfer.SendRejected)
	f.asked("asked, unknown", uncertain, transfer.StatusUnknown)
	f.asked("asked, pending", uncertain, transfer.StatusPending)
	f.asked("asked, confirmed", uncertain, transfer.StatusConfirmed)
	f.asked("confirmed, then confirmed", uncertain, transfer.StatusConfirmed)
	f.asked("confirmed, then rejected", uncertain, transfer.StatusRejected)
	f.asked("asked, returned", accepted, transfer.StatusReturned)
	f.asked("rejected, then confirmed", rejected, transfer.StatusConfirmed)
	f.asked("asked, not found after the life of the key", f.sent(transfer.SendUncertain), transfer.StatusNotFound)
	f.asked("asked, rejected", f.sent(transfer.SendUncertain), transfer.StatusRejected)
	f.asked("asked, attention", f.sent(transfer.SendUncertain), transfer.StatusAttention)
	f.asked("asked, two transfers", f.sent(transfer.SendUncertain), transfer.StatusManual)

	failing.id = f.sent(transfer.SendUncertain)
	f.reconcile("store down", failing, f.stepper(reconciler, failing))
	f.reconcile("no bank there", failing, nil)
	f.bank.panics = true
	f.asked("panic in a step", f.sent(transfer.SendUncertain), transfer.StatusUnknown)
	f.run("panic in a run", reconcilerFunc(func(context.Context) (transfer.Reconciled, error) { panic("x") }))
	ctx, cancel := context.WithCancel(t.Context())
	f.ask("stopped", &event.Handler{
		Work: event.Reconcile(reconcilerFunc(func(ctx context.Context) (transfer.Reconciled, error) {
			cancel()
			return transfer.Reconciled{}, ctx.Err()
		})),
		Log: f.logOf(reconciler), Now: f.clock,
	}, f.request(event.Tick).WithContext(ctx))
	f.ask("payout there", &event.Handler{Work: event.Reconcile(nil), Log: f.logOf(reconciler), Now: f.clock}, f.request(payoutJSON("stl-9", 1, false)))
	return f.entries
}
