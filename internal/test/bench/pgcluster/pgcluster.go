// Package pgcluster runs a private PostgreSQL server in a temporary directory. The
// comparison with PostgreSQL needs the installed programs only, and no running server.
package pgcluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrNotFound reports that PostgreSQL is not installed.
var ErrNotFound = errors.New("PostgreSQL is not installed: apt-get install postgresql-15, or put initdb and postgres into PATH")

// Cluster is a running server.
type Cluster struct {
	// Addr is its host:port.
	Addr string
	// Version is the program's version, such as postgres (PostgreSQL) 15.18.
	Version string

	password string
	dir      string
	stdin    io.Closer // of the supervisor; closing it stops the server
	done     chan struct{}
	log      bytes.Buffer
	created  atomic.Int64
}

const (
	startLimit = time.Minute
	pollEvery  = 20 * time.Millisecond
	// superuser is the role that initdb creates. PostgreSQL refuses to run as root;
	// Debian's package creates an account of the same name.
	superuser      = "postgres"
	maxConnections = 200
)

// supervisor runs the server "$@" and stops it when standard input ends. The kernel
// closes that input with the parent process, even after SIGKILL.
const supervisor = `
exec 3<&0 </dev/null
"$@" 3<&- &
server=$!
{ read -r line <&3; kill -INT "$server"; } >/dev/null 2>&1 &
wait "$server"
`

// Start creates a cluster with the default settings, fsync included, and starts it on a
// free port of 127.0.0.1. It fails with [ErrNotFound] if PostgreSQL is not installed.
func Start(ctx context.Context) (*Cluster, error) {
	bin, err := findPrograms()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	c := &Cluster{password: rand.Text(), done: make(chan struct{})}
	if c.dir, err = os.MkdirTemp("", "settleonce-postgres-"); err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	account, err := unprivileged()
	if err == nil {
		err = c.initialise(ctx, bin, account)
	}
	if err == nil {
		err = c.start(ctx, bin, account)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start postgres: %w", err), os.RemoveAll(c.dir))
	}
	if err := c.await(ctx); err != nil {
		closeErr := c.Close() // completes the log
		return nil, errors.Join(fmt.Errorf("start postgres: %w\n%s", err, c.log.String()), closeErr)
	}
	return c, nil
}

// Close shuts the server down and removes its files.
func (c *Cluster) Close() error {
	_ = c.stdin.Close() // an error means that it is closed already
	<-c.done
	return os.RemoveAll(c.dir)
}

// CreateDatabase creates a database with the given statements and returns its name.
func (c *Cluster) CreateDatabase(ctx context.Context, statements []string) (string, error) {
	name := fmt.Sprintf("bench_%d", c.created.Add(1))
	if err := execute(ctx, c.Connection("postgres", c.Addr), "CREATE DATABASE "+name); err != nil {
		return "", fmt.Errorf("create database: %w", err)
	}
	if err := execute(ctx, c.Connection(name, c.Addr), statements...); err != nil {
		return "", fmt.Errorf("create tables: %w", err)
	}
	return name, nil
}

// DropDatabase drops a database and closes its connections.
func (c *Cluster) DropDatabase(ctx context.Context, name string) error {
	if err := execute(ctx, c.Connection("postgres", c.Addr), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
		return fmt.Errorf("drop database: %w", err)
	}
	return nil
}

// Connection returns the connection string of a database. addr is the host:port of the
// server or of a proxy in front of it.
func (c *Cluster) Connection(database, addr string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(superuser, c.password), Host: addr, Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

func execute(ctx context.Context, connection string, statements ...string) error {
	conn, err := pgx.Connect(ctx, connection)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// findPrograms returns the directory of initdb and postgres: in PATH, else Debian's,
// preferring the newest version.
func findPrograms() (bin string, err error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is well-formed
	slices.Sort(found)
	if inPath, err := exec.LookPath("initdb"); err == nil {
		found = append(found, inPath)
	}
	for _, initdb := range slices.Backward(found) {
		bin := filepath.Dir(initdb)
		if _, err := os.Stat(filepath.Join(bin, "postgres")); err == nil {
			return bin, nil
		}
	}
	return "", ErrNotFound
}

// unprivileged returns the server's account if this process runs as root; else nil.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nil keeps the current account
	}
	account, err := user.Lookup(superuser)
	if err != nil {
		return nil, fmt.Errorf("postgres does not run as root: %w", err)
	}
	uid, uidErr := strconv.ParseUint(account.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(account.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(uidErr, gidErr)
}

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

func (c *Cluster) initialise(ctx context.Context, bin string, account *syscall.Credential) error {
	passwords := filepath.Join(c.dir, "password")
	if err := os.WriteFile(passwords, []byte(c.password), 0o600); err != nil {
		return err
	}
	if account != nil {
		for _, path := range []string{c.dir, passwords} {
			if err := os.Chown(path, int(account.Uid), int(account.Gid)); err != nil {
				return err
			}
		}
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "--pgdata="+c.data(), "--username="+superuser, "--auth=scram-sha-256", "--pwfile="+passwords,
		"--encoding=UTF8", "--locale=C")
	cmd.Dir, cmd.Env = c.dir, serverEnvironment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: account}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	version, err := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "--version").Output()
	c.Version = strings.TrimSpace(string(version))
	return err
}

// start starts the server under its supervisor. It outlives ctx.
func (c *Cluster) start(ctx context.Context, bin string, account *syscall.Credential) error {
	host, port, err := FreePort(ctx)
	if err != nil {
		return err
	}
	c.Addr = net.JoinHostPort(host, port)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "/bin/sh", "-c", supervisor, "supervisor", filepath.Join(bin, "postgres"),
		"-D", c.data(), "-h", host, "-p", port, "-k", "", "-c", fmt.Sprintf("max_connections=%d", maxConnections))
	cmd.Dir, cmd.Env = c.dir, serverEnvironment()
	// A separate group: Ctrl-C at the terminal interrupts the run only, which then stops the server.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: account, Setpgid: true}
	cmd.Stdout, cmd.Stderr = &c.log, &c.log
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(c.done)
		_ = cmd.Wait() // the log has the reason
	}()
	return nil
}

func serverEnvironment() []string { return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"} }

// FreePort returns a free port of 127.0.0.1. Another program can take it at any time.
func FreePort(ctx context.Context) (host, port string, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer listener.Close()
	return net.SplitHostPort(listener.Addr().String())
}

// await waits until the server accepts queries.
func (c *Cluster) await(ctx context.Context) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := execute(ctx, c.Connection("postgres", c.Addr), "SELECT 1")
		if err == nil {
			return nil
		}
		select {
		case <-c.done:
			return errors.New("the server ended")
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}
