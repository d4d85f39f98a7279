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
	histories = flag.Uint64("linear.histories", defaultHistories, "linear: number of histories to make on the emulator")
	givenSeed = flag.Uint64("linear.seed", 0, "linear: seed of the messages and faults; 0 means a random one")
)

// The size of a history.
const (
	instances   = 4 // stores, each with a client
	workers     = 8
	settlements = 20
	messages    = 3 // of a settlement
	malformed   = 10

	// One in so many:
	again = 3  // acknowledged deliveries is repeated
	reads = 16 // deliveries is followed by a read
	hasty = 10 // deliveries has a timeout of up to hastyTimeout, the others of timeout

	timeout      = 20 * time.Second
	attempt      = time.Second // the limit of one exchange with Spanner
	hastyTimeout = 30 * time.Millisecond
)

// required are the events that the default number of histories must contain.
var required = []string{
	linear.Delivered(settle.OutcomeApplied), linear.Delivered(settle.OutcomeDuplicate),
	linear.Delivered(settle.OutcomeConflict), linear.Delivered(settle.OutcomeUnknown),
	linear.Delivered(settle.OutcomeQuarantined), linear.Known(settle.OutcomeConflict), linear.Known(settle.OutcomeQuarantined),
	linear.Redelivered(settle.OutcomeApplied), linear.Redelivered(settle.OutcomeDuplicate),
	linear.Redelivered(settle.OutcomeConflict), linear.Redelivered(settle.OutcomeQuarantined),
	linear.Reads, linear.Concurrent, linear.Unanswered,
	answerLost, requestLost, requestLate, arrivedLate, readLost, callerGone, abortInjected, deadCommit, deadArrived, deadRead,
}

func TestMain(m *testing.M) {
	// The emulator runs one read-write transaction at a time and aborts the others. The
	// client's default back-off is for Spanner, where aborts are rare; here it would take
	// most of the test's time.
	spanner.DefaultRetryBackoff.Initial = time.Millisecond
	spanner.DefaultRetryBackoff.Max = 8 * time.Millisecond
	os.Exit(m.Run())
}

// TestStoresOnSpanner delivers to several stores, each with a client of its own, as
// instances have. The emulator aborts transactions at random, and connections lose and
// delay Commits, answers and reads.
func TestStoresOnSpanner(t *testing.T) {
	seed := *givenSeed
	if seed == 0 {
		seed = rand.Uint64N(1 << 40)
	}
	t.Logf("%d histories of seed %d, which repeats the messages; the faults depend on the schedule too", *histories, seed)
	e, err := emulator.StartSpanner(t.Context(), emulator.WithFaultInjection())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	total := linear.Tally{}
	for n := range *histories {
		t.Run(fmt.Sprintf("history %d", n+1), func(t *testing.T) { // closes the clients of this history
			total.Add(newSystem(t, e, seed+n).run(t))
		})
	}
	if *histories < defaultHistories {
		total.Report(t)
		return
	}
	total.Report(t, required...)
}

// system is several instances in front of one database.
type system struct {
	intN        func(n int) int // draws messages
	services    []*settle.Service
	connections []*connection

	reading sync.Mutex // the emulator mishandles two transactions of one client
	reader  *spanner.Client
}

func newSystem(t *testing.T, e *emulator.Spanner, seed uint64) *system {
	t.Helper()
	database := newDatabase(t, e)
	s := &system{intN: rand.New(rand.NewPCG(seed, 0)).IntN, reader: openClient(t, e, database)}
	for n := range uint64(instances) {
		c := newConnection(rand.New(rand.NewPCG(seed, 1+n)).IntN)
		s.connections = append(s.connections, c)
		s.services = append(s.services, newService(openStore(t, e, database, c.options()...)))
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
		Database: database, Emulator: true, AttemptTimeout: attempt, Options: append(e.ClientOptions(), options...),
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

func deliver(ctx context.Context, service *settle.Service, m linear.Message) linear.Answer {
	return linear.AnswerOf(service.Deliver(ctx, settle.Delivery{Attempt: m.Attempt, Message: settle.Message{ID: m.ID, Data: []byte(m.Data())}}))
}

// run makes one history and checks it.
func (s *system) run(t *testing.T) linear.Tally {
	t.Helper()
	h := linear.NewHistory(time.Now)
	workload := linear.Workload{
		Name: "stl", Settlements: settlements, Messages: messages, Malformed: malformed, Workers: workers, Again: again, IntN: s.intN,
	}
	workload.Run(t.Context(), h, func(ctx context.Context, m linear.Message) linear.Answer {
		answer := s.deliver(ctx, m)
		if rand.IntN(reads) == 0 {
			s.read(ctx, t, h)
		}
		return answer
	})
	for _, c := range s.connections {
		c.flush()
	}
	rows := s.read(t.Context(), t, h)
	for _, violation := range rows.Violations(false) {
		t.Error(violation)
	}
	h.Verify(t)
	count := h.Count()
	for _, c := range s.connections {
		count.Add(c.counted)
	}
	return count
}

func (s *system) deliver(ctx context.Context, m linear.Message) linear.Answer {
	n, limit := rand.IntN(len(s.services)), timeout
	if rand.IntN(hasty) == 0 {
		limit = rand.N(hastyTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	waiting := &caller{leave: cancel}
	answer := deliver(context.WithValue(ctx, callerKey{}, waiting), s.services[n], m)
	answer.Server, answer.Doubtful = fmt.Sprintf("store %d", n+1), waiting.unsure.Load()
	return answer
}

func (s *system) read(ctx context.Context, t *testing.T, h *linear.History) audit.Snapshot {
	s.reading.Lock()
	defer s.reading.Unlock()
	rows, err := h.Read("reader", func() (audit.Snapshot, error) { return audit.Read(ctx, s.reader) })
	if err != nil {
		t.Error(err)
	}
	return rows
}
