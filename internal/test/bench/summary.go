package bench

import (
	"slices"
	"time"
)

// Summary is a figure that was measured in several rounds. The zero value is no
// measurement.
type Summary struct {
	// Median is the median of the rounds.
	Median float64 `json:"median"`
	// Low and High are the least and the greatest of them.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Rounds is how many there were.
	Rounds int `json:"rounds"`
}

func summarise(rounds []float64) Summary {
	if len(rounds) == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(rounds))
	return Summary{Median: middle(sorted), Low: sorted[0], High: sorted[len(sorted)-1], Rounds: len(sorted)}
}

// middle returns the median of what is sorted.
func middle(sorted []float64) float64 {
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// quantile returns the value below which a share of what is sorted lies.
func quantile(sorted []float64, share float64) float64 {
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return middle(slices.Sorted(slices.Values(values)))
}

// ratios divides round by round: what disturbs a round disturbs both of its figures.
func ratios(rounds, base []float64) Summary {
	var quotients []float64
	for i := range rounds {
		if i < len(base) && base[i] > 0 {
			quotients = append(quotients, rounds[i]/base[i])
		}
	}
	return summarise(quotients)
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
