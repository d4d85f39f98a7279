// Package payout reads payout messages, version 1: [Decode] checks a message and
// returns its [Payout] or a [Refusal], and [Payout.Hash] identifies its content.
package payout

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Limits of a payout message, version 1.
const (
	// MaxMessageBytes is the largest payout message, in bytes.
	MaxMessageBytes = 64 << 10
	// MaxAmountCents is the largest amount, in minor units of the currency. It is below
	// 2^53, so a float64 of any language holds it exactly.
	MaxAmountCents = 999_999_999_999_999

	maxIDChars            = 128
	maxReferenceChars     = 140
	maxMetadataMembers    = 16
	maxMetadataNameChars  = 64
	maxMetadataValueChars = 256
)

// Payout is one payout, as read from a payout message. The zero value is not a
// payout; only [Decode] makes valid ones.
type Payout struct {
	// SettlementID is the producer's key of the payout. Case matters.
	SettlementID string
	// AccountID is the debited ledger account.
	AccountID string
	// AmountCents is the amount in minor units of the currency: cents for USD,
	// yen for JPY, a thousandth of a dinar for KWD. It is never scaled.
	AmountCents int64
	// Currency is the ISO 4217 alphabetic code.
	Currency string
	// CurrencyDefaulted reports that the message had no currency, so that Currency is the
	// configured default. The default is not part of the payload hash.
	CurrencyDefaulted bool
	// CreditorAccount is the bank's identifier of the payee. Empty means that the payout
	// needs no bank instruction.
	CreditorAccount string
	// Reference is the remittance text. Empty means absent.
	Reference string
	// Metadata is copied to the receipt. It is not part of the payout and of the payload
	// hash. Nil and empty mean the same.
	Metadata map[string]string
}

// WantsBank reports whether the payout needs a credit transfer at a bank.
func (p Payout) WantsBank() bool { return p.CreditorAccount != "" }

// Message returns the payout as a payout message, version 1. Decoding it gives an
// equal payout with the same payload hash, if the default currency is the same.
func (p Payout) Message() ([]byte, error) {
	wire := struct {
		SettlementID    string            `json:"settlement_id"`
		AccountID       string            `json:"account_id"`
		AmountCents     int64             `json:"amount_cents"`
		Currency        string            `json:"currency,omitzero"`
		CreditorAccount string            `json:"creditor_account,omitzero"`
		Reference       string            `json:"reference,omitzero"`
		Metadata        map[string]string `json:"metadata,omitempty"`
	}{
		SettlementID: p.SettlementID, AccountID: p.AccountID, AmountCents: p.AmountCents,
		Currency: p.Currency, CreditorAccount: p.CreditorAccount, Reference: p.Reference, Metadata: p.Metadata,
	}
	if p.CurrencyDefaulted {
		wire.Currency = ""
	}
	message, err := json.Marshal(wire, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode payout %q: %w", p.SettlementID, err)
	}
	return message, nil
}

// Decode reads payout message version 1. defaultCurrency is the currency of messages
// without one; if it is empty, such messages are refused.
//
// The only error is a *[Refusal]. Beside it the payout is zero, unless the absent currency
// is the message's only fault: then it lacks only the currency. Decode does not keep data. It reads an accepted
// message in one pass, in which the JSON library refuses duplicate members, invalid
// UTF-8 and deep nesting.
func Decode(data []byte, defaultCurrency string) (Payout, error) {
	refuse := func() (Payout, error) { return Payout{}, explain(data, defaultCurrency) }
	if len(data) > MaxMessageBytes {
		return refuse()
	}
	r, _ := readers.Get().(*reader)
	r.input = *bytes.NewBuffer(data)
	r.json.Reset(&r.input)
	defer func() {
		r.input = bytes.Buffer{} // the pool keeps no message alive
		r.json.Reset(&r.input)
		readers.Put(r)
	}()
	if begin, err := r.json.ReadToken(); err != nil || begin.Kind() != jsontext.KindBeginObject {
		return refuse()
	}
	var (
		p       Payout
		present [len(members)]bool
	)
	for r.json.PeekKind() != jsontext.KindEndObject {
		name, ok := readString(&r.json)
		i, known := memberIndex[string(name)]
		if !ok || !known || members[i].read(&p, &r.json) != "" {
			return refuse()
		}
		present[i] = true
	}
	_, endErr := r.json.ReadToken()
	if _, err := r.json.ReadToken(); endErr != nil || !errors.Is(err, io.EOF) {
		return refuse()
	}
	for i := range members {
		if members[i].required && !present[i] {
			return refuse()
		}
	}
	if p.Currency == "" {
		p.Currency, p.CurrencyDefaulted = defaultCurrency, true
	}
	if p.Currency == "" {
		return p, explain(data, defaultCurrency)
	}
	return p, nil
}

