package contender

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// ErrNoPostgres reports that PostgreSQL is not installed.
var ErrNoPostgres = errors.New("PostgreSQL is not installed with Debian's pg_virtualenv: apt-get install postgresql-15")

// Cluster is a private PostgreSQL server in a temporary directory.
type Cluster struct {
	// Version is the server's version, such as 15.18 (Debian 15.18-0+deb12u1).
	Version string

	connection string // of the database postgres
	stdin      io.Closer
	command    *exec.Cmd
	created    atomic.Int64
}

// serve prints the connection string to descriptor 3 and waits for the end of standard
// input, which the kernel closes with this process, even after SIGKILL. Then
// pg_virtualenv stops the server and removes its files.
const serve = `echo "postgres://$PGUSER:$PGPASSWORD@127.0.0.1:$PGPORT/postgres?sslmode=disable" >&3; exec 3>&-; exec cat`

// StartPostgres starts a server with fsync on a free port of 127.0.0.1. It fails with
// [ErrNoPostgres] if PostgreSQL is not installed.
func StartPostgres(ctx context.Context) (*Cluster, error) {
	program, err := exec.LookPath("pg_virtualenv")
	if err != nil {
		return nil, ErrNoPostgres
	}
	c := &Cluster{}
	if err = c.start(ctx, program); err == nil {
		c.Version, err = query(ctx, c.connection, "SHOW server_version")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start postgres: %w", err), c.Close())
	}
	return c, nil
}

// start starts the server. It outlives ctx. The script has files as its outputs, because
// it does not clean up after it has written to a closed pipe.
func (c *Cluster) start(ctx context.Context, program string) error {
	port, err := FreePort(ctx)
	if err != nil {
		return err
	}
	answer, descriptor3, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }() // it has been read
	c.command = exec.CommandContext(context.WithoutCancel(ctx), program, "-t", "-o", "fsync=on", "-o", "max_connections=200", "sh", "-c", serve)
	c.command.Env = append(os.Environ(), "PGPORT="+port)
	c.command.Stderr, c.command.ExtraFiles = os.Stderr, []*os.File{descriptor3}
	// A separate group: Ctrl-C at the terminal interrupts the run only, which then stops the server.
	c.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.stdin, err = c.command.StdinPipe(); err == nil {
		err = c.command.Start()
	}
	if err := errors.Join(err, descriptor3.Close()); err != nil {
		return err
	}
	c.connection, err = bufio.NewReader(answer).ReadString('\n')
	c.connection = strings.TrimSpace(c.connection)
	return err
}

// Close stops the server and removes its files.
func (c *Cluster) Close() error {
	if c.command == nil || c.command.Process == nil {
		return nil // not started
	}
	_ = c.stdin.Close() // an error means that it is closed already
	return c.command.Wait()
}

// CreateDatabase creates a database with the given statements and returns its connection
// string.
func (c *Cluster) CreateDatabase(ctx context.Context, statements []string) (string, error) {
	u, err := url.Parse(c.connection)
	if err != nil {
		return "", fmt.Errorf("create database: %w", err)
	}
	u.Path = fmt.Sprintf("/bench_%d", c.created.Add(1))
	_, err = query(ctx, c.connection, "CREATE DATABASE "+u.Path[1:])
	if err == nil {
		_, err = query(ctx, u.String(), strings.Join(statements, ";"))
	}
	if err != nil {
		return "", fmt.Errorf("create database: %w", err)
	}
	return u.String(), nil
}

// query runs a statement and returns the first value of its first row; empty without one.
func query(ctx context.Context, connection, statement string) (value string, err error) {
	conn, err := pgx.Connect(ctx, connection)
	if err != nil {
		return "", err
	}
	err = conn.QueryRow(ctx, statement, pgx.QueryExecModeSimpleProtocol).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return value, errors.Join(err, conn.Close(ctx))
}

// FreePort returns a free port of 127.0.0.1. Another program can take it at any time.
func FreePort(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, errors.Join(err, listener.Close())
}
