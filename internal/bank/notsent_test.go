package bank

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// TestNotSent has the cases of the table's first row. Each prepares a client and
// returns a function for the number of requests that the bank processed.
func TestNotSent(t *testing.T) {
	t.Parallel()
	none := func() int { return 0 }
	processed := func(b *rawBank) func() int { return func() int { return len(b.stop()) } }
	accept := reply(201, "", goodTransfer)

	for _, row := range []struct {
		name    string
		prepare func(t *testing.T) (*Client, func() int)
		detail  string
		breaks  bool // opens the breaker
	}{
		{"connection refused", func(t *testing.T) (*Client, func() int) {
			bank := serve(t, false, accept)
			bank.stop()
			return newClient(t, testConfig(bank.url)), none
		}, detailRefused, false},
		{"no such host", func(t *testing.T) (*Client, func() int) {
			config := testConfig("https://bank.invalid") // reserved by RFC 6761
			config.SendTimeout = 5 * time.Second
			return newClient(t, config), none
		}, detailNoName, false},
		{"unknown authority", func(t *testing.T) (*Client, func() int) {
			bank := serve(t, true, accept)
			config := testConfig(bank.url)
			config.TLS = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
			return newClient(t, config), processed(bank)
		}, detailTLS, true},
		{"certificate of another host", func(t *testing.T) (*Client, func() int) {
			bank := serve(t, true, accept)
			config := testConfig(strings.Replace(bank.url, "127.0.0.1", "localhost", 1))
			return newClient(t, config), processed(bank)
		}, detailTLS, true},
		{"TLS below 1.2", func(t *testing.T) (*Client, func() int) {
			bank := listen(t, false)
			plain := bank.listener
			//nolint:gosec // G402: the test needs an old server
			bank.listener = tls.NewListener(plain, &tls.Config{Certificates: []tls.Certificate{testAuthority().certificate}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
			bank.start(t, accept)
			return newClient(t, testConfig(strings.Replace(bank.url, "http:", "https:", 1))), processed(bank)
		}, detailTLS, true},
		{"plain HTTP where TLS is expected", func(t *testing.T) (*Client, func() int) {
			bank := serveRaw(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") })
			return newClient(t, testConfig(strings.Replace(bank.url, "http:", "https:", 1))), none
		}, detailTLS, true},
		{"TLS handshake closed", func(t *testing.T) (*Client, func() int) {
			bank := serveRaw(t, func(net.Conn) {})
			return newClient(t, testConfig(strings.Replace(bank.url, "http:", "https:", 1))), none
		}, detailTLS, true},
		{"TLS handshake hangs", func(t *testing.T) (*Client, func() int) {
			bank := serveRaw(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
			config := testConfig(strings.Replace(bank.url, "http:", "https:", 1))
			config.SendTimeout = hangTimeout
			return newClient(t, config), none
		}, detailTLS, true},
		{"invalid token", func(t *testing.T) (*Client, func() int) {
			bank := serve(t, true, accept)
			c := newClient(t, testConfig(bank.url))
			c.authorize = bearer(testToken + "\n") // New refuses it
			return c, processed(bank)
		}, detailNoConn, false},
		{"invalid key header", func(t *testing.T) (*Client, func() int) {
			bank := serve(t, false, accept)
			c := newClient(t, testConfig(bank.url))
			c.profile.KeyHeader = "Idempotency Key" // New refuses it
			return c, processed(bank)
		}, detailNoConn, false},
		{"invalid URL", func(t *testing.T) (*Client, func() int) {
			c := newClient(t, testConfig("https://bank.example"))
			c.transfersURL = "https://bank.example/%zz" // New refuses it
			return c, none
		}, detailNoRequest, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			client, processed := row.prepare(t)
			got := client.Send(t.Context(), sendRequest())
			if got.Class != transfer.SendNotSent || got.Answer.Detail != row.detail {
				t.Errorf("class %v, detail %q; want not_sent, %q", got.Class, got.Answer.Detail, row.detail)
			}
			checkDetail(t, got.Answer.Detail)
			if open := client.breaker.wait() > 0; open != row.breaks {
				t.Errorf("breaker open: %v, want %v", open, row.breaks)
			}
			status := client.Status(t.Context(), statusRequest())
			if status.Reading != transfer.StatusUnknown {
				t.Errorf("status %v", status.Reading)
			}
			checkDetail(t, status.Answer.Detail)
			if row.name == "invalid key header" {
				return // a question has no such header, and came through
			}
			if n := processed(); n != 0 {
				t.Errorf("the bank processed %d requests", n)
			}
		})
	}
}

// In TLS 1.3 the refusal of a certificate arrives after the request: the send is
// uncertain, and counts as a TLS failure.
func TestClientCertificateRefusedIsUncertain(t *testing.T) {
	t.Parallel()
	bank := listen(t, false)
	bank.url = strings.Replace(bank.url, "http:", "https:", 1)
	bank.listener = tls.NewListener(bank.listener, &tls.Config{
		Certificates: []tls.Certificate{testAuthority().certificate}, MinVersion: tls.VersionTLS13,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: testAuthority().pool,
	})
	bank.start(t, reply(201, "", goodTransfer))
	client := newClient(t, testConfig(bank.url))
	got := client.Send(t.Context(), sendRequest())
	if got.Class != transfer.SendUncertain || client.breaker.wait() == 0 {
		t.Errorf("class %v, breaker waits %v, answer %+v", got.Class, client.breaker.wait(), got.Answer)
	}
	if n := len(bank.stop()); n != 0 {
		t.Errorf("the bank processed %d requests", n)
	}
}

func TestIncompleteInstructionIsNotSent(t *testing.T) {
	t.Parallel()
	bank := serve(t, false, reply(201, "", goodTransfer))
	client := newClient(t, testConfig(bank.url))
	withoutBody, withoutKey := sendRequest(), sendRequest()
	withoutBody.Body, withoutKey.Key = nil, uuid.Nil
	for _, request := range []transfer.SendRequest{withoutBody, withoutKey} {
		if got := client.Send(t.Context(), request); got.Class != transfer.SendNotSent {
			t.Errorf("class %v, answer %+v", got.Class, got.Answer)
		}
	}
	if got := client.Status(t.Context(), transfer.StatusRequest{}); got.Reading != transfer.StatusUnknown {
		t.Errorf("reading %v", got.Reading)
	}
	if n := len(bank.stop()); n != 0 {
		t.Errorf("the bank processed %d requests", n)
	}
}

func TestProxyFromEnvironmentIsNotUsed(t *testing.T) {
	proxy := serve(t, false, reply(200, "", goodTransfer))
	t.Setenv("HTTP_PROXY", proxy.url)
	t.Setenv("HTTPS_PROXY", proxy.url)
	// net/http uses no proxy for loopback addresses.
	config := testConfig("https://bank.invalid")
	config.SendTimeout = 5 * time.Second
	client := newClient(t, config)
	if got := client.Send(t.Context(), sendRequest()); got.Class != transfer.SendNotSent {
		t.Errorf("class %v, answer %+v", got.Class, got.Answer)
	}
	if client.transport.Proxy != nil {
		t.Error("the transport has a proxy")
	}
	if n := len(proxy.stop()); n != 0 {
		t.Errorf("the proxy processed %d requests", n)
	}
}

// TestHTTP2IsNotSpoken: HTTP/2 has its own retries. Both sides offer it here.
func TestHTTP2IsNotSpoken(t *testing.T) {
	t.Parallel()
	protocol := make(chan string, 1)
	server := newTLSServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol <- r.Proto
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, goodTransfer)
	}))
	config := testConfig(server.URL)
	config.TLS.NextProtos = []string{"h2"}
	if got := newClient(t, config).Send(t.Context(), sendRequest()); got.Class != transfer.SendAccepted {
		t.Errorf("class %v, answer %+v", got.Class, got.Answer)
	}
	if p := <-protocol; p != "HTTP/1.1" {
		t.Errorf("spoken: %s", p)
	}
}
