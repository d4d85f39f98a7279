// Command mutants shows that the tests notice when a promise is broken. It makes
// one deliberate fault after another in a copy of the module, each a small patch
// in testdata, and runs the tests that have to fail then. `make mutants` runs it.
//
// A fault counts as caught only where the copy still builds and every test that
// the table names fails. The same tests pass first in the copy without a fault:
// a suite that fails anyway catches nothing.
//
// The working tree is not touched: the copy is in a temporary directory and holds
// the files that git tracks, as they are in the working tree.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := program(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func program(ctx context.Context) error {
	all := flag.Bool("all", false, "run all tests of the module against each mutant, to learn which ones catch it; takes minutes for each")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: mutants [-all] [name...]\n\nWithout names, all mutants. A name is that of a file in testdata.")
		flag.PrintDefaults()
	}
	flag.Parse()
	mutants, err := load(patches, caughtBy)
	if err != nil {
		return err
	}
	if mutants, err = chosen(mutants, flag.Args()); err != nil {
		return err
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	r := runner{root: root, all: *all, out: os.Stdout, progress: os.Stderr}
	err = r.run(ctx, mutants)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// chosen returns the named mutants in the table's order; all without names.
func chosen(mutants []mutant, names []string) ([]mutant, error) {
	if len(names) == 0 {
		return mutants, nil
	}
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	var found []mutant
	for _, m := range mutants {
		if wanted[m.name] {
			found = append(found, m)
			delete(wanted, m.name)
		}
	}
	var errs []error
	for name := range wanted {
		errs = append(errs, fmt.Errorf("no mutant has the name %q", name))
	}
	return found, errors.Join(errs...)
}
