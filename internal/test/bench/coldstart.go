package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/settleonce/settleonce/internal/test/bench/contender"
)

// The rows of the functions.
const (
	functionSettle  = "SettlePayout, first settled event"
	functionClients = "opens the clients, reads one row"
	functionEmpty   = "does nothing"
)

// measureColdStart starts the functions in turn, each in a new process, and measures the
// time to the first answer.
func (r *run) measureColdStart(ctx context.Context) error {
	return r.withPrograms(ctx, func(dir, database string) error { return r.coldStart(ctx, dir, database) })
}

func (r *run) coldStart(ctx context.Context, dir, database string) error {
	settling := r.settlePayout(database)
	functions := []*function{
		{name: functionEmpty, source: "empty", environment: []string{"FUNCTION_TARGET=Nothing"}},
		{name: functionClients, source: "clients", environment: append(settling.environment[2:], "FUNCTION_TARGET=OpenClients")},
		settling,
	}
	table := r.report.Table(titleColdStart)
	for _, f := range functions {
		if err := f.build(ctx, dir); err != nil {
			return err
		}
		info, err := os.Stat(f.path)
		if err != nil {
			return err
		}
		packages, err := goCommand(ctx, "list", "-deps", sources+f.source)
		if err != nil {
			return err
		}
		table.Add("program, MB", float64(info.Size())/1e6, f.name)
		table.Add("packages", float64(len(strings.Fields(packages))), f.name)
	}
	for range r.sizes.starts {
		answered := map[string]float64{}
		for _, f := range functions {
			if err := r.startCold(ctx, f, answered); err != nil {
				return err
			}
		}
		clients := answered[functionClients]
		table.Add(columnPrice, clients-answered[functionEmpty], functionClients)
		table.Add(columnPrice, answered[functionSettle]-answered[functionEmpty], functionSettle)
		table.Add(columnRatio, answered[functionSettle]/clients, functionSettle)
	}
	return nil
}

const (
	columnPrice = "above the empty one, ms"
	columnRatio = "times the one with clients"
)

// startCold starts the function, delivers a payout as soon as it listens, and sets the
// milliseconds from the start to the answer.
func (r *run) startCold(ctx context.Context, f *function, answered map[string]float64) error {
	message := contender.Message(r.number()).Message.Data
	began := time.Now()
	_, err := f.serve(ctx, func(ctx context.Context, url string) error {
		listening := millis(time.Since(began))
		status, answer, err := post(ctx, url, eventarc, envelope(message))
		if err != nil {
			return err
		}
		answered[f.name] = millis(time.Since(began))
		if status != "200 OK" || f.name == functionSettle && !strings.Contains(answer, `"outcome":"applied"`) {
			return fmt.Errorf("answer %s: %s", status, answer)
		}
		r.report.Table(titleColdStart).Add("listening, ms", listening, f.name)
		r.report.Table(titleColdStart).Add("first answer, ms", answered[f.name], f.name)
		return nil
	})
	return err
}
