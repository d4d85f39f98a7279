package ledger

import (
	"math/big"
	"strings"

	"github.com/bojanz/currency"
)

// Major writes an amount, given in minor units of a currency, in major units by
// the currency's ISO 4217 exponent: exactly, with all its decimals, without
// grouping and without the currency. A nil amount is zero. Of a currency that the
// list does not have nobody knows the exponent: known is then false, and the text
// that of the minor units.
func Major(minor *big.Int, code string) (text string, known bool) {
	if minor == nil {
		minor = new(big.Int)
	}
	exponent, known := currency.GetDigits(code)
	digits := new(big.Int).Abs(minor).String()
	if places := int(exponent); places > 0 {
		digits = strings.Repeat("0", max(0, places+1-len(digits))) + digits
		digits = digits[:len(digits)-places] + "." + digits[len(digits)-places:]
	}
	if minor.Sign() < 0 {
		digits = "-" + digits
	}
	return digits, known
}

// Amount is an amount of money, as JSON both in the minor units that are stored
// and in major units.
type Amount struct {
	// Minor is in minor units of the currency, in decimal.
	Minor string `json:"minor"`
	// Major is as [Major] writes it; empty where the exponent is not known.
	Major    string `json:"major,omitzero"`
	Currency string `json:"currency"`
}

// NewAmount returns an amount of minor units.
func NewAmount(minor *big.Int, code string) Amount {
	if minor == nil {
		minor = new(big.Int)
	}
	a := Amount{Minor: minor.String(), Currency: code}
	if major, known := Major(minor, code); known {
		a.Major = major
	}
	return a
}

// String is the amount for people, with its currency.
func (a Amount) String() string {
	if a.Major == "" {
		return a.Minor + " minor units of " + a.Currency
	}
	return a.Major + " " + a.Currency
}

// Cents is an amount as the tables have it, in minor units.
func Cents(minor int64, code string) Amount { return NewAmount(big.NewInt(minor), code) }
