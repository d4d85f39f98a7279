package contender

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// asParent makes the test binary the parent process of a server, to be killed.
const asParent = "SETTLEONCE_TEST_AS_PARENT"

// The server is a process of its own: it stops and removes its files when its parent ends
// in any way.
func TestServerEndsWithItsParent(t *testing.T) {
	t.Parallel()
	if os.Getenv(asParent) != "" {
		c, err := StartPostgres(t.Context())
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(c.connection)
		select {} // until it is killed
	}
	for name, end := range map[string]func(*os.Process) error{"interrupted": func(p *os.Process) error { return p.Signal(os.Interrupt) }, "killed": (*os.Process).Kill} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServerEndsWithItsParent$")
			parent.Env = append(os.Environ(), asParent+"=1")
			out, err := parent.StdoutPipe()
			if err == nil {
				err = parent.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if line = strings.TrimSpace(line); line == ErrNoPostgres.Error() {
				t.Logf("left out: %s", line)
				return
			}
			if _, err := query(t.Context(), line, "SELECT 1"); err != nil {
				t.Fatal(err)
			}
			if err := end(parent.Process); err != nil {
				t.Fatal(err)
			}
			_ = parent.Wait() // ended by the signal
			waitUntilClosed(t, line)
		})
	}
}

func waitUntilClosed(t *testing.T, connection string) {
	t.Helper()
	server, err := url.Parse(connection)
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(30 * time.Second)
	for {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Host)
		if err != nil {
			return
		}
		conn.Close()
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatal("the server still listens")
		}
	}
}

func TestCloseStopsTheServer(t *testing.T) {
	t.Parallel()
	c, err := StartPostgres(t.Context())
	if errors.Is(err, ErrNoPostgres) {
		t.Logf("left out: %v", err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	database, err := c.CreateDatabase(t.Context(), []string{"CREATE TABLE t (k int)"})
	if err == nil {
		_, err = query(t.Context(), database, "INSERT INTO t VALUES (1)")
	}
	if err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := query(t.Context(), c.connection, "SELECT 1"); err == nil {
		t.Error("the server accepts queries after its end")
	}
}
