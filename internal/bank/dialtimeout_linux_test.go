package bank

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// TestDialTimeout needs Linux, where a test can fill a listener's queue.
func TestDialTimeout(t *testing.T) {
	t.Parallel()
	config := testConfig("http://" + fullListener(t))
	config.SendTimeout = hangTimeout
	got := newClient(t, config).Send(t.Context(), sendRequest())
	if got.Class != transfer.SendNotSent || got.Answer.Detail != detailNoConn {
		t.Errorf("%v %+v, want not_sent: %s", got.Class, got.Answer, detailNoConn)
	}
}

// fullListener returns the address of a listener with a full queue that accepts no
// connection. No IP address drops packets on every machine, but such a queue does.
func fullListener(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	local, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		t.Fatalf("socket name %T", name)
	}
	address := fmt.Sprintf("127.0.0.1:%d", local.Port)
	for range 16 {
		dialer := net.Dialer{Timeout: 200 * time.Millisecond}
		c, err := dialer.DialContext(t.Context(), "tcp", address)
		if err != nil {
			return address
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatal("the queue of the listener does not fill")
	return ""
}
