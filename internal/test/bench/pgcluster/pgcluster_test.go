package pgcluster

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"testing"
)

func TestCloseLeavesNothing(t *testing.T) {
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
	connection := c.Connection(database, c.Addr)
	if err := execute(t.Context(), connection, `INSERT INTO t VALUES (1)`); err != nil {
		t.Error(err)
	}
	if err := c.DropDatabase(t.Context(), database); err != nil {
		t.Error(err)
	}
	if err := execute(t.Context(), connection, `SELECT 1`); err == nil {
		t.Error("a dropped database accepts queries")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", c.Addr); err == nil {
		conn.Close()
		t.Error("the server still listens")
	}
	if _, err := os.Stat(c.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the files: %v", err)
	}
}
