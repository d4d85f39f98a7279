package bank

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// Time limits of one exchange. MaxTimeout leaves a margin below the instruction's
// lease of 60 s: a send that outlives its lease could run beside another one.
const (
	DefaultSendTimeout   = 20 * time.Second
	DefaultStatusTimeout = 10 * time.Second
	MaxTimeout           = 50 * time.Second
)

// Config configures a [Client].
type Config struct {
	// BaseURL is the URL below which the profile's path lies, without query and user
	// information. It is https; plain http is for a loopback address only, since a
	// token must not cross a network in the clear. Required.
	BaseURL string
	// Token is the bearer token. Empty means that requests carry no Authorization
	// header.
	Token Secret
	// Profile describes the bank. The zero value is not valid.
	Profile Profile
	// SendTimeout bounds a whole send, from name resolution to the last byte of the
	// answer. Defaults to DefaultSendTimeout; at most MaxTimeout.
	SendTimeout time.Duration
	// StatusTimeout bounds a status request in the same way. Defaults to
	// DefaultStatusTimeout; at most MaxTimeout.
	StatusTimeout time.Duration
	// Now is the clock for Retry-After dates and the breaker. Required.
	Now func() time.Time
	// TLS is for a bank with its own certificate authority, or one that requires a
	// client certificate. It is copied. Nil means the system's authorities. The
	// minimum version is TLS 1.2 in any case, and verification cannot be disabled.
	TLS *tls.Config
}

// Policy returns the bank's times for the state machine.
func (c Config) Policy() transfer.Policy {
	return transfer.Policy{
		KeyLifetime: c.Profile.KeyLifetime, VisibilityLag: c.Profile.VisibilityLag,
		SendTimeout:   cmp.Or(c.SendTimeout, DefaultSendTimeout),
		StatusTimeout: cmp.Or(c.StatusTimeout, DefaultStatusTimeout),
	}
}

// Client requests transfers from one bank. It implements [transfer.Bank], has its
// own circuit breaker, and is safe for concurrent use. [New] makes one.
type Client struct {
	profile       Profile
	readings      map[string]transfer.StatusReading
	transfersURL  string
	sendTimeout   time.Duration
	statusTimeout time.Duration
	now           func() time.Time
	// authorize sets the token in a header. It is a function, because fmt prints the
	// content of an unexported field of any other type.
	authorize func(http.Header)
	transport *http.Transport
	breaker   *breaker
}

var _ transfer.Bank = (*Client)(nil)

// New returns a client. The error lists every fault of the configuration, one a
// line. It quotes neither the token nor the URL, which may hold a password.
//
// The client's HTTP transport makes at most one exchange a call:
//
//   - Every request has a new connection. net/http repeats a request when a
//     kept-alive connection breaks: a GET always, a POST when it has an
//     Idempotency-Key. It never does on a new connection. A function has no CPU
//     between requests, so few kept connections would survive anyway.
//   - The body of a send cannot be rewound (Request.GetBody is nil), so no version
//     of net/http can send it again.
//   - HTTP/1.1 only: HTTP/2 has its own retries, after GOAWAY for instance.
//   - No http.Client, which would follow a redirect, and so turn a POST into a GET
//     that ends in 200.
//   - No compression, because the limit of the answer's size counts plain bytes.
//   - No proxy, not even from the environment: a proxy can repeat a request, or
//     answer with a status of its own. A network that needs one forwards the
//     connection (NAT, VPC).
func New(c Config) (*Client, error) {
	var faults []error
	base, err := parseBase(c.BaseURL)
	if err != nil {
		faults = append(faults, err)
	}
	if !validToken(string(c.Token)) {
		faults = append(faults, errors.New("the token has a space, a line break or another invalid character; "+
			"expected visible ASCII characters"))
	}
	faults = append(faults, checkTimeout("SendTimeout", c.SendTimeout), checkTimeout("StatusTimeout", c.StatusTimeout))
	if c.Now == nil {
		faults = append(faults, errors.New("the clock is missing; expected Config.Now"))
	}
	if c.TLS != nil && c.TLS.InsecureSkipVerify {
		faults = append(faults, errors.New("TLS verification is off; expected RootCAs with the bank's authority"))
	}
	faults = append(faults, c.Profile.Validate())
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("configure bank:\n%w", err)
	}
	return &Client{
		profile:       c.Profile,
		readings:      c.Profile.Statuses.readings(),
		transfersURL:  base + c.Profile.TransferPath,
		sendTimeout:   cmp.Or(c.SendTimeout, DefaultSendTimeout),
		statusTimeout: cmp.Or(c.StatusTimeout, DefaultStatusTimeout),
		now:           c.Now,
		authorize:     bearer(c.Token),
		transport:     newTransport(c.TLS),
		breaker:       &breaker{now: c.Now},
	}, nil
}

func checkTimeout(name string, d time.Duration) error {
	if d < 0 || d > MaxTimeout {
		return fmt.Errorf("%s is %v; expected up to %v, or 0 for the default", name, d, MaxTimeout)
	}
	return nil
}

