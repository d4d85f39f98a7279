package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSummarise(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		rounds []float64
		want   Summary
	}{
		{nil, Summary{}},
		{[]float64{7}, Summary{7, 7, 7, 1}},
		{[]float64{9, 1, 2}, Summary{2, 1, 9, 3}},
		{[]float64{4, 1, 2, 9}, Summary{3, 1, 9, 4}},
	} {
		if diff := cmp.Diff(test.want, Summarise(test.rounds)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", test.rounds, diff)
		}
	}
	// A disturbance of the second round does not change its ratio.
	if diff := cmp.Diff(Summary{3, 3, 3, 2}, Ratios([]float64{3, 300}, []float64{1, 100})); diff != "" {
		t.Errorf("ratios (-want +got):\n%s", diff)
	}
	if got := Quantile([]float64{1, 2, 3, 4}, 0.99); got != 4 {
		t.Errorf("quantile %v", got)
	}
}
