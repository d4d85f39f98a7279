package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/capacity"
)

const (
	// maxRate is beyond the quotas of the services.
	maxRate = 1e7
	// maxRates bounds the columns of a table.
	maxRates = 8
)

// capacityReport is the answer of capacity.
type capacityReport struct {
	Rates   []float64         `json:"rates"`
	Assumed assumptions       `json:"assumed"`
	Figures []capacity.Figure `json:"figures"`
}

// assumptions is a [capacity.Load] in JSON, with times in milliseconds.
type assumptions struct {
	MultiRegion  bool    `json:"multi_region"`
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
		MultiRegion: load.Instance == capacity.MultiRegion,
		BankShare:   load.BankShare, RPCMS: ms(load.Commit), BankMS: ms(load.Bank), CPUMS: ms(load.CPU),
		Concurrency: load.Concurrency, MessageBytes: load.MessageBytes, LogBytes: load.LogBytes,
	}
}

func newCapacity(s streams) *cobra.Command {
	var (
		load        = capacity.Default()
		multiRegion bool
		rates       []float64
		output      outputFlags
	)
	cmd := &cobra.Command{
		Use:   "capacity",
		Short: "Estimate the resources for a payout rate",
		Long: `capacity estimates processing units, instances, storage and messages for a rate
of payouts, each with its formula. Processing units are estimated without a
commit delay and with one of 100 ms. It reads no deployment. The defaults of the
flags are assumptions: give your own measurements.

Exit codes: 0, 2 usage error.`,
		Example: `  settlectl capacity --rate 1000 --rate 10000 --bank-latency 1s`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := errors.Join(checkLoad(load, rates), output.check()); err != nil {
				return err
			}
			if multiRegion {
				load.Instance = capacity.MultiRegion
			}
			return printCapacity(capacityReport{Rates: rates, Assumed: assumed(load), Figures: capacity.Estimate(load, rates)}, output.form, s)
		},
	}
	f := cmd.Flags()
	f.Float64SliceVar(&rates, "rate", nil, "payouts per second, a `number`; repeat it for more columns (required)")
	require(cmd, "rate")
	f.BoolVar(&multiRegion, "multi-region", false, "estimate a dual-region or multi-region Spanner instance")
	f.Float64Var(&load.BankShare, "bank-share", load.BankShare, "share of payouts with a bank instruction, 0 to 1")
	f.DurationVar(&load.Commit, "rpc-latency", load.Commit, "latency of an RPC to Spanner")
	f.DurationVar(&load.Bank, "bank-latency", load.Bank, "latency of a request to the bank")
	f.DurationVar(&load.CPU, "cpu", load.CPU, "vCPU time of a delivery")
	f.IntVar(&load.Concurrency, "concurrency", load.Concurrency, "concurrent deliveries of an instance")
	f.IntVar(&load.MessageBytes, "message-bytes", load.MessageBytes, "bytes of a message")
	f.IntVar(&load.LogBytes, "log-bytes", load.LogBytes, "bytes of a log line")
	output.register(cmd, outputTable, outputJSON)
	return cmd
}

func checkLoad(load capacity.Load, rates []float64) error {
	faults := []error{checkRates(rates)}
	if !(load.BankShare >= 0 && load.BankShare <= 1) {
		faults = append(faults, fmt.Errorf("--bank-share is %g; give 0 to 1", load.BankShare))
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
			faults = append(faults, fmt.Errorf("--%s is %v; give a value above 0", size.flag, size.value))
		}
	}
	return errors.Join(faults...)
}

func checkRates(rates []float64) error {
	switch wrong := slices.IndexFunc(rates, func(rate float64) bool { return !(rate > 0 && rate <= maxRate) }); { // NaN is neither
	case len(rates) == 0:
		return errors.New("--rate is empty; give payouts per second, such as --rate 1000")
	case len(rates) > maxRates:
		return fmt.Errorf("--rate is given %d times; give at most %d", len(rates), maxRates)
	case wrong >= 0:
		return fmt.Errorf("--rate is %g; give a number above 0, at most %s", rates[wrong], amount(maxRate))
	}
	return nil
}

func printCapacity(report capacityReport, output string, s streams) error {
	if output == outputJSON {
		return printJSON(s.Out, report)
	}
	columns := []column{{name: "payouts per second", text: true}}
	for _, rate := range report.Rates {
		columns = append(columns, column{name: amount(rate), right: true})
	}
	columns = append(columns, column{name: "formula", text: true})
	var rows [][]string
	for _, f := range report.Figures {
		row := []string{f.Name}
		for _, value := range f.Values {
			row = append(row, amount(value))
		}
		rows = append(rows, append(row, f.Formula))
	}
	return write(s.Out, layOut(s, columns, rows, true)+"\n")
}

func grouped(n int64) string { return amount(float64(n)) }

// amount formats a small number with two significant decimals, and a large one with commas.
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
