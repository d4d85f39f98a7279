package pgcluster

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"testing"
)

func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	c, err := Start(t.Context())
	if errors.Is(err, ErrNotFound) {
		t.Logf("left out: %v", err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	database, err := c.CreateDatabase(t.Context(), []string{`CREATE TABLE t (k int)`})
	if err != nil {
		t.Error(err)
	}
	if err := execute(t.Context(), database, `INSERT INTO t VALUES (1)`); err != nil {
		t.Error(err)
	}
	if err := c.DropDatabase(t.Context(), database); err != nil {
		t.Error(err)
	}
	if err := execute(t.Context(), database, `SELECT 1`); err == nil {
		t.Error("a database that was dropped answers")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", c.Addr); err == nil {
		conn.Close()
		t.Error("somebody still listens")
	}
	if _, err := os.Stat(c.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the files: %v", err)
	}
}

func TestThrough(t *testing.T) {
	t.Parallel()
	got, err := Through("postgres://u@127.0.0.1:1/db?sslmode=disable", "127.0.0.1:2")
	if want := "postgres://u@127.0.0.1:2/db?sslmode=disable"; err != nil || got != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}