// parseBase returns the base URL without a slash at its end. Its errors do not
// quote the URL.
func parseBase(raw string) (string, error) {
	const expected = "expected https://host or https://host/path, or http:// with a loopback address"
	u, err := url.Parse(raw)
	switch {
	case raw == "":
		return "", errors.New("the base URL is empty; " + expected)
	case err != nil:
		return "", errors.New("the base URL is not a URL; " + expected)
	case u.Host == "" || u.Hostname() == "" || u.Opaque != "":
		return "", errors.New("the base URL has no host; " + expected)
	case u.User != nil:
		return "", errors.New("the base URL has user information; expected the token in its own variable")
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(raw, "#"):
		return "", errors.New("the base URL has a query or a fragment; " + expected)
	case u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())):
		return "", errors.New("the base URL would carry the token in the clear; " + expected)
	case len(raw) > 1024:
		return "", errors.New("the base URL is over 1024 bytes; " + expected)
	}
	return strings.TrimRight(u.String(), "/"), nil
}

func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// validToken also refuses a space, which a header allows: pasting a token often adds
// one at its end.
func validToken(token string) bool {
	return !strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
}

func bearer(token Secret) func(http.Header) {
	return func(h http.Header) {
		if token != "" {
			h.Set("Authorization", "Bearer "+string(token))
		}
	}
}

// Compose implements [transfer.Bank].
func (c *Client) Compose(p payout.Payout, key uuid.UUID) ([]byte, error) { return Compose(p, key) }

// Compose returns the request body of a payout, which is the same for all profiles.
// It fails without creditor account, currency or a positive amount; every decoded
// payout that wants a bank has them. The amount is in minor units, as in the payout.
func Compose(p payout.Payout, key uuid.UUID) ([]byte, error) {
	switch {
	case key == uuid.Nil:
		return nil, fmt.Errorf("compose transfer of %q: the key is empty", p.SettlementID)
	case !p.WantsBank():
		return nil, fmt.Errorf("compose transfer of %q: the payout names no creditor account", p.SettlementID)
	case p.AmountCents <= 0 || p.Currency == "":
		return nil, fmt.Errorf("compose transfer of %q: the payout has no amount or no currency", p.SettlementID)
	}
	body, err := json.Marshal(struct {
		ClientReference string `json:"client_reference"`
		AmountMinor     int64  `json:"amount_minor"`
		Currency        string `json:"currency"`
		DebtorAccount   string `json:"debtor_account"`
		CreditorAccount string `json:"creditor_account"`
		Remittance      string `json:"remittance,omitzero"`
	}{key.String(), p.AmountCents, p.Currency, p.AccountID, p.CreditorAccount, p.Reference})
	if err != nil {
		// The library's error may quote the payout.
		return nil, fmt.Errorf("compose transfer of %q: a member is not UTF-8", p.SettlementID)
	}
	return body, nil
}

// Send requests the transfer in one exchange. While the breaker is open it makes
// none: the class is then not_sent, and RetryAfter the time until it closes. Only the
// send's own time limit ends an exchange, not the caller's cancellation: a cancelled
// exchange would be uncertain.
func (c *Client) Send(ctx context.Context, r transfer.SendRequest) transfer.SendResult {
	if wait := c.breaker.wait(); wait > 0 {
		return notSent(detailBreakerOpen, wait)
	}
	if r.Key == uuid.Nil || len(r.Body) == 0 {
		return notSent("the instruction has no key or no body", 0)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.sendTimeout)
	defer cancel()
	// For a reader of a known type net/http would set GetBody, which rewinds it.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.transfersURL, io.NopCloser(bytes.NewReader(r.Body)))
	if err != nil {
		return notSent(detailNoRequest, 0)
	}
	req.GetBody = nil
	req.ContentLength = int64(len(r.Body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(c.profile.KeyHeader, c.keyHeader(r.Key))
	e := c.exchange(req, sendBodyMatters)
	result := c.readSend(r, e)
	denied := e.tlsFailed || result.Class == transfer.SendHeld &&
		(e.status == http.StatusUnauthorized || e.status == http.StatusForbidden)
	c.breaker.record(result.Class, denied)
	return result
}

func notSent(detail string, retryAfter time.Duration) transfer.SendResult {
	return transfer.SendResult{
		Class:  transfer.SendNotSent,
		Answer: transfer.BankAnswer{Detail: detail, RetryAfter: retryAfter},
	}
}

func (c *Client) keyHeader(key uuid.UUID) string {
	if c.profile.KeyQuoted {
		return `"` + key.String() + `"`
	}
	return key.String()
}

// Status requests the transfer's status in one exchange, even while the breaker is
// open.
func (c *Client) Status(ctx context.Context, r transfer.StatusRequest) transfer.StatusResult {
	if r.Key == uuid.Nil {
		return transfer.StatusResult{Answer: transfer.BankAnswer{Detail: "the instruction has no key"}}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.statusTimeout)
	defer cancel()
	query := url.Values{c.profile.LookupParameter: {r.Key.String()}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.transfersURL+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return transfer.StatusResult{Answer: transfer.BankAnswer{Detail: detailNoRequest}}
	}
	return c.readStatus(r, c.exchange(req, statusBodyMatters))
}
