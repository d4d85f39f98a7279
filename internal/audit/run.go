package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/bank"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

const (
	// DefaultWorkers is the number of shares that are read in parallel.
	DefaultWorkers = 4
	// pageRows is the number of settlements that a worker holds at most.
	pageRows = 500
	tag      = "verify"
)

// Options are those of a run.
type Options struct {
	// Bound is the timestamp of the run: strong, or an exact staleness. The zero value
	// is strong.
	Bound spanner.TimestampBound
	// Workers is the number of shares that are read in parallel. Defaults to
	// DefaultWorkers.
	Workers int
	// PageRows is the number of settlements that a worker holds at most. Defaults to
	// 500.
	PageRows int
	// KeyLifetimes are all that the bank's configuration has had. Empty: unknown, and
	// any is right.
	KeyLifetimes []time.Duration
	// Bank is asked about every instruction. Nil: no bank is asked.
	Bank *Bank
	// Found gets each violation and each pending difference, one at a time. An error
	// ends the run. Required.
	Found func(Finding) error
	// Progress gets the progress after each page, one call at a time. May be nil.
	Progress func(Progress)
}

// Progress is the progress of a run.
type Progress struct {
	// Done is the checked share of the settlements, 0 to 1.
	Done float64
	// Rows and Settlements count those that were checked.
	Rows, Settlements int64
}

// Finding is a violation, or a difference from the bank.
type Finding struct {
	Violation

	// Pending says that it is no violation: the reconciler or a person will still
	// resolve it.
	Pending bool `json:"-"`
	// Remedy is the operator's next step.
	Remedy string `json:"remedy"`
}

// Summary is the result of a run.
type Summary struct {
	// ReadAt is the timestamp of all reads.
	ReadAt time.Time `json:"read_at"`
	// Retention is the time for which receipts are kept; zero: for ever.
	Retention time.Duration `json:"-"`
	// Settlements counts the movements, Rows all rows, Quarantined the messages in
	// quarantine.
	Settlements int64 `json:"settlements"`
	Rows        int64 `json:"rows"`
	Quarantined int64 `json:"quarantined"`
	// Asked counts the instructions that the bank was asked about, Unanswered those
	// without a complete answer.
	Asked      int64 `json:"bank_asked"`
	Unanswered int64 `json:"bank_unanswered"`
	// Violations and Pending count the findings by rule.
	Violations map[Rule]int64 `json:"violations_by_rule"`
	Pending    map[Rule]int64 `json:"pending_by_rule"`
	// Totals are the sums moved and reversed, by account and currency.
	Totals []Total `json:"-"`
}

// Count is the number of all violations.
func (s Summary) Count() (all int64) {
	for _, n := range s.Violations {
		all += n
	}
	return all
}

// verifier is one run.
type verifier struct {
	options Options
	client  *spanner.Client
	terms   Terms

	mu     sync.Mutex
	sum    Summary
	totals totals
	done   []float64 // by worker
	inARow int       // unanswered requests
}

// Run checks a database. Found gets the violations; an error means that the run is
// incomplete.
func Run(ctx context.Context, client *spanner.Client, o Options) (Summary, error) {
	if o.Workers <= 0 {
		o.Workers = DefaultWorkers
	}
	if o.PageRows <= 0 {
		o.PageRows = pageRows
	}
	v := &verifier{options: o, client: client, totals: totals{}, done: make([]float64, o.Workers)}
	v.sum.Violations, v.sum.Pending = map[Rule]int64{}, map[Rule]int64{}
	if err := v.begin(ctx); err != nil {
		return Summary{}, fmt.Errorf("verify: %w", err)
	}
	v.terms = Terms{Compose: bank.Compose, KeyLifetimes: o.KeyLifetimes, ReceiptGone: func(recorded time.Time) bool {
		return v.sum.Retention > 0 && !v.sum.ReadAt.Before(recorded.Add(v.sum.Retention))
	}}
	group, ctx := errgroup.WithContext(ctx)
	for i := range o.Workers {
		group.Go(func() error { return v.checkShare(ctx, i) })
	}
	group.Go(func() error { return v.checkQuarantine(ctx) })
	err := group.Wait()
	v.sum.Totals = v.totals.sorted()
	if err != nil {
		return v.sum, fmt.Errorf("verify: %w", err)
	}
	return v.sum, nil
}

// retentionSQL finds the row deletion policy of the receipts.
const retentionSQL = `SELECT IFNULL(ROW_DELETION_POLICY_EXPRESSION, '') FROM INFORMATION_SCHEMA.TABLES
WHERE TABLE_SCHEMA = '' AND TABLE_NAME = 'settlement_receipts'`

var policyDays = regexp.MustCompile(`(?i)^OLDER_THAN\(\s*applied_at\s*,\s*INTERVAL\s+(\d+)\s+DAY\s*\)$`)

// begin chooses the timestamp of all reads, and reads the receipts' retention.
func (v *verifier) begin(ctx context.Context) error {
	tx := v.client.Single().WithTimestampBound(v.options.Bound)
	policy, found := "", false
	err := tx.QueryWithOptions(ctx, spanner.Statement{SQL: retentionSQL}, spanner.QueryOptions{RequestTag: tag}).Do(func(row *spanner.Row) error {
		found = true
		return row.Columns(&policy)
	})
	if err != nil {
		return fmt.Errorf("read the receipts' row deletion policy: %w", err)
	}
	if !found {
		return errors.New("the database has no table settlement_receipts that this role may read")
	}
	if v.sum.ReadAt, err = tx.Timestamp(); err != nil {
		return fmt.Errorf("choose the read timestamp: %w", err)
	}
	if policy == "" {
		return nil
	}
	days := policyDays.FindStringSubmatch(policy)
	if days == nil {
		return fmt.Errorf("the row deletion policy of settlement_receipts is %q; expected OLDER_THAN(applied_at, INTERVAL n DAY)", policy)
	}
	n, err := strconv.ParseInt(days[1], 10, 16)
	if err != nil {
		return fmt.Errorf("the row deletion policy of settlement_receipts is %q: %w", policy, err)
	}
	v.sum.Retention = time.Duration(n) * 24 * time.Hour
	return nil
}

