package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// workdir is a copy of a module in which faults are made.
type workdir struct {
	dir    string
	module string // its path
	env    []string
}

// copyModule copies the files that git tracks into a temporary directory, as
// they are in the working tree.
func copyModule(ctx context.Context, root string) (workdir, error) {
	if _, err := exec.LookPath("git"); err != nil {
		return workdir{}, errors.New("git is not installed: it lists the files to copy and applies the patches")
	}
	tracked, err := command(ctx, root, os.Environ(), "git", "ls-files", "-z").output()
	if err != nil {
		return workdir{}, fmt.Errorf("list the files that git tracks; a clone is needed, with its .git: %w", err)
	}
	dir, err := os.MkdirTemp("", "settleonce-mutants-")
	if err != nil {
		return workdir{}, err
	}
	w := workdir{dir: dir, env: environment(dir)}
	if err := w.fill(ctx, root, strings.Split(strings.TrimSuffix(tracked, "\x00"), "\x00")); err != nil {
		w.remove()
		return workdir{}, fmt.Errorf("copy the module: %w", err)
	}
	return w, nil
}

// fill copies the named files below root, and reads the module's path.
func (w *workdir) fill(ctx context.Context, root string, names []string) error {
	from, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer from.Close() //nolint:errcheck // it was only read from
	to, err := os.OpenRoot(w.dir)
	if err != nil {
		return err
	}
	defer to.Close() //nolint:errcheck // the files in it are closed already
	for _, name := range names {
		if err := copyFile(from, to, filepath.FromSlash(name)); err != nil {
			return err
		}
	}
	path, err := command(ctx, w.dir, w.env, "go", "list", "-m").output()
	w.module = strings.TrimSpace(path)
	return err
}

// copyFile copies a file, with the directories above it. One that was deleted in
// the working tree is left out.
func copyFile(from, to *os.Root, name string) error {
	content, err := from.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := from.Stat(name)
	if err != nil {
		return err
	}
	if err := to.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	return to.WriteFile(name, content, info.Mode().Perm())
}

// environment is what the commands in dir run in: none of git's variables, which
// a hook sets and which would lead to the real repository, nor a repository or a
// Go workspace above the copy.
func environment(dir string) []string {
	var env []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "GIT_") {
			env = append(env, variable)
		}
	}
	return append(env, "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "GOWORK=off")
}

// remove removes the copy.
func (w workdir) remove() {
	if err := os.RemoveAll(w.dir); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
	}
}

// check makes sure that every patch applies, before the first minute is spent.
func (w workdir) check(ctx context.Context, mutants []mutant) error {
	var errs []error
	for _, m := range mutants {
		if err := w.git(ctx, m, "apply", "--check"); err != nil {
			errs = append(errs, stale(m, err))
		}
	}
	return errors.Join(errs...)
}

// stale says what to do about a patch that no longer applies.
func stale(m mutant, cause error) error {
	return fmt.Errorf(`internal/test/mutants/%[1]s no longer applies: update it. With nothing uncommitted, from the module's root:
    p=internal/test/mutants/%[1]s
    git apply --3way $p       # mend what conflicts, or make the fault by hand: %[2]s
    git add -u && { sed '/^diff /,$d' $p; git diff --cached; } >/tmp/mutant && git reset -q --hard && cp /tmp/mutant $p
%[3]w`, file(m.name), m.fault, cause)
}

// apply makes the fault.
func (w workdir) apply(ctx context.Context, m mutant) error { return w.git(ctx, m, "apply") }

// takeBack takes the fault back.
func (w workdir) takeBack(ctx context.Context, m mutant) error {
	return w.git(ctx, m, "apply", "--reverse")
}

// git runs a command of git on the patch.
func (w workdir) git(ctx context.Context, m mutant, args ...string) error {
	c := command(ctx, w.dir, w.env, "git", append(args, "-")...)
	c.Stdin = bytes.NewReader(m.patch)
	if _, err := c.output(); err != nil {
		return fmt.Errorf("mutant %s: %w", m.name, err)
	}
	return nil
}

// build compiles packages in the copy, with all that they import. The error says what
// does not compile. go list -export does that without linking programs, as go build
// would.
func (w workdir) build(ctx context.Context, packages []string) error {
	_, err := command(ctx, w.dir, w.env, "go", append([]string{"list", "-export"}, packages...)...).output()
	return err
}

// test runs the tests of the packages that the pattern run matches, with the given
// flags of go test. What only debuggers read is not linked, which is quicker.
func (w workdir) test(ctx context.Context, packages, run string, flags ...string) (results, error) {
	args := append([]string{"test", "-json", "-vet=off", "-ldflags=-w", "-count=1", "-run=" + run}, flags...)
	output, err := command(ctx, w.dir, w.env, "go", append(args, packages)...).output()
	found, readErr := readResults(strings.NewReader(output), w.module)
	if readErr != nil {
		return results{}, errors.Join(readErr, err)
	}
	if err != nil && len(found.failed())+len(found.failedOutside())+len(found.broken) == 0 {
		return results{}, fmt.Errorf("run the tests of %s: %w", packages, err)
	}
	return found, nil
}

// cmd is a command whose standard output is wanted whole.
type cmd struct{ *exec.Cmd }

// command prepares a command in dir. When ctx ends it is interrupted and not
// killed, so that it ends what it has started.
func command(ctx context.Context, dir string, env []string, name string, args ...string) cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Env = dir, env
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 10 * time.Second
	return cmd{c}
}

// output runs the command. The error holds what it said on standard error.
func (c cmd) output() (string, error) {
	var said bytes.Buffer
	c.Stderr = &said
	output, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(c.Args[:2], " "), err, bytes.TrimSpace(said.Bytes()))
	}
	return string(output), err
}
