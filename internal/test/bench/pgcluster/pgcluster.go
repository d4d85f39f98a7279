// Package pgcluster runs a PostgreSQL server of its own in a temporary directory.
//
// It exists so that the comparison with PostgreSQL needs nothing but its programs:
// no running server is touched, and none is left behind.
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
	// Version is what the program says of itself, such as postgres (PostgreSQL) 15.18.
	Version string

	password string
	dir      string
	alive    io.Closer // while it is open the server runs
	done     chan struct{}
	log      bytes.Buffer
	made     atomic.Int64
}

const (
	startLimit = time.Minute
	pollEvery  = 20 * time.Millisecond
	// superuser is the role that initdb makes. The server needs an account that is
	// not root; Debian's package makes one of the same name.
	superuser = "postgres"
	// maxConnections is more than any run opens.
	maxConnections = 200
)

// supervisor runs the server "$@" and lets it shut down when its standard input
// ends, which it does however the parent ends.
const supervisor = `
exec 3<&0 </dev/null
"$@" 3<&- &
server=$!
{ read -r line <&3; kill -INT "$server"; } >/dev/null 2>&1 &
wait "$server"
`

// Start makes a cluster with fsync on, as it is by default, and starts it on a free
// port of 127.0.0.1. It fails with [ErrNotFound] where PostgreSQL is not installed.
func Start(ctx context.Context) (*Cluster, error) {
	programs, err := findPrograms()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	account, err := unprivileged()
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	c := &Cluster{password: rand.Text(), done: make(chan struct{})}
	if c.dir, err = os.MkdirTemp("", "settleonce-postgres-"); err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	err = c.initialise(ctx, programs, account)
	if err == nil {
		err = c.start(ctx, programs, account)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start postgres: %w", err), os.RemoveAll(c.dir))
	}
	if err := c.await(ctx); err != nil {
		closing := c.Close() // then the log is whole
		return nil, errors.Join(fmt.Errorf("start postgres: %w\n%s", err, c.log.String()), closing)
	}
	return c, nil
}

// Close shuts the server down and removes its files.
func (c *Cluster) Close() error {
	_ = c.alive.Close() // an error means that it is closed already
	<-c.done
	return os.RemoveAll(c.dir)
}

// CreateDatabase creates a database with the given statements, and returns its
// connection string.
func (c *Cluster) CreateDatabase(ctx context.Context, statements []string) (string, error) {
	name := fmt.Sprintf("bench_%d", c.made.Add(1))
	if err := execute(ctx, c.connection("postgres"), "CREATE DATABASE "+name); err != nil {
		return "", fmt.Errorf("create database: %w", err)
	}
	if err := execute(ctx, c.connection(name), statements...); err != nil {
		return "", fmt.Errorf("create tables: %w", err)
	}
	return c.connection(name), nil
}

// DropDatabase drops a database that CreateDatabase returned.
func (c *Cluster) DropDatabase(ctx context.Context, connection string) error {
	config, err := pgx.ParseConfig(connection)
	if err != nil {
		return fmt.Errorf("drop database: %w", err)
	}
	drop := "DROP DATABASE " + pgx.Identifier{config.Database}.Sanitize() + " WITH (FORCE)"
	if err := execute(ctx, c.connection("postgres"), drop); err != nil {
		return fmt.Errorf("drop database: %w", err)
	}
	return nil
}

// Through returns the connection string of the same database by way of another
// address.
func Through(connection, addr string) (string, error) {
	u, err := url.Parse(connection)
	if err != nil {
		return "", fmt.Errorf("read connection string: %w", err)
	}
	u.Host = addr
	return u.String(), nil
}

func (c *Cluster) connection(database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(superuser, c.password), Host: c.Addr, Path: "/" + database, RawQuery: "sslmode=disable"}
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

// programs are the paths of initdb and postgres.
type programs struct{ initdb, postgres string }

// findPrograms looks in PATH, then where Debian puts them, the newest first.
func findPrograms() (programs, error) {
	initdb, err := exec.LookPath("initdb")
	postgres, err2 := exec.LookPath("postgres")
	if err == nil && err2 == nil {
		return programs{initdb, postgres}, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is well-formed
	slices.Sort(found)
	for _, initdb := range slices.Backward(found) {
		postgres := filepath.Join(filepath.Dir(initdb), "postgres")
		if _, err := os.Stat(postgres); err == nil {
			return programs{initdb, postgres}, nil
		}
	}
	return programs{}, ErrNotFound
}

// unprivileged returns the account to run the server as; nil for the present one.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // no other account is an answer
	}
	account, err := user.Lookup(superuser)
	if err != nil {
		return nil, fmt.Errorf("postgres does not run as root: %w", err)
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("read the account of %s: %w", superuser, err)
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("read the account of %s: %w", superuser, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

func (c *Cluster) initialise(ctx context.Context, p programs, account *syscall.Credential) error {
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
	cmd := exec.CommandContext(ctx, p.initdb, "--pgdata="+c.data(), "--username="+superuser, "--auth=scram-sha-256", "--pwfile="+passwords,
		"--encoding=UTF8", "--locale=C")
	cmd.Dir, cmd.Env = c.dir, serverEnvironment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: account}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	version, err := exec.CommandContext(ctx, p.postgres, "--version").Output()
	c.Version = strings.TrimSpace(string(version))
	return err
}

// start starts the server under its supervisor. ctx does not bound its life.
func (c *Cluster) start(ctx context.Context, p programs, account *syscall.Credential) error {
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	c.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "/bin/sh", "-c", supervisor, "supervisor", p.postgres,
		"-D", c.data(), "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-k", "", "-c", "max_connections="+strconv.Itoa(maxConnections))
	cmd.Dir, cmd.Env = c.dir, serverEnvironment()
	// A group of its own: Ctrl-C at the terminal is for the run, which then ends the server.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: account, Setpgid: true}
	cmd.Stdout, cmd.Stderr = &c.log, &c.log
	if c.alive, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(c.done)
		_ = cmd.Wait() // the log says why it ended
	}()
	return nil
}

func serverEnvironment() []string { return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"} }

// freePort chooses a port. Another program can take it before the server does; the
// start then fails and says so.
func freePort(ctx context.Context) (int, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(port)
}

// await waits until the server answers.
func (c *Cluster) await(ctx context.Context) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := execute(ctx, c.connection("postgres"), "SELECT 1")
		if err == nil {
			return nil
		}
		select {
		case <-c.done:
			return errors.New("it ended")
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}
