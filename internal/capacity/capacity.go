// Package capacity says what a rate of payouts takes: processing units, function
// instances, storage and what else is paid for.
//
// It is arithmetic and nothing else, so that the figures can be checked by hand:
// every [Figure] carries its formula with the numbers in it and says where they
// are from. What is assumed of a deployment stands in [Load], and is to be
// replaced by what was measured there.
package capacity

import (
	"fmt"
	"math"
	"time"

	"github.com/settleonce/settleonce/internal/config"
)

// Figures of Google's services.
const (
	// WritesPerNode is what 1,000 processing units of a regional instance write in
	// a second at 100 % CPU, in single rows of 1 KB.
	WritesPerNode = 3500
	// SpannerCPU is how busy a regional instance should be at the most.
	SpannerCPU = 0.65
	// BytesPerNode is what 1,000 processing units may store.
	BytesPerNode = 10e12
	// RunCPU is how busy Cloud Run keeps an instance before it adds another one.
	RunCPU = 0.6
	// PubSubLeastBytes is what a message that is smaller counts as.
	PubSubLeastBytes = 1000
)

// Figures of Settle Once.
const (
	// BankCommits are the commits that a payout with a bank instruction adds to its
	// one: the answer to the send, and two for each question.
	BankCommits = 1 + 2*Questions
	// Questions are those at the bank's status API: one that confirms, and one a
	// day for 10 days.
	Questions = 1 + 10
	// PayoutRows are the rows of a payout's commit: movement and receipt.
	PayoutRows = 2
	// BankRows are the rows and index entries that a bank instruction adds: 4 to
	// the payout's commit (instruction, event, two index entries), 5 to record the
	// answer to the send (instruction, event, three changes of index entries), for
	// each question 1 to claim the instruction and 4 to record (instruction, event,
	// two changes of an index entry), and 1 change of the receipt.
	BankRows = 4 + 5 + Questions*5 + 1
	// EventRows are the rows of an instruction's history: created, sent, and one
	// for each question.
	EventRows = 2 + Questions
	// ReconcileRuns is how many runs of ReconcileBank there are at a time: one is
	// started a minute, and takes 2 minutes at the most.
	ReconcileRuns = 2
	// ReceiptDays is how long a receipt is stored: the row deletion policy's 100
	// days and the 3 by which it may be late.
	ReceiptDays = 103
)

const (
	secondsOfDay   = 24 * 60 * 60
	secondsOfMonth = 30 * secondsOfDay
	terabyte       = 1e12
)

// Load is what is asked for, and what is assumed of the deployment. Its zero value
// is of no use; [Default] has the figures of deploy/.
type Load struct {
	// BankShare is the part of the payouts that have a bank instruction, 0 to 1.
	BankShare float64
	// Commit is how long an RPC to Spanner takes, Bank an exchange with the bank.
	Commit time.Duration
	Bank   time.Duration
	// CPU is the time of one vCPU that a delivery takes.
	CPU time.Duration
	// Concurrency is how many deliveries an instance of one vCPU is given at a time.
	Concurrency int
	// MessageBytes is the size of a message, LogBytes that of a log line.
	MessageBytes int
	LogBytes     int
}

// Default is what is assumed where nothing was measured.
func Default() Load {
	return Load{
		BankShare: 0.2, Commit: 15 * time.Millisecond, Bank: 300 * time.Millisecond, CPU: 2 * time.Millisecond,
		Concurrency: 32, MessageBytes: 400, LogBytes: 700,
	}
}

// Figure is one line of an estimate.
type Figure struct {
	// Name says what it is, with its unit.
	Name string `json:"name"`
	// Values are the figure at each rate.
	Values []float64 `json:"values"`
	// Formula is how it comes about: "rate" is payouts a second, the rest is numbers.
	Formula string `json:"formula"`
}

// Estimate returns the figures at each rate, in payouts a second.
func Estimate(load Load, rates []float64) []Figure {
	e := estimate{load: load, rates: rates}
	e.spanner()
	e.storage()
	e.pubsub()
	e.functions()
	return e.figures
}

// estimate gathers figures.
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
	share := e.load.BankShare
	commits := func(rate float64) float64 { return rate * (1 + share*BankCommits) }
	rows := func(rate float64) float64 { return rate * (PayoutRows + share*BankRows) }
	const perUnit = WritesPerNode * SpannerCPU / 1000
	e.add("Spanner: commits a second", commits, "rate × (1 + %g × %d)", share, BankCommits)
	e.add("Spanner: rows written a second", rows, "rate × (%d + %g × %d)", PayoutRows, share, BankRows)
	e.add("Spanner: processing units, at least", func(rate float64) float64 { return Units(commits(rate) / perUnit) },
		"commits ÷ (%d × %g) × 1000: a commit counts as a write", WritesPerNode, SpannerCPU)
	e.add("Spanner: processing units, at most", func(rate float64) float64 { return Units(rows(rate) / perUnit) },
		"rows ÷ (%d × %g) × 1000: every row counts as a write", WritesPerNode, SpannerCPU)
}

func (e *estimate) storage() {
	share := e.load.BankShare
	payout, receipt, instruction := float64(rowBytes("ledger_movements")), float64(rowBytes("settlement_receipts")), float64(instructionBytes())
	kept := func(rate float64) float64 { return rate * secondsOfMonth * (payout + share*instruction) / terabyte }
	receipts := func(rate float64) float64 { return rate * secondsOfDay * ReceiptDays * receipt / terabyte }
	e.add("Spanner: TB a month, for ever", kept,
		"rate × %d s × (%g B + %g × %g B)", secondsOfMonth, payout, share, instruction)
	e.add("Spanner: TB of receipts, once full", receipts, "rate × %d s × %d days × %g B", secondsOfDay, ReceiptDays, receipt)
	e.add("Spanner: processing units for a year's storage", func(rate float64) float64 {
		return Units((12*kept(rate) + receipts(rate)) * terabyte / BytesPerNode * 1000)
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
	questions := func(rate float64) float64 { return rate * l.BankShare * Questions }
	e.add("ReconcileBank: questions a second", questions, "rate × %g × %d: one that confirms, one a day for 10 days", l.BankShare, Questions)
	e.add("ReconcileBank: BANK_CONCURRENCY", func(rate float64) float64 {
		return math.Ceil(tidy(questions(rate) * (l.Bank.Seconds() + 4*l.Commit.Seconds()) / ReconcileRuns))
	}, "questions × (%v + 4 × %v) ÷ %d runs at a time; it can be %d at the most", l.Bank, l.Commit, ReconcileRuns, config.MaxBankConcurrency)
	lines := 1 + l.BankShare*(1+Questions)
	e.add("Logging: TB a month", func(rate float64) float64 {
		return rate * secondsOfMonth * lines * float64(l.LogBytes) / terabyte
	}, "rate × %d s × (1 + %g × %d) lines × %d B", secondsOfMonth, l.BankShare, 1+Questions, l.LogBytes)
}

// tidy takes away what binary fractions add, so that 3 does not become 4.
func tidy(x float64) float64 { return math.Round(x*1e6) / 1e6 }

// Units rounds up to processing units that an instance can have: hundreds up to
// 1,000, thousands above.
func Units(exact float64) float64 {
	step := 100.0
	if exact > 1000 {
		step = 1000
	}
	return max(100, math.Ceil(tidy(exact/step))*step)
}
