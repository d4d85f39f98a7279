// Package capacity estimates the resources for a payout rate: processing units,
// function instances, storage and message volume.
//
// It only does arithmetic, so that an engineer can check the figures by hand: every
// [Figure] has its formula with the numbers in it. [Load] has the assumptions about a
// deployment; replace them with measurements.
package capacity

import (
	"fmt"
	"math"
	"time"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// Instance is the write rate of a Spanner instance configuration, for each 1,000
// processing units, in single rows of 1 KB at 100 % CPU.
type Instance struct {
	// Writes is the rate without a commit delay, DelayedWrites that with a commit delay
	// of 100 ms (throughput optimized writes).
	Writes, DelayedWrites int
	// CPU is the recommended maximum CPU load, for high priority work.
	CPU float64
}

// Instance configurations. Source: https://cloud.google.com/spanner/docs/performance and
// https://cloud.google.com/spanner/docs/cpu-utilization, read in December 2026.
var (
	Regional    = Instance{Writes: 3500, DelayedWrites: 22500, CPU: 0.65}
	MultiRegion = Instance{Writes: 2700, DelayedWrites: 15000, CPU: 0.45}
)

// SplitWrites returns the writes per second above which one split is hot. Google
// documents no such rate. Assumption: the server of a split takes as much as 1,000
// processing units, without a commit delay, at the recommended CPU load.
func (i Instance) SplitWrites() float64 { return float64(i.Writes) * i.CPU }

// Figures of other services of Google.
const (
	// BytesPerNode is the storage limit of 1,000 processing units.
	BytesPerNode = 10e12
	// RunCPU is the CPU load above which Cloud Run adds an instance.
	RunCPU = 0.6
	// PubSubLeastBytes is the least size that Pub/Sub bills for a message.
	PubSubLeastBytes = 1000
)

// Figures of Settle Once. TestCounted compares them with the commits of the program;
// index entries count as rows.
const (
	// PayoutRows are the rows of a payout's commit.
	PayoutRows = 2
	// ExpiredRows are those of them that the row deletion policy deletes later.
	ExpiredRows = 1
	// CreatedRows are the additional rows of a payout's commit with a bank instruction.
	CreatedRows = 4
	// AnsweredRows are the rows that record the answer to the send.
	AnsweredRows = 5
	// CheckRows are the rows of a status check. The last check writes one less.
	CheckRows = 7
	// StatusChecks is the mean number of status checks of an instruction: one confirms it,
	// and then there is one a day for 10 days, each up to a fifth early or late.
	StatusChecks float64 = 1 + 10.5
	// BankCommits and BankRows are those of a bank instruction, beside its payout's.
	BankCommits = 1 + 2*StatusChecks
	BankRows    = CreatedRows + AnsweredRows + StatusChecks*CheckRows - 1
	// DueEntries are the writes of an instruction to the index bank_instructions_due: one
	// when it is created, two with the answer, and four for each status check but the last.
	DueEntries = 1 + 2 + StatusChecks*4 - 1
	// EventRows are the events of an instruction: created, sent, and one per check.
	EventRows = 2 + StatusChecks
	// ReconcileRuns is the number of concurrent runs of ReconcileBank: one starts every
	// minute and takes up to 2 minutes.
	ReconcileRuns = 2
	// ReceiptDays is the lifetime of a receipt: 100 days by the row deletion policy, and
	// 3 of possible delay.
	ReceiptDays = 103
)

const (
	secondsOfDay   = 24 * 60 * 60
	secondsOfMonth = 30 * secondsOfDay
	terabyte       = 1e12
)

// Load describes the load and the assumptions about a deployment. Its zero value is
// not valid; [Default] has the figures of deploy/.
type Load struct {
	// Instance is the configuration of the Spanner instance.
	Instance Instance
	// BankShare is the part of the payouts with a bank instruction, 0 to 1.
	BankShare float64
	// Commit is the duration of an RPC to Spanner, Bank that of a bank request.
	Commit time.Duration
	Bank   time.Duration
	// CPU is the CPU time of a delivery.
	CPU time.Duration
	// Concurrency is the number of concurrent deliveries in an instance of one vCPU.
	Concurrency int
	// MessageBytes is the size of a message, LogBytes that of a log line.
	MessageBytes int
	LogBytes     int
}

// Default returns the assumptions without measurements.
func Default() Load {
	return Load{
		Instance: Regional, BankShare: 0.2, Commit: 15 * time.Millisecond, Bank: 300 * time.Millisecond, CPU: 2 * time.Millisecond,
		Concurrency: 32, MessageBytes: 400, LogBytes: 700,
	}
}

// Figure is one line of an estimate.
type Figure struct {
	// Name has the unit: "Spanner: commits a second".
	Name string `json:"name"`
	// Values has the figure for each rate.
	Values []float64 `json:"values"`
	// Formula computes the figure from "rate", payouts a second, and numbers.
	Formula string `json:"formula"`
}

// Estimate returns the figures for each rate, in payouts a second.
func Estimate(load Load, rates []float64) []Figure {
	e := estimate{load: load, rates: rates}
	e.spanner()
	e.storage()
	e.pubsub()
	e.functions()
	return e.figures
}

type estimate struct {
	load    Load
	rates   []float64
	figures []Figure
}

func (e *estimate) add(name string, value func(rate float64) float64, formula string, args ...any) {
	f := Figure{Name: name, Formula: fmt.Sprintf(formula, args...)}
	for _, rate := range e.rates {
		f.Values = append(f.Values, value(rate))
	}
	e.figures = append(e.figures, f)
}

func (e *estimate) spanner() {
	share, spanner := e.load.BankShare, e.load.Instance
	commits := func(rate float64) float64 { return rate * (1 + share*BankCommits) }
	rows := func(rate float64) float64 { return rate * (PayoutRows + ExpiredRows + share*BankRows) }
	e.add("Spanner: commits a second", commits, "rate × (1 + %g × %g)", share, BankCommits)
	e.add("Spanner: rows written a second", rows, "rate × (%d + %d expired + %g × %g)", PayoutRows, ExpiredRows, share, BankRows)
	for _, delay := range []struct {
		name   string
		writes int
	}{{"processing units", spanner.Writes}, {"processing units, commit delay 100 ms", spanner.DelayedWrites}} {
		perUnit := float64(delay.writes) * spanner.CPU / 1000
		e.add("Spanner: "+delay.name+", at least", func(rate float64) float64 { return units(commits(rate) / perUnit) },
			"commits ÷ (%d × %g) × 1000: a commit counts as a write", delay.writes, spanner.CPU)
		e.add("Spanner: "+delay.name+", at most", func(rate float64) float64 { return units(rows(rate) / perUnit) },
			"rows ÷ (%d × %g) × 1000: every row counts as a write", delay.writes, spanner.CPU)
	}
	hotAt := "at no rate"
	if share > 0 {
		hotAt = fmt.Sprintf("from %.0f payouts a second", spanner.SplitWrites()*spannerstore.Shards/share/DueEntries)
	}
	e.add("Spanner: writes a second to each shard of bank_instructions_due", func(rate float64) float64 { return rate * share * DueEntries / spannerstore.Shards },
		"rate × %g × %g ÷ %d; hot above %d × %g, %s", share, DueEntries, spannerstore.Shards, spanner.Writes, spanner.CPU, hotAt)
}

func (e *estimate) storage() {
	share := e.load.BankShare
	payout, receipt, instruction := rowBytes("ledger_movements"), rowBytes("settlement_receipts"), instructionBytes()
	kept := func(rate float64) float64 { return rate * secondsOfMonth * (payout + share*instruction) / terabyte }
	receipts := func(rate float64) float64 { return rate * secondsOfDay * ReceiptDays * receipt / terabyte }
	e.add("Spanner: TB a month, for ever", kept,
		"rate × %d s × (%g B + %g × %g B)", secondsOfMonth, payout, share, instruction)
	e.add("Spanner: TB of receipts, once full", receipts, "rate × %d s × %d days × %g B", secondsOfDay, ReceiptDays, receipt)
	e.add("Spanner: processing units for a year's storage", func(rate float64) float64 {
		return units((12*kept(rate) + receipts(rate)) * terabyte / BytesPerNode * 1000)
	}, "(12 months + receipts) ÷ %g TB × 1000", BytesPerNode/terabyte)
}

func (e *estimate) pubsub() {
	size := max(e.load.MessageBytes, PubSubLeastBytes)
	e.add("Pub/Sub: push requests a second", func(rate float64) float64 { return rate }, "rate: one message a request")
	e.add("Pub/Sub: TB a month, published and pushed", func(rate float64) float64 {
		return rate * secondsOfMonth * 2 * float64(size) / terabyte
	}, "rate × %d s × 2 × %d B, the least that a message counts as", secondsOfMonth, size)
}

func (e *estimate) functions() {
	l := e.load
	busy := l.Commit.Seconds() + l.BankShare*(l.Bank.Seconds()+2*l.Commit.Seconds())
	flight := func(rate float64) float64 { return rate * busy }
	e.add("SettlePayout: deliveries at a time", flight, "rate × (%v + %g × (%v + 2 × %v))", l.Commit, l.BankShare, l.Bank, l.Commit)
	e.add("SettlePayout: instances of 1 vCPU", func(rate float64) float64 {
		return math.Ceil(tidy(max(flight(rate)/float64(l.Concurrency)/RunCPU, rate*l.CPU.Seconds()/RunCPU)))
	}, "the larger of deliveries ÷ %d ÷ %g and rate × %v ÷ %g", l.Concurrency, RunCPU, l.CPU, RunCPU)
	checks := func(rate float64) float64 { return rate * l.BankShare * StatusChecks }
	e.add("ReconcileBank: status checks a second", checks, "rate × %g × %g: one that confirms, one a day for 10 days", l.BankShare, StatusChecks)
	e.add("ReconcileBank: BANK_CONCURRENCY", func(rate float64) float64 {
		return math.Ceil(tidy(checks(rate) * (l.Bank.Seconds() + 4*l.Commit.Seconds()) / ReconcileRuns))
	}, "status checks × (%v + 4 × %v) ÷ %d runs at a time; it can be %d at the most", l.Bank, l.Commit, ReconcileRuns, config.MaxBankConcurrency)
	lines := 1 + l.BankShare*(1+StatusChecks)
	e.add("Logging: TB a month", func(rate float64) float64 {
		return rate * secondsOfMonth * lines * float64(l.LogBytes) / terabyte
	}, "rate × %d s × (1 + %g × %g) lines × %d B", secondsOfMonth, l.BankShare, 1+StatusChecks, l.LogBytes)
}

// tidy rounds off the error of binary fractions, so that Ceil does not make 4 of 3.
func tidy(x float64) float64 { return math.Round(x*1e6) / 1e6 }

// units rounds up to the sizes of an instance: hundreds up to 1,000, thousands above.
func units(exact float64) float64 {
	step := 100.0
	if exact > 1000 {
		step = 1000
	}
	return max(100, math.Ceil(tidy(exact/step))*step)
}
