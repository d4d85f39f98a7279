package main

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/capacity"
)

const (
	// maxRate is a rate beyond which nobody needs a figure.
	maxRate = 1e7
	// maxRates bounds the columns of a table.
	maxRates = 8
)

// capacityReport is capacity's answer.
type capacityReport struct {
	Rates   []float64         `json:"rates"`
	Assumed assumptions       `json:"assumed"`
	Figures []capacity.Figure `json:"figures"`
}

// assumptions are a capacity.Load in JSON, times in milliseconds.
type assumptions struct {
	BankShare    float64 `json:"bank_share"`
	RPCMS        float64 `json:"rpc_latency_ms"`
	BankMS       float64 `json:"bank_latency_ms"`
	CPUMS        float64 `json:"cpu_ms"`
	Concurrency  int     `json:"concurrency"`
	MessageBytes int     `json:"message_bytes"`
	LogBytes     int     `json:"log_bytes"`
}

func assumed(load capacity.Load) assumptions {
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return assumptions{
		BankShare: load.BankShare, RPCMS: ms(load.Commit), BankMS: ms(load.Bank), CPUMS: ms(load.CPU),
		Concurrency: load.Concurrency, MessageBytes: load.MessageBytes, LogBytes: load.LogBytes,
	}
}

func newCapacity(s streams) *cobra.Command {
	var (
		load   = capacity.Default()
		rates  []float64
		output outputFlags
	)
	cmd := &cobra.Command{
		Use:   "capacity",
		Short: "Say what a rate of payouts takes",
		Long: `capacity prints what a rate of payouts takes: processing units, instances,
storage, and what else is paid for by its amount. It asks nobody; every figure
has its formula, in which rate is payouts a second.

The figures of Google's services are those of its documentation: a regional
Spanner instance writes about 3,500 single rows of 1 KB a second with 1,000
processing units at 100 % CPU, should not be busier than 65 %, and stores 10 TB
with them; Cloud Run adds instances at 60 % of an instance's CPU or concurrency.
How long an RPC, the bank and a delivery's computing take, and the sizes of
values, are assumptions: measure yours, and say it by the flags.

Exit codes: 0, or 2 wrong usage.`,
		Example: `  settlectl capacity --rate 10000
  settlectl capacity --rate 100 --rate 1000 --rate 10000 --bank-share 0
  settlectl capacity --rate 2000 --bank-latency 1s --output json`,
		Args:    noArguments,
		PreRunE: func(*cobra.Command, []string) error { return errors.Join(checkLoad(load, rates), output.check()) },
		RunE: func(*cobra.Command, []string) error {
			return printCapacity(capacityReport{Rates: rates, Assumed: assumed(load), Figures: capacity.Estimate(load, rates)}, output.form, s)
		},
	}
	f := cmd.Flags()
	f.Float64SliceVar(&rates, "rate", nil, "payouts a second, a `number`; more than one: a column each")
	require(cmd, "rate")
	f.Float64Var(&load.BankShare, "bank-share", load.BankShare, "part of the payouts that have a bank instruction, 0 to 1")
	f.DurationVar(&load.Commit, "rpc-latency", load.Commit, "how long an RPC to Spanner takes")
	f.DurationVar(&load.Bank, "bank-latency", load.Bank, "how long an exchange with the bank takes")
	f.DurationVar(&load.CPU, "cpu", load.CPU, "time of one vCPU that a delivery takes")
	f.IntVar(&load.Concurrency, "concurrency", load.Concurrency, "deliveries that an instance is given at a time")
	f.IntVar(&load.MessageBytes, "message-bytes", load.MessageBytes, "size of a message")
	f.IntVar(&load.LogBytes, "log-bytes", load.LogBytes, "size of a log line")
	output.register(cmd, outputTable, outputJSON)
	return cmd
}

