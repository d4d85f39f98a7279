package ledger

import (
	"math/big"

	"github.com/bojanz/currency"
)

// Amount is an amount of money. Its JSON has both minor and major units.
type Amount struct {
	// Minor is the amount in minor units, as the tables have it.
	Minor string `json:"minor"`
	// Major is the amount in major units by the currency's ISO 4217 exponent, with all
	// its decimals and without grouping; empty where the exponent is unknown.
	Major    string `json:"major,omitzero"`
	Currency string `json:"currency"`
}

// NewAmount returns an amount of minor units. A nil amount is zero.
func NewAmount(minor *big.Int, code string) Amount {
	if minor == nil {
		minor = new(big.Int)
	}
	a := Amount{Minor: minor.String(), Currency: code}
	if major, err := currency.NewAmountFromBigInt(minor, code); err == nil {
		a.Major = major.Number()
	}
	return a
}

// Cents returns an amount of minor units.
func Cents(minor int64, code string) Amount { return NewAmount(big.NewInt(minor), code) }

// String returns the amount in major units, with its currency.
func (a Amount) String() string {
	if a.Major == "" {
		return a.Minor + " minor units of " + a.Currency
	}
	return a.Major + " " + a.Currency
}
