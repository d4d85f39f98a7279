package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/settleonce/settleonce/internal/test/bench/contender"
)

// The rows of the functions, in the order of their starts: ratios refer to the first.
const (
	functionEmpty   = "does nothing"
	functionClients = "opens the client, reads one row"
	functionSettle  = "SettlePayout, first settled event"
)

// measureColdStart starts the functions in turn, each in a new process, and measures the
// time to the first answer.
func (r *run) measureColdStart(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "settleonce-coldstart-")
	if err != nil {
		return err
	}
	return errors.Join(r.withDatabase(ctx, r.contenders[0], func(database string) error { return r.coldStart(ctx, dir, database) }), os.RemoveAll(dir))
}

func (r *run) coldStart(ctx context.Context, dir, database string) error {
	spanner := []string{"SPANNER_DATABASE=" + database, "SPANNER_EMULATOR_HOST=" + r.emulator.GRPC}
	functions := []*function{
		{name: functionSettle, environment: append([]string{"FUNCTION_TARGET=SettlePayout", "DEFAULT_CURRENCY=USD"}, spanner...)},
		{name: functionClients, environment: append([]string{"FUNCTION_TARGET=OpenClients"}, spanner...)},
		{name: functionEmpty, environment: []string{"FUNCTION_TARGET=Nothing"}},
	}
	for i, source := range []string{"settle", "clients", "empty"} {
		if err := r.build(ctx, functions[i], filepath.Join(dir, source), module+"/internal/test/bench/coldstart/"+source); err != nil {
			return err
		}
	}
	for range r.sizes.starts {
		var settled float64
		for _, f := range functions {
			answered, err := r.startCold(ctx, f)
			if err != nil {
				return err
			}
			if settled = cmp.Or(settled, answered); f.name != functionSettle {
				r.report.Table(titleColdStart).Add("ratio", settled/answered, f.name)
			}
		}
	}
	trace, err := functions[0].serve(ctx, "inittrace=1", func(context.Context, string) error { return nil })
	for _, one := range readInits(trace) {
		r.report.Table(titleInits).Add("ms", one.millis, one.name)
		r.report.Table(titleInits).Add("allocations", float64(one.allocations), one.name)
	}
	return err
}

// build builds a function, and reports its size and packages.
func (r *run) build(ctx context.Context, f *function, path, source string) error {
	f.path = path
	if _, err := goCommand(ctx, "build", "-o", path, source); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	packages, err := goCommand(ctx, "list", "-deps", source)
	r.report.Table(titleColdStart).Add("program, MB", float64(info.Size())/1e6, f.name)
	r.report.Table(titleColdStart).Add("packages", float64(len(strings.Fields(packages))), f.name)
	return err
}

// startCold starts the function and delivers a payout as soon as it listens. It returns
// the milliseconds from the start to the answer.
func (r *run) startCold(ctx context.Context, f *function) (answered float64, err error) {
	message := contender.Message(r.number()).Message.Data
	began := time.Now()
	_, err = f.serve(ctx, "", func(ctx context.Context, url string) error {
		listening := millis(time.Since(began))
		answer, err := post(ctx, url, eventarc, envelope(message))
		if err != nil {
			return err
		}
		answered = millis(time.Since(began))
		if f.name == functionSettle && !strings.Contains(answer, `"outcome":"applied"`) {
			return fmt.Errorf("answer %s", answer)
		}
		r.report.Table(titleColdStart).Add("listening, ms", listening, f.name)
		r.report.Table(titleColdStart).Add("first answer, ms", answered, f.name)
		return nil
	})
	return answered, err
}

// initialisation is that of a package or of several.
type initialisation struct {
	name        string
	millis      float64
	allocations int
}

func (i *initialisation) add(other initialisation) {
	i.millis += other.millis
	i.allocations += other.allocations
}

// separateInits is the number of packages with their own row.
const separateInits = 8

// readInits reads lines such as "init net/http @19 ms, 0.02 ms clock, 4712 bytes, 49 allocs".
// It returns this module's packages together, then the slowest others, then the rest.
func readInits(trace string) []initialisation {
	own, rest, others := initialisation{name: "this module"}, initialisation{name: "all others"}, []initialisation{}
	for line := range strings.Lines(trace) {
		var (
			one       initialisation
			at, bytes float64
		)
		n, _ := fmt.Sscanf(line, "init %s @%f ms, %f ms clock, %f bytes, %d allocs", &one.name, &at, &one.millis, &bytes, &one.allocations)
		switch {
		case n != 5: // another line
		case strings.HasPrefix(one.name, module):
			own.add(one)
		default:
			others = append(others, one)
		}
	}
	slices.SortFunc(others, func(a, b initialisation) int { return cmp.Compare(b.millis, a.millis) })
	shown := min(separateInits, len(others))
	for _, one := range others[shown:] {
		rest.add(one)
	}
	return slices.Concat([]initialisation{own}, others[:shown], []initialisation{rest})
}
