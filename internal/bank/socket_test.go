package bank

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

const testToken = "tok-5ca1ab1e"

var (
	testNow = time.Date(2026, time.November, 29, 12, 0, 0, 0, time.UTC)

	testPayout = payout.Payout{
		SettlementID: "stl-8472", AccountID: "reserve-claims", AmountCents: 4731, Currency: "USD",
		CreditorAccount: "cp-19", Reference: "claim 19-4431",
	}
	testTransfer = transfer.Transfer{
		Key:         uuid.MustParse("bcb7c10c-019a-5ca0-b0b1-23cf6e23a1a6"),
		AmountCents: 4731, Currency: "USD", CreditorAccount: "cp-19",
	}
)

const (
	testBody = `{"client_reference":"bcb7c10c-019a-5ca0-b0b1-23cf6e23a1a6","amount_minor":4731,"currency":"USD",` +
		`"debtor_account":"reserve-claims","creditor_account":"cp-19","remittance":"claim 19-4431"}`
	// goodTransfer is the answer of a bank without faults.
	goodTransfer = `{"id":"tr-1","client_reference":"bcb7c10c-019a-5ca0-b0b1-23cf6e23a1a6","amount_minor":4731,` +
		`"currency":"USD","creditor_account":"cp-19","status":"ACCP"}`
)

func sendRequest() transfer.SendRequest {
	return transfer.SendRequest{Transfer: testTransfer, Body: []byte(testBody)}
}

func statusRequest() transfer.StatusRequest { return transfer.StatusRequest{Transfer: testTransfer} }

func list(transfers ...string) string { return `{"transfers":[` + strings.Join(transfers, ",") + `]}` }

// with returns goodTransfer with one piece replaced.
func with(old, replacement string) string {
	if !strings.Contains(goodTransfer, old) {
		panic("no " + old)
	}
	return strings.Replace(goodTransfer, old, replacement, 1)
}

// withStatus returns goodTransfer with another status word.
func withStatus(word string) string { return with(`"ACCP"`, `"`+word+`"`) }

// rawBank is a server on a real socket that reads whole requests, counts them, and
// answers with the bytes or faults of its script.
type rawBank struct {
	url      string
	listener net.Listener
	served   sync.WaitGroup

	mu       sync.Mutex
	requests []seenRequest
	open     []net.Conn
}

// seenRequest is a request that the bank read to its end.
type seenRequest struct {
	*http.Request

	body string
}

// script answers the n-th request of a connection, from 1, and reports whether to keep
// the connection.
type script func(c net.Conn, n int) (keep bool)

func serve(t *testing.T, secure bool, answer script) *rawBank {
	t.Helper()
	b := listen(t, secure)
	b.start(t, answer)
	return b
}

// serveRaw starts a bank that calls talk for every connection, and counts no request.
func serveRaw(t *testing.T, talk func(net.Conn)) *rawBank {
	t.Helper()
	b := listen(t, false)
	b.accept(t, talk)
	return b
}

func (b *rawBank) start(t *testing.T, answer script) {
	t.Helper()
	b.accept(t, func(c net.Conn) { b.converse(c, answer) })
}

func (b *rawBank) accept(t *testing.T, talk func(net.Conn)) {
	t.Helper()
	b.served.Go(func() {
		for {
			c, err := b.listener.Accept()
			if err != nil {
				return
			}
			b.mu.Lock()
			b.open = append(b.open, c)
			b.mu.Unlock()
			b.served.Go(func() {
				defer c.Close()
				talk(c)
			})
		}
	})
	t.Cleanup(func() { b.stop() })
}

func listen(t *testing.T, secure bool) *rawBank {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &rawBank{url: "http://" + l.Addr().String(), listener: l}
	if secure {
		b.url = "https://" + l.Addr().String()
		b.listener = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{testAuthority().certificate}, MinVersion: tls.VersionTLS12})
	}
	return b
}

func (b *rawBank) converse(c net.Conn, answer script) {
	input := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(input)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		b.mu.Lock()
		b.requests = append(b.requests, seenRequest{r, string(body)})
		n := len(b.requests)
		b.mu.Unlock()
		if !answer(c, n) {
			return
		}
	}
}

// stop returns all requests when every connection has ended, or after some seconds.
func (b *rawBank) stop() []seenRequest {
	b.listener.Close()
	b.mu.Lock()
	for _, c := range b.open {
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second)) // fails on those that have ended
	}
	b.mu.Unlock()
	b.served.Wait()
	return b.requests
}

// say answers with the given bytes and closes the connection.
func say(text string) script {
	return func(c net.Conn, _ int) bool {
		_, _ = io.WriteString(c, text) // the client may have closed the connection
		return false
	}
}

// reply writes an HTTP answer. Each line of header ends with \r\n.
func reply(status int, header, body string) script {
	return say(fmt.Sprintf("HTTP/1.1 %d %s\r\n%sContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), header, len(body), body))
}

const problemType = "Content-Type: application/problem+json\r\n"

// refuse answers with a problem document.
func refuse(status int, code string) script {
	return reply(status, problemType, fmt.Sprintf(`{"type":"https://bank.example/problems/%s","title":"x","status":%d,"code":%q}`, code, status, code))
}

// then writes the bytes and calls next.
func then(text string, next script) script {
	return func(c net.Conn, n int) bool {
		_, _ = io.WriteString(c, text)
		return next(c, n)
	}
}

// hang waits until the client closes the connection.
func hang(c net.Conn, _ int) bool {
	_, _ = io.Copy(io.Discard, c)
	return false
}

// cut closes the socket without an answer, and without TLS's close_notify.
func cut(c net.Conn, _ int) bool {
	socket(c).Close()
	return false
}

// reset breaks the connection with a TCP reset.
func reset(c net.Conn, _ int) bool {
	if tcp, ok := socket(c).(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // then Close resets
	}
	return cut(c, 0)
}

func socket(c net.Conn) net.Conn {
	if secure, ok := c.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return c
}

// newTLSServer returns a server that offers HTTP/2.
func newTLSServer(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{Certificates: []tls.Certificate{testAuthority().certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// authority is a self-signed certificate for 127.0.0.1.
type authority struct {
	certificate tls.Certificate
	pool        *x509.CertPool
}

var testAuthority = sync.OnceValue(func() authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return authority{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool}
})

func testConfig(url string) Config {
	return Config{
		BaseURL: url, Token: testToken, Profile: GenericProfile(), Now: func() time.Time { return testNow },
		TLS: &tls.Config{RootCAs: testAuthority().pool, MinVersion: tls.VersionTLS12},
	}
}

func newClient(t testing.TB, config Config) *Client {
	t.Helper()
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// overPlainAndTLS runs a test over a plain socket and over TLS.
func overPlainAndTLS(t *testing.T, test func(t *testing.T, secure bool)) {
	t.Helper()
	for name, secure := range map[string]bool{"plain": false, "tls": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, secure)
		})
	}
}
