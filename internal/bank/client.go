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

// Time limits of one exchange. The largest leaves a margin below the 60 s for
// which an instruction is leased: a send that outlived its lease could run beside
// another one.
const (
	DefaultSendTimeout   = 20 * time.Second
	DefaultStatusTimeout = 10 * time.Second
	MaxTimeout           = 50 * time.Second
)

// Config says which bank a [Client] talks to, and how.
type Config struct {
	// BaseURL is the URL below which the profile's path lies, without query and user
	// information. It is https; plain http is for a loopback address only, since a
	// token must not cross a network in the clear. Required.
	BaseURL string
	// Token is the bearer token. Empty means that requests carry no Authorization
	// header.
	Token Secret
	// Profile says what is particular to the bank. The zero value is not valid.
	Profile Profile
	// SendTimeout bounds a send as a whole, from the name's resolution to the last
	// byte of the answer. Defaults to DefaultSendTimeout; at most MaxTimeout.
	SendTimeout time.Duration
	// StatusTimeout bounds a status question in the same way. Defaults to
	// DefaultStatusTimeout; at most MaxTimeout.
	StatusTimeout time.Duration
	// Now is the clock for Retry-After dates and the breaker. Required.
	Now func() time.Time
	// TLS is for a bank with a certificate authority of its own or one that asks for
	// a client certificate. It is copied. Nil means the system's authorities. At
	// least TLS 1.2 is spoken whatever it says, and verification stays on.
	TLS *tls.Config
}

// Policy is what the state machine has to know of the bank.
func (c Config) Policy() transfer.Policy {
	return transfer.Policy{
		KeyLifetime: c.Profile.KeyLifetime, VisibilityLag: c.Profile.VisibilityLag,
		SendTimeout:   cmp.Or(c.SendTimeout, DefaultSendTimeout),
		StatusTimeout: cmp.Or(c.StatusTimeout, DefaultStatusTimeout),
	}
}

// Client asks one bank for transfers. It implements [transfer.Bank], and is safe
// for concurrent use; its breaker is its own. [New] makes one.
type Client struct {
	profile       Profile
	readings      map[string]transfer.StatusReading
	transfersURL  string
	sendTimeout   time.Duration
	statusTimeout time.Duration
	now           func() time.Time
	// authorize puts the token into a header. A function, because printing one shows
	// nothing, whereas fmt prints what stands in an unexported field whatever its type.
	authorize func(http.Header)
	transport *http.Transport
	breaker   *breaker
}

var _ transfer.Bank = (*Client)(nil)

// New returns a client. The error names every fault of the configuration, a line
// each; it does not quote the URL, which may hold a password, or the token.
//
// The client has an HTTP transport of its own that makes exactly one exchange a
// call and no more:
//
//   - Every request has a new connection. net/http sends a request again by itself
//     when a kept-alive connection breaks under it, a GET always and a POST when it
//     carries an Idempotency-Key. On a new connection it never does. The CPU of a
//     function sleeps between requests, so a kept connection would rarely be alive.
//   - The body of a send cannot be rewound (Request.GetBody is nil): should a later
//     net/http want to send it again, it cannot.
//   - HTTP/1.1 only: HTTP/2 has retries of its own, after GOAWAY for instance.
//   - The transport is called without http.Client, so nothing follows a redirect,
//     which would turn a POST into a GET that ends in 200.
//   - No compression, since the limit of the answer's size is in plain bytes.
//   - No proxy, not even from the environment: a proxy is one more party that can
//     send again, or answer with a status that is read as the bank's. A network that
//     needs one forwards the connection itself (NAT, VPC).
func New(c Config) (*Client, error) {
	var faults []error
	base, err := parseBase(c.BaseURL)
	if err != nil {
		faults = append(faults, err)
	}
	if !validToken(string(c.Token)) {
		faults = append(faults, errors.New("the token has a space, a line break or another character that no header can carry; "+
			"expected visible ASCII characters"))
	}
	faults = append(faults, checkTimeout("SendTimeout", c.SendTimeout), checkTimeout("StatusTimeout", c.StatusTimeout))
	if c.Now == nil {
		faults = append(faults, errors.New("no clock is given; expected Config.Now"))
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
		sendTimeout:   orDefault(c.SendTimeout, DefaultSendTimeout),
		statusTimeout: orDefault(c.StatusTimeout, DefaultStatusTimeout),
		now:           c.Now,
		authorize:     bearer(c.Token),
		transport:     newTransport(c.TLS),
		breaker:       &breaker{now: c.Now},
	}, nil
}

func orDefault(d, byDefault time.Duration) time.Duration {
	if d == 0 {
		return byDefault
	}
	return d
}

func checkTimeout(name string, d time.Duration) error {
	if d < 0 || d > MaxTimeout {
		return fmt.Errorf("%s is %v; expected up to %v, or 0 for the default", name, d, MaxTimeout)
	}
	return nil
}

// parseBase returns the base URL without a slash at its end.
func parseBase(raw string) (string, error) {
	const expected = "expected https://host or https://host/path, or http:// with a loopback address"
	u, err := url.Parse(raw)
	switch {
	case raw == "":
		return "", errors.New("the base URL is empty; " + expected)
	case err != nil: // its text quotes the URL
		return "", errors.New("the base URL is no URL; " + expected)
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

// validToken allows less than a header does: a space or a line break is what is
// left at the end of a token that was pasted.
func validToken(token string) bool {
	return !strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
}

// bearer returns the function that puts the token into a header.
func bearer(token Secret) func(http.Header) {
	return func(h http.Header) {
		if token != "" {
			h.Set("Authorization", "Bearer "+string(token))
		}
	}
}

// Compose implements transfer.Bank by [Compose].
func (c *Client) Compose(p payout.Payout, key uuid.UUID) ([]byte, error) { return Compose(p, key) }

// Compose returns the request body for a payout, which no profile changes. The
// creditor account and the currency have to be there, and the amount positive, as
// they are in every payout that was decoded and wants a bank. The amount goes in as
// it is: minor units are what both sides speak.
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
		// Not wrapped: the library's error may quote the payout.
		return nil, fmt.Errorf("compose transfer of %q: a member is no text in UTF-8", p.SettlementID)
	}
	return body, nil
}

// Send asks for the transfer in one exchange, or in none while the breaker is
// open: the class is then not_sent, and RetryAfter how long that lasts. The
// caller's cancellation does not end an exchange, only the send's own time limit
// does: giving up on a request that is under way makes it uncertain.
func (c *Client) Send(ctx context.Context, r transfer.SendRequest) transfer.SendResult {
	if wait := c.breaker.wait(); wait > 0 {
		return notSent(detailBreakerOpen, wait)
	}
	if r.Key == uuid.Nil || len(r.Body) == 0 {
		return notSent("the instruction has no key or no body", 0)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.sendTimeout)
	defer cancel()
	// The reader is wrapped so that net/http does not know its kind: it would make a
	// GetBody that rewinds it.
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
	locked := e.tlsFailed || result.Class == transfer.SendHeld &&
		(e.status == http.StatusUnauthorized || e.status == http.StatusForbidden)
	c.breaker.record(result.Class, locked)
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

// Status asks what became of the transfer, in one exchange, whether the breaker
// is open or not.
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
