package report

import "slices"

// Summary summarises a figure over its rounds. The zero value is a figure without
// measurement.
type Summary struct {
	// Low and High are the lowest and the highest round.
	Median, Low, High float64
	// Rounds is the number of rounds.
	Rounds int
}

// Summarise summarises rounds.
func Summarise(rounds []float64) Summary {
	if len(rounds) == 0 {
		return Summary{}
	}
	return Summary{Median: Median(rounds), Low: slices.Min(rounds), High: slices.Max(rounds), Rounds: len(rounds)}
}

// Ratios divides each round by the same round of base, because a disturbance of a
// round affects both.
func Ratios(rounds, base []float64) Summary {
	var quotients []float64
	for i, figure := range rounds {
		if i < len(base) && base[i] > 0 {
			quotients = append(quotients, figure/base[i])
		}
	}
	return Summarise(quotients)
}

// Median returns the median of values; 0 without values.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Quantile returns the value with the given share of the values below it. Values must
// not be empty.
func Quantile(values []float64, share float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}
