package config_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/test/memstore"
)

// slowStore is Spanner when every call takes its whole time limit.
type slowStore struct{ *memstore.Store }

func (s slowStore) Settle(ctx context.Context, st settle.Settlement) (settle.Result, error) {
	<-ctx.Done()
	time.Sleep(spannerstore.RereadTimeout) // of the bubble's time
	return s.Store.Settle(context.WithoutCancel(ctx), st)
}

func (s slowStore) Change(ctx context.Context, id string, decide func(transfer.Instruction) (transfer.Change, error)) (transfer.Change, error) {
	<-ctx.Done()
	return s.Store.Change(ctx, id, decide)
}

// slowBank takes the whole time limit of every request.
type slowBank struct{ transfer.Policy }

func (slowBank) Compose(p payout.Payout, _ uuid.UUID) ([]byte, error) {
	return []byte(p.SettlementID), nil
}

func (b slowBank) Send(context.Context, transfer.SendRequest) transfer.SendResult {
	time.Sleep(b.SendTimeout) // of the bubble's time
	return transfer.SendResult{}
}

func (b slowBank) Status(context.Context, transfer.StatusRequest) transfer.StatusResult {
	time.Sleep(b.StatusTimeout) // of the bubble's time
	return transfer.StatusResult{}
}

// TestLongestDelivery delivers a payout for the bank while every call takes its whole time
// limit: a fresh one, its duplicate, and its duplicate after a day, when its instruction
// is due.
func TestLongestDelivery(t *testing.T) {
	t.Parallel()
	const settleTimeout = config.DefaultSettleTimeout
	policy := transfer.Policy{KeyLifetime: 24 * time.Hour, VisibilityLag: 15 * time.Second, SendTimeout: 20 * time.Second, StatusTimeout: 10 * time.Second}
	synctest.Test(t, func(t *testing.T) {
		store := slowStore{memstore.New(time.Now)}
		log := slog.New(slog.DiscardHandler)
		service := &settle.Service{
			Store: store, DefaultCurrency: "USD", NewID: uuid.NewString, Now: time.Now,
			Banking: &transfer.Stepper{Store: store, Bank: slowBank{policy}, Policy: policy, NewID: uuid.NewString, Now: time.Now, Log: log},
		}
		handler := &event.Handler{Work: event.Settle(service), Log: log, Now: time.Now, Timeout: settleTimeout - spannerstore.RereadTimeout}
		deliver := func(outcome string) time.Duration {
			answer := httptest.NewRecorder()
			began := time.Now()
			handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(push)))
			if want := fmt.Sprintf(`"outcome":%q`, outcome); answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), want) {
				t.Errorf("answered %d %s, want %s", answer.Code, answer.Body, want)
			}
			return time.Since(began)
		}
		if took, want := deliver("applied"), config.LongestDelivery(settleTimeout, policy.SendTimeout); took != want {
			t.Errorf("a fresh payout took %v, LongestDelivery says %v", took, want)
		}
		if took := deliver("duplicate"); took != settleTimeout {
			t.Errorf("a duplicate took %v, want %v", took, settleTimeout)
		}
		time.Sleep(24 * time.Hour) // of the bubble's time
		if took := deliver("duplicate"); took != settleTimeout {
			t.Errorf("a duplicate of a due instruction took %v, want %v", took, settleTimeout)
		}
	})
}

// push is {"settlement_id":"stl-1","account_id":"a","amount_cents":1,"creditor_account":"c"}
// in a Pub/Sub push request.
const push = `{"message":{"data":"eyJzZXR0bGVtZW50X2lkIjoic3RsLTEiLCJhY2NvdW50X2lkIjoiYSIsImFtb3VudF9jZW50cyI6MSwiY3JlZGl0b3JfYWNjb3VudCI6ImMifQ==",` +
	`"messageId":"1","publishTime":"2026-11-29T12:00:00Z"},"subscription":"projects/p/subscriptions/s"}`
