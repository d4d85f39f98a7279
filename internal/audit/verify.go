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
	// DefaultWorkers is how many shares of the database are read at a time.
	DefaultWorkers = 4
	// pageRows is how many settlements a worker holds at most.
	pageRows = 500
	tag      = "verify"
)

// Options say how a database is verified, and whom to tell.
type Options struct {
	// Bound is when to read: strong, or an exact staleness. The zero value is strong.
	Bound spanner.TimestampBound
	// Workers is how many shares of the database are read at a time. Defaults to
	// DefaultWorkers.
	Workers int
	// PageRows is how many settlements a worker holds at most. Defaults to 500.
	PageRows int
	// KeyLifetimes are those that the bank's configuration has had. Empty: not
	// known, and any is right.
	KeyLifetimes []time.Duration
	// Bank is asked about every instruction. Nil: no bank is asked.
	Bank *Bank
	// Found is told of each violation and each pending difference, one at a time. An
	// error ends the run. Required.
	Found func(Finding) error
	// Progress is told how far the run is, one call at a time. Nil: nobody is.
	Progress func(Progress)
}

// Progress is how far a run is.
type Progress struct {
	// Done is the part of the settlements that has been checked, 0 to 1.
	Done float64
	// Rows and Settlements count what has been checked.
	Rows, Settlements int64
}

// Finding is a rule that does not hold, or a difference from the bank.
type Finding struct {
	Violation

	// Pending says that it is not a violation: the reconciler or a person will still
	// mend it.
	Pending bool
	// Remedy says what to do about it.
	Remedy string
}

// Summary is what a run has seen.
type Summary struct {
	// ReadAt is the timestamp of everything that was read.
	ReadAt time.Time
	// Retention is how long receipts are kept after the final outcome; zero: for ever.
	Retention time.Duration
	// Settlements counts the movements, Rows all rows, Quarantined the messages in
	// quarantine.
	Settlements, Rows, Quarantined int64
	// Asked counts the questions to the bank, Unanswered those of them that brought
	// nothing.
	Asked, Unanswered int64
	// Violations and Pending count the findings by rule.
	Violations, Pending map[Rule]int64
	// Totals are what was moved and reversed, by account and currency.
	Totals []Total
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
	done   []float64 // of each worker's share
	inARow int       // unanswered questions
}

// Run verifies a database. What is wrong with it is told to Found and no error; an
// error means that the run is incomplete.
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
	v.terms = Terms{Compose: bank.Compose, KeyLifetimes: o.KeyLifetimes, ReceiptGone: func(final time.Time) bool {
		return v.sum.Retention > 0 && !v.sum.ReadAt.Before(final.Add(v.sum.Retention))
	}}
	group, ctx := errgroup.WithContext(ctx)
	for i := range o.Workers {
		group.Go(func() error { return v.share(ctx, i) })
	}
	group.Go(func() error { return v.quarantine(ctx) })
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

var policyDays = regexp.MustCompile(`(?i)^OLDER_THAN\(\s*expire_from\s*,\s*INTERVAL\s+(\d+)\s+DAY\s*\)$`)

// begin chooses the timestamp of all reads, and reads how long receipts are kept.
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
		return fmt.Errorf("the row deletion policy of settlement_receipts is %q; expected OLDER_THAN(expire_from, INTERVAL n DAY)", policy)
	}
	n, err := strconv.ParseInt(days[1], 10, 16)
	if err != nil {
		return fmt.Errorf("the row deletion policy of settlement_receipts is %q: %w", policy, err)
	}
	v.sum.Retention = time.Duration(n) * 24 * time.Hour
	return nil
}

// reader reads at the run's timestamp. Every read is a transaction of its own, so
// none of them grows old.
func (v *verifier) reader() spannerstore.Reader {
	return v.client.Single().WithTimestampBound(spanner.ReadTimestamp(v.sum.ReadAt))
}

// readOptions let the function go first.
func readOptions(limit int) *spanner.ReadOptions {
	return &spanner.ReadOptions{Limit: limit, RequestTag: tag, Priority: spannerpb.RequestOptions_PRIORITY_LOW}
}

// tell hands on what was found.
func (v *verifier) tell(pending bool, violations ...Violation) error {
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

// checked counts a page that was checked.
func (v *verifier) checked(worker int, done float64, p *page) {
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

// quarantine checks the messages in quarantine, one at a time: each can have
// 10 MiB.
func (v *verifier) quarantine(ctx context.Context) error {
	return spannerstore.Quarantined.Each(ctx, v.reader(), spanner.AllKeys(), readOptions(0), func(key []byte, q spannerstore.QuarantineRow) error {
		v.mu.Lock()
		v.sum.Quarantined++
		v.sum.Rows++
		v.mu.Unlock()
		found := QuarantineViolations(q)
		if !derives(key, q.Identity) {
			found = append(found, Violation{
				Rule: RuleKey, Message: q.Identity, Found: "a message_key that is not the SHA-256 of the identity", Want: "that",
			})
		}
		return v.tell(false, found...)
	})
}

// Rules are the names of all rules, sorted.
func Rules() []Rule { return slices.Sorted(maps.Keys(remedies)) }
