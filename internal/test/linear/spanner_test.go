package linear_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/uuid"
	"google.golang.org/api/option"

	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/test/linear"
	"github.com/settleonce/settleonce/schema"
)

const defaultHistories = 10

var (
	histories = flag.Uint64("linear.histories", defaultHistories, "linear: how many histories to make on the emulator")
	givenSeed = flag.Uint64("linear.seed", 0, "linear: seed of the messages and faults; 0 draws one")
)

// What a history is made of.
const (
	instances   = 4 // stores, a client each
	workers     = 8
	settlements = 20
	messages    = 3 // of a settlement

	// Of so many one:
	again = 3  // acknowledged delivery is repeated
	looks = 16 // delivery is followed by a look
	hurry = 10 // delivery has hurryTime at most, the others have patience

	patience  = 20 * time.Second
	hurryTime = 30 * time.Millisecond
)

// mustHappen is what the default number of histories has to have met.
var mustHappen = []string{
	linear.Delivered(settle.OutcomeApplied), linear.Delivered(settle.OutcomeDuplicate),
	linear.Delivered(settle.OutcomeConflict), linear.Delivered(settle.OutcomeUnknown),
	linear.Looks, linear.Concurrent, linear.Unseen,
	answerLost, requestLost, requestLate, arrivedLate, readLost, callerGone, abortInjected,
}

func TestMain(m *testing.M) {
	// The emulator runs one read-write transaction at a time and aborts the
	// others. The client's pauses between attempts are made for Spanner, where an
	// abort is rare; here they would be most of the test's time.
	spanner.DefaultRetryBackoff.Initial = time.Millisecond
	spanner.DefaultRetryBackoff.Max = 8 * time.Millisecond
	os.Exit(m.Run())
}

// TestStoresOnSpanner delivers over several stores with clients of their own, as
// several instances would, on an emulator that aborts transactions at random,
// over wires that lose and delay Commits, answers and reads.
func TestStoresOnSpanner(t *testing.T) {
	seed := *givenSeed
	if seed == 0 {
		seed = rand.Uint64N(1 << 40)
	}
	t.Logf("%d histories of seed %d, which draws the same messages again; what happens to them depends on the schedule too", *histories, seed)
	e, err := emulator.StartSpanner(t.Context(), emulator.WithFaultInjection())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	total := linear.Tally{}
	for n := range *histories {
		t.Run(fmt.Sprintf("history %d", n+1), func(t *testing.T) { // which closes what it has opened
			total.Add(newSystem(t, e, seed+n).run(t))
		})
	}
	must := mustHappen
	if *histories < defaultHistories {
		must = nil
	}
	total.Report(t, must...)
}

// system is several instances in front of one database.
type system struct {
	intN     func(n int) int // draws messages
	services []*settle.Service
	wires    []*wire

	looking sync.Mutex // the emulator mishandles two transactions of one client
	looker  *spanner.Client
}

func newSystem(t *testing.T, e *emulator.Spanner, seed uint64) *system {
	t.Helper()
	database := newDatabase(t, e)
	s := &system{intN: rand.New(rand.NewPCG(seed, 0)).IntN, looker: openClient(t, e, database)}
	for n := range uint64(instances) {
		w := newWire(rand.New(rand.NewPCG(seed, 1+n)).IntN)
		s.wires = append(s.wires, w)
		s.services = append(s.services, newService(openStore(t, e, database, w.options()...)))
	}
	return s
}

func newDatabase(t *testing.T, e *emulator.Spanner) string {
	t.Helper()
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	name, err := e.CreateDatabase(t.Context(), "", statements)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.DropDatabase(context.WithoutCancel(t.Context()), name); err != nil {
			t.Error(err)
		}
	})
	return name
}

func openClient(t *testing.T, e *emulator.Spanner, database string, options ...option.ClientOption) *spanner.Client {
	t.Helper()
	client, err := spanner.NewClientWithConfig(t.Context(), database, spanner.ClientConfig{DisableNativeMetrics: true},
		append(e.ClientOptions(), options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func openStore(t *testing.T, e *emulator.Spanner, database string, options ...option.ClientOption) settle.Store {
	t.Helper()
	store, err := spannerstore.Open(t.Context(), spannerstore.Config{
		Database: database, Emulator: true, Options: append(e.ClientOptions(), options...),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

func newService(store settle.Store) *settle.Service {
	return &settle.Service{Store: store, DefaultCurrency: "USD", NewID: uuid.NewString, Now: time.Now}
}

// deliver makes one delivery.
func deliver(ctx context.Context, service *settle.Service, m linear.Message) linear.Answer {
	return linear.AnswerOf(service.Deliver(ctx, settle.Delivery{Message: settle.Message{ID: m.ID, Data: []byte(m.Data())}}))
}

// run makes one history and checks it.
func (s *system) run(t *testing.T) linear.Tally {
	t.Helper()
	h := linear.NewHistory(time.Now)
	workload := linear.Workload{
		Name: "stl", Settlements: settlements, Messages: messages, Workers: workers, Again: again, IntN: s.intN,
	}
	workload.Run(t.Context(), h, func(ctx context.Context, m linear.Message) linear.Answer {
		answer := s.deliver(ctx, m)
		if rand.IntN(looks) == 0 {
			s.look(ctx, t, h)
		}
		return answer
	})
	for _, w := range s.wires {
		w.flush()
	}
	all := s.look(t.Context(), t, h)
	for _, violation := range all.Violations(false) {
		t.Error(violation)
	}
	h.Verify(t)
	count := h.Count()
	for _, w := range s.wires {
		count.Add(w.counted)
	}
	return count
}

func (s *system) deliver(ctx context.Context, m linear.Message) linear.Answer {
	n, limit := rand.IntN(len(s.services)), patience
	if rand.IntN(hurry) == 0 {
		limit = rand.N(hurryTime)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer := deliver(context.WithValue(ctx, callerKey{}, cancel), s.services[n], m)
	answer.By = fmt.Sprintf("store %d", n+1)
	return answer
}

func (s *system) look(ctx context.Context, t *testing.T, h *linear.History) audit.Snapshot {
	s.looking.Lock()
	defer s.looking.Unlock()
	all, err := h.Look("looker", func() (audit.Snapshot, error) { return audit.Read(ctx, s.looker) })
	if err != nil {
		t.Error(err)
	}
	return all
}
