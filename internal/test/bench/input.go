package main

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
	"github.com/settleonce/settleonce/internal/test/hostile"
)

// measureInput measures the CPU and the memory of the costliest requests of the largest
// size, each in a new process of the real function.
func (r *run) measureInput(ctx context.Context) error {
	return r.withPrograms(ctx, func(dir, database string) error { return r.input(ctx, dir, database) })
}

func (r *run) input(ctx context.Context, dir, database string) error {
	f := r.settlePayout(database)
	if err := f.build(ctx, dir); err != nil {
		return err
	}
	message := contender.Message(r.number()).Message.Data
	_, ordinary, err := f.cost(ctx, eventarc, envelope(message))
	if err != nil {
		return err
	}
	var all []inputCost
	for q := range hostile.WorstRequests(event.MaxBodyBytes) {
		if len(all) == r.sizes.requests {
			break
		}
		answer, used, err := f.cost(ctx, q.Header, q.Body)
		if err != nil {
			return err
		}
		all = append(all, inputCost{q.Name, answer, (used.cpu - ordinary.cpu).Seconds(), (used.peak - ordinary.peak) / 1e6})
	}
	const shown = 5 // of each cost
	table := r.report.Table(titleInput)
	for _, by := range []func(a, b inputCost) int{
		func(a, b inputCost) int { return cmp.Compare(b.cpu, a.cpu) },
		func(a, b inputCost) int { return cmp.Compare(b.memory, a.memory) },
	} {
		slices.SortFunc(all, by)
		for _, c := range all[:min(shown, len(all))] {
			if table.Find(columnCPU, c.name) == nil {
				table.Add(columnCPU, c.cpu, c.name)
				table.Add(columnMemory, c.memory, c.name)
				table.Text("answer", c.answer, c.name)
			}
		}
	}
	return nil
}

// inputCost is the cost of a request in seconds and megabytes.
type inputCost struct {
	name, answer string
	cpu, memory  float64
}

// cost returns the status of the answer to a request, and the use of a process for it.
func (f *function) cost(ctx context.Context, header http.Header, body []byte) (answer string, used served, err error) {
	used, err = f.serve(ctx, func(ctx context.Context, url string) (err error) {
		answer, _, err = post(ctx, url, header, body)
		return err
	})
	return answer, used, err
}

const (
	columnCPU    = "CPU, s"
	columnMemory = "memory, MB"
)
