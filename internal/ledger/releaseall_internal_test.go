package ledger

import (
	"fmt"
	"testing"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/schema"
)

// TestOpenMessagesAreListedOnce pages through messages with the same commit timestamp.
func TestOpenMessagesAreListedOnce(t *testing.T) {
	t.Parallel()
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	client, err := spanner.NewClientWithConfig(t.Context(), emulatortest.Database(t, statements),
		spanner.ClientConfig{DisableNativeMetrics: true}, emulatortest.Spanner(t).ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const many = 2*releasePage + 1
	moment := time.Now().Add(-time.Minute).Truncate(time.Microsecond)
	var rows []*spanner.Mutation
	for n := range many {
		rows = append(rows, spanner.InsertMap("quarantined_messages", map[string]any{
			"identity": fmt.Sprintf("m-%d", n), "message_id": "m", "subscription": "s", "reason": "not_json", "detail": "d", "data": []byte("d"),
			"quarantined_at": moment,
		}))
	}
	if _, err := client.Apply(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	o := &Operator{Client: client}
	extent, err := o.Extent(t.Context(), payout.ReasonNotJSON)
	if err != nil || extent.Messages != many {
		t.Fatalf("%+v, %v", extent, err)
	}
	seen := map[string]int{}
	if err := o.eachOpen(t.Context(), extent, func(m Message) error { seen[m.Key]++; return nil }); err != nil {
		t.Fatal(err)
	}
	for key, times := range seen {
		if times != 1 {
			t.Errorf("%s listed %d times", key, times)
		}
	}
	if len(seen) != many {
		t.Errorf("%d listed, want %d", len(seen), many)
	}
}
