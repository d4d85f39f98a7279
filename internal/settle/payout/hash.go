package payout

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Hash identifies the content of a payout: "v1:" and 64 lower-case hex
// digits. The part before the colon is the version of the way it is computed,
// so that a hash stored long ago is compared with one computed the same way.
// The zero value identifies nothing.
type Hash string

// ErrUnknownHashVersion reports a payload hash of a version that this program
// cannot compute, as an older program meets after a newer one has run. Neither
// duplicate nor conflict can be told; the message has to be delivered again.
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

// Matches reports whether h is the payload hash of p, computed by h's own
// version. It fails with [ErrUnknownHashVersion] where it cannot tell.
func (h Hash) Matches(p Payout) (bool, error) {
	if strings.HasPrefix(string(h), hashV1) {
		return h == p.Hash(), nil
	}
	version, _, _ := strings.Cut(string(h), ":")
	return false, fmt.Errorf("compare payload hash of version %q: %w", version, ErrUnknownHashVersion)
}

// Preimage returns what version 1 of the payload hash is computed over: the RFC
// 8785 form of an object with the business members that are present in the
// message, every value a string. An absent member, the defaulted currency
// included, is absent here too, so a later optional member will not change the
// hash of an old message. Metadata and everything of the transport stay out.
func (p Payout) Preimage() []byte { return p.appendPreimage(nil) }

func (p Payout) appendPreimage(dst []byte) []byte {
	// RFC 8785 sorts names by UTF-16 code units; these are ASCII and stand sorted.
	dst = append(dst, `{"account_id":`...)
	dst = appendString(dst, p.AccountID)
	dst = append(dst, `,"amount_cents":"`...)
	dst = strconv.AppendInt(dst, p.AmountCents, 10)
	dst = append(dst, '"')
	if p.CreditorAccount != "" {
		dst = append(dst, `,"creditor_account":`...)
		dst = appendString(dst, p.CreditorAccount)
	}
	if !p.CurrencyDefaulted {
		dst = append(dst, `,"currency":`...)
		dst = appendString(dst, p.Currency)
	}
	if p.Reference != "" {
		dst = append(dst, `,"reference":`...)
		dst = appendString(dst, p.Reference)
	}
	dst = append(dst, `,"settlement_id":`...)
	dst = appendString(dst, p.SettlementID)
	return append(dst, '}')
}

// appendString appends s as an RFC 8785 string. The only possible error is
// invalid UTF-8, which Decode has refused.
func appendString(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}