func checkLoad(load capacity.Load, rates []float64) error {
	faults := []error{checkRates(rates)}
	if !(load.BankShare >= 0 && load.BankShare <= 1) {
		faults = append(faults, wrongf("bank-share", "--bank-share is %g; give 0 to 1", load.BankShare))
	}
	for _, size := range []struct {
		flag  string
		value any
		above bool
	}{
		{"rpc-latency", load.Commit, load.Commit > 0},
		{"bank-latency", load.Bank, load.Bank > 0},
		{"cpu", load.CPU, load.CPU > 0},
		{"concurrency", load.Concurrency, load.Concurrency > 0},
		{"message-bytes", load.MessageBytes, load.MessageBytes > 0},
		{"log-bytes", load.LogBytes, load.LogBytes > 0},
	} {
		if !size.above {
			faults = append(faults, wrongf(size.flag, "--%s is %v; it has to be above 0", size.flag, size.value))
		}
	}
	return errors.Join(faults...)
}

func checkRates(rates []float64) error {
	switch wrong := slices.IndexFunc(rates, func(rate float64) bool { return !(rate > 0 && rate <= maxRate) }); { // NaN is neither
	case len(rates) == 0:
		return wrongf("rate", "--rate is empty; give payouts a second, such as --rate 1000")
	case len(rates) > maxRates:
		return wrongf("rate", "--rate is given %d times; give at most %d", len(rates), maxRates)
	case wrong >= 0:
		return wrongf("rate", "--rate is %g; give a number above 0, at most %s", rates[wrong], amount(maxRate))
	}
	return nil
}

// printCapacity prints as many rates beside each other as there is room for.
func printCapacity(report capacityReport, output string, s streams) error {
	if output == outputJSON {
		return printJSON(s.out, report)
	}
	var tables []string
	for from := 0; from < len(report.Rates); {
		to := from + 1
		for to < len(report.Rates) && fitsBox(capacityRows(report, from, to+1)) {
			to++
		}
		rows := capacityRows(report, from, to)
		configs := []table.ColumnConfig{{Number: 1, WidthMax: figureColumns, WidthMaxEnforcer: text.WrapSoft}}
		for i := from; i < to; i++ {
			configs = append(configs, table.ColumnConfig{Number: i - from + 2, Align: text.AlignRight, AlignHeader: text.AlignRight})
		}
		tables = append(tables, boxed(rows[0], rows[1:], configs...))
		from = to
	}
	return write(s.out, strings.Join(tables, "\n"))
}

// figureColumns is where the name of a figure is wrapped.
const figureColumns = 30

// capacityRows are the head and the rows of a table of some of the rates.
func capacityRows(report capacityReport, from, to int) [][]string {
	amounts := func(name string, of []float64, how string) []string {
		row := []string{name}
		for _, x := range of[from:to] {
			row = append(row, amount(x))
		}
		return append(row, how)
	}
	rows := [][]string{amounts("payouts a second", report.Rates, "how")}
	for _, f := range report.Figures {
		rows = append(rows, amounts(f.Name, f.Values, f.Formula))
	}
	return rows
}

// fitsBox reports whether a box leaves room for the last column of rows.
func fitsBox(rows [][]string) bool {
	all := needs(rows)
	width := boxLines(len(all)) + figureColumns + leastWords
	for _, numbers := range all[1 : len(all)-1] {
		width += numbers
	}
	return width <= boxColumns
}

// amount writes a number with two significant decimals where it is small, and
// with commas where it is large.
func amount(x float64) string {
	switch {
	case x != 0 && x < 0.01:
		return strconv.FormatFloat(x, 'g', 2, 64)
	case x < 100 && x != math.Trunc(x):
		return strconv.FormatFloat(math.Round(x*100)/100, 'f', -1, 64)
	}
	digits := strconv.FormatFloat(math.Round(x), 'f', 0, 64)
	var grouped []string
	for len(digits) > 3 {
		grouped = append([]string{digits[len(digits)-3:]}, grouped...)
		digits = digits[:len(digits)-3]
	}
	return strings.Join(append([]string{digits}, grouped...), ",")
}