// source reads at the run's timestamp, with a transaction for each read, so that
// none exceeds its age limit. The low priority lets the function's reads go first.
func (v *verifier) source() source {
	return source{
		tx: func() spannerstore.Reader {
			return v.client.Single().WithTimestampBound(spanner.ReadTimestamp(v.sum.ReadAt))
		},
		options: func(limit int) *spanner.ReadOptions {
			return &spanner.ReadOptions{Limit: limit, RequestTag: tag, Priority: spannerpb.RequestOptions_PRIORITY_LOW}
		},
	}
}

// checkShare checks a worker's share of the space, a page at a time. A page covers the
// range of keys that, by the page before, holds a page of settlements.
func (v *verifier) checkShare(ctx context.Context, worker int) error {
	size := space / uint64(v.options.Workers) //nolint:gosec // G115: Run sets it above 0
	from := uint64(worker) * size             //nolint:gosec // G115: an index
	to := from + size
	if worker == v.options.Workers-1 {
		to = space
	}
	start, step := firstKey(from), to-from
	for at := from; at < to; {
		end := min(at+step, to)
		p := v.newPage()
		last, err := v.readPage(ctx, p, start, firstKey(end))
		if err != nil {
			return err
		}
		if last != nil {
			step = max(position(last)-at, 1)
			at, start = position(last), successor(last)
		} else {
			if p.movements < int64(v.options.PageRows)/2 {
				step = min(step*2, size)
			}
			at, start = end, firstKey(end)
		}
		if err := v.checkPage(ctx, p); err != nil {
			return err
		}
		v.countPage(worker, float64(at-from)/float64(to-from), p)
	}
	return nil
}

// newPage returns a page that judges conflicts as they are read. Of the conflicts
// without a movement it keeps one, which breaks [RuleParent].
func (v *verifier) newPage() *page {
	return &page{settlements: map[string]*settlement{}, totals: totals{}, conflict: func(s *settlement, c spannerstore.ConflictRow) error {
		if len(s.Movements) > 0 {
			return v.report(false, ConflictViolations(s.Movements[0], c)...)
		}
		s.Conflicts = []spannerstore.ConflictRow{{SettlementID: c.SettlementID}}
		return nil
	}}
}

// readPage reads the settlements from start up to stop, or the first PageRows of
// them: then last is the last one's key.
func (v *verifier) readPage(ctx context.Context, p *page, start, stop []byte) (last []byte, err error) {
	latest, err := p.readMovements(ctx, v.source(), keyRange(start, stop), v.options.PageRows)
	if err != nil {
		return nil, err
	}
	if p.movements == int64(v.options.PageRows) {
		last, stop = latest, successor(latest)
	}
	return last, p.readChildren(ctx, v.source(), keyRange(start, stop))
}

// checkPage checks a page's settlements, and asks the bank about them.
func (v *verifier) checkPage(ctx context.Context, p *page) error {
	for _, key := range slices.Sorted(maps.Keys(p.settlements)) {
		s := p.settlements[key]
		_ = s.join() // a key that is no UUID is zero, and breaks a rule
		if len(s.instructions) == 0 && len(s.superseded) > 0 {
			s.Events = append(s.Events, spannerstore.EventRow{SettlementID: s.superseded[0].SettlementID}) // breaks RuleParent too
		}
		if err := v.report(false, append(v.terms.Settlement(s.id, s.Snapshot), s.columnViolations()...)...); err != nil {
			return err
		}
		if v.options.Bank == nil || len(s.Instructions) == 0 {
			continue
		}
		if err := v.askBank(ctx, s.Instructions[0]); err != nil {
			return err
		}
	}
	return nil
}

// checkQuarantine checks the messages in quarantine one at a time: each can have
// 10 MiB.
func (v *verifier) checkQuarantine(ctx context.Context) error {
	from := v.source()
	return spannerstore.Quarantined.Each(ctx, from.tx(), spanner.AllKeys(), from.options(0), func(key []byte, q spannerstore.QuarantineRow) error {
		v.mu.Lock()
		v.sum.Quarantined++
		v.sum.Rows++
		v.mu.Unlock()
		found := QuarantineViolations(q)
		if !derives(key, q.Identity) {
			found = append(found, Violation{
				Rule: RuleKey, Message: q.Identity, Found: "a message_key that does not derive from the identity", Want: "its SHA-256",
			})
		}
		return v.report(false, found...)
	})
}

// report counts findings and passes them on.
func (v *verifier) report(pending bool, violations ...Violation) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, violation := range violations {
		remedy := remedies[violation.Rule]
		if pending {
			v.sum.Pending[violation.Rule]++
			remedy = remedyPending
		} else {
			v.sum.Violations[violation.Rule]++
		}
		if err := v.options.Found(Finding{Violation: violation, Pending: pending, Remedy: remedy}); err != nil {
			return err
		}
	}
	return nil
}

// countPage counts a checked page.
func (v *verifier) countPage(worker int, done float64, p *page) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sum.Settlements += p.movements
	v.sum.Rows += p.rows
	v.totals.add(p.totals)
	v.done[worker] = done
	if v.options.Progress == nil {
		return
	}
	var all float64
	for _, done := range v.done {
		all += done / float64(len(v.done))
	}
	v.options.Progress(Progress{Done: all, Rows: v.sum.Rows, Settlements: v.sum.Settlements})
}