// reader is a JSON decoder with its input. A pool reuses it: a new decoder would be
// the largest allocation of a delivery.
type reader struct {
	input bytes.Buffer
	json  jsontext.Decoder
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// Hash identifies the content of a payout: "v1:" and 64 lower-case hex digits. The
// part before the colon is the version of the algorithm, so a stored hash is compared
// with one of the same algorithm. The zero value is no hash.
type Hash string

// ErrUnknownHashVersion reports a payload hash of a version that this program cannot
// compute: a newer program stored it, or a person changed it.
var ErrUnknownHashVersion = errors.New("payload hash of an unknown version")

const hashV1 = "v1:"

// Hash returns the payload hash of the current version, version 1: SHA-256 over
// [Payout.Preimage].
func (p Payout) Hash() Hash {
	var buf [512]byte // longer than nearly every preimage
	sum := sha256.Sum256(p.appendPreimage(buf[:0]))
	var text [len(hashV1) + 2*sha256.Size]byte
	copy(text[:], hashV1)
	hex.Encode(text[len(hashV1):], sum[:])
	return Hash(text[:])
}

// Matches reports whether h is the payload hash of p, computed by h's own version. It
// fails with [ErrUnknownHashVersion] for a version that it cannot compute.
func (h Hash) Matches(p Payout) (bool, error) {
	if strings.HasPrefix(string(h), hashV1) {
		return h == p.Hash(), nil
	}
	version, _, _ := strings.Cut(string(h), ":")
	return false, fmt.Errorf("compare payload hash of version %q: %w", version, ErrUnknownHashVersion)
}

// Preimage returns the input of payload hash version 1: the RFC 8785 form of an object
// with the message's business members, every value a string. An absent member, such as
// a defaulted currency, is absent here too, so a later optional member does not change
// the hash of an old message. Metadata and message attributes are not part of it.
func (p Payout) Preimage() []byte { return p.appendPreimage(nil) }

func (p Payout) appendPreimage(dst []byte) []byte {
	// RFC 8785 sorts names by UTF-16 code units; these are ASCII and already sorted. The only
	// error of AppendQuote is invalid UTF-8, which Decode refuses.
	dst = append(dst, `{"account_id":`...)
	dst, _ = jsontext.AppendQuote(dst, p.AccountID)
	dst = append(dst, `,"amount_cents":"`...)
	dst = strconv.AppendInt(dst, p.AmountCents, 10)
	dst = append(dst, '"')
	if p.CreditorAccount != "" {
		dst = append(dst, `,"creditor_account":`...)
		dst, _ = jsontext.AppendQuote(dst, p.CreditorAccount)
	}
	if !p.CurrencyDefaulted {
		dst = append(dst, `,"currency":`...)
		dst, _ = jsontext.AppendQuote(dst, p.Currency)
	}
	if p.Reference != "" {
		dst = append(dst, `,"reference":`...)
		dst, _ = jsontext.AppendQuote(dst, p.Reference)
	}
	dst = append(dst, `,"settlement_id":`...)
	dst, _ = jsontext.AppendQuote(dst, p.SettlementID)
	return append(dst, '}')
}

// Names of the members of a payout message.
const (
	MemberSettlementID    = "settlement_id"
	MemberAccountID       = "account_id"
	MemberAmountCents     = "amount_cents"
	MemberCurrency        = "currency"
	MemberCreditorAccount = "creditor_account"
	MemberReference       = "reference"
	memberMetadata        = "metadata"
)

// member is one row of the payout message's table. read reads the member's value from
// dec into p, and returns the broken rule, or "".
type member struct {
	name     string
	required bool
	read     func(p *Payout, dec *jsontext.Decoder) (brokenRule string)
}

// members is the table of payout message version 1, in the order in which faults are
// reported.
var members = [...]member{
	{MemberSettlementID, true, func(p *Payout, dec *jsontext.Decoder) string { return readID(&p.SettlementID, dec) }},
	{MemberAccountID, true, func(p *Payout, dec *jsontext.Decoder) string { return readID(&p.AccountID, dec) }},
	{MemberAmountCents, true, func(p *Payout, dec *jsontext.Decoder) string {
		// Plain digits only: no amount is rounded or read through a float. The library
		// refuses a leading zero; a sign, a point or an exponent is refused here.
		raw, err := dec.ReadValue()
		if err != nil || raw.Kind() != jsontext.KindNumber || bytes.ContainsAny(raw, "-+.eE") {
			return ruleAmount
		}
		amount, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil || amount < 1 || amount > MaxAmountCents {
			return ruleAmount
		}
		p.AmountCents = amount
		return ""
	}},
	{MemberCurrency, false, readCurrency},
	{MemberCreditorAccount, false, func(p *Payout, dec *jsontext.Decoder) string { return readID(&p.CreditorAccount, dec) }},
	{MemberReference, false, readReference},
	{memberMetadata, false, readMetadata},
}

// memberIndex holds each member's place in members.
var memberIndex = func() map[string]int {
	index := make(map[string]int, len(members))
	for i := range members {
		index[members[i].name] = i
	}
	return index
}()

const (
	ruleID        = "a string of 1 to 128 characters of A-Z a-z 0-9 . _ : - that begins with a letter or digit"
	ruleAmount    = "an integer from 1 to 999999999999999 in plain digits, minor units of the currency"
	ruleCurrency  = "an ISO 4217 alphabetic code in upper case"
	ruleReference = "a string of 1 to 140 characters without control characters"
	ruleMetadata  = "an object of up to 16 string members, names of 1 to 64 and values of up to 256 characters"
)

func readID(id *string, dec *jsontext.Decoder) string {
	raw, ok := readString(dec)
	if !ok || len(raw) < 1 || len(raw) > maxIDChars {
		return ruleID
	}
	for i, c := range raw {
		alphanumeric := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		sign := c == '.' || c == '_' || c == ':' || c == '-'
		if !alphanumeric && (!sign || i == 0) {
			return ruleID
		}
	}
	*id = string(raw)
	return ""
}

func readCurrency(p *Payout, dec *jsontext.Decoder) string {
	raw, ok := readString(dec)
	if !ok || !ValidCurrency(string(raw)) {
		return ruleCurrency
	}
	p.Currency = string(raw)
	return ""
}

func readReference(p *Payout, dec *jsontext.Decoder) string {
	raw, ok := readString(dec)
	if !ok || bytes.ContainsFunc(raw, unicode.IsControl) {
		return ruleReference
	}
	if n := utf8.RuneCount(raw); n < 1 || n > maxReferenceChars {
		return ruleReference
	}
	p.Reference = string(raw)
	return ""
}

func readMetadata(p *Payout, dec *jsontext.Decoder) string {
	if dec.PeekKind() != jsontext.KindBeginObject {
		return ruleMetadata
	}
	if _, err := dec.ReadToken(); err != nil {
		return ruleMetadata
	}
	for dec.PeekKind() != jsontext.KindEndObject {
		name, ok := readString(dec)
		if n := utf8.RuneCount(name); !ok || n < 1 || n > maxMetadataNameChars || len(p.Metadata) == maxMetadataMembers {
			return ruleMetadata
		}
		key := string(name) // name is valid only until the next read
		value, ok := readString(dec)
		if !ok || utf8.RuneCount(value) > maxMetadataValueChars {
			return ruleMetadata
		}
		if p.Metadata == nil {
			p.Metadata = make(map[string]string)
		}
		p.Metadata[key] = string(value)
	}
	if _, err := dec.ReadToken(); err != nil {
		return ruleMetadata
	}
	return ""
}

// readString reads a JSON string, a member's name or its value, and returns its
// text. The text is valid until the next read.
func readString(dec *jsontext.Decoder) (text []byte, ok bool) {
	raw, err := dec.ReadValue()
	if err != nil || raw.Kind() != jsontext.KindString {
		return nil, false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], true // no escapes: the text between the quotes
	}
	text, err = jsontext.AppendUnquote(nil, raw)
	return text, err == nil
}
