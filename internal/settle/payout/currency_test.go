package payout_test

import (
	"slices"
	"testing"

	"github.com/bojanz/currency"
	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/settle/payout"
)

// The test compares every string of three capital letters.
func TestCurrencyCodesMatchTheLibrary(t *testing.T) {
	t.Parallel()
	var ours []string
	for a := 'A'; a <= 'Z'; a++ {
		for b := 'A'; b <= 'Z'; b++ {
			for c := 'A'; c <= 'Z'; c++ {
				if code := string([]rune{a, b, c}); payout.ValidCurrency(code) {
					ours = append(ours, code)
				}
			}
		}
	}
	library := slices.Sorted(slices.Values(currency.GetCurrencyCodes()))
	if diff := cmp.Diff(library, ours); diff != "" {
		t.Errorf("currencies (-library +ours); update currencyCodes:\n%s", diff)
	}
}

func TestValidCurrencyNeedsAWholeCode(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"", " ", "E", "EU", "UR ", "R G", "EUR ", " EUR", "EUR GBP ", "eur", "EURO", "Eur", "ÉUR", "EU\x00"} {
		if payout.ValidCurrency(code) {
			t.Errorf("%q is a valid currency", code)
		}
	}
}
