package main

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestDocumentedCapacityTable compares the table in docs/capacity.md with the output
// of the command above it.
func TestDocumentedCapacityTable(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/capacity.md")
	if err != nil {
		t.Fatal(err)
	}
	const prompt = "$ go run ./cmd/settlectl "
	_, after, found := strings.Cut(string(page), prompt+"capacity ")
	if !found {
		t.Fatalf("docs/capacity.md has no %qcapacity", prompt)
	}
	args, after, _ := strings.Cut(after, "\n")
	shown, _, _ := strings.Cut(after, "```")
	got := settlectl(t, nil, nil, append([]string{"capacity"}, strings.Fields(args)...)...)
	if got.code != exitOK || got.errOut != "" {
		t.Fatalf("exit code %d, standard error %q", got.code, got.errOut)
	}
	if got.out != shown {
		t.Errorf("docs/capacity.md shows\n%s\nand settlectl capacity %s prints\n%s", shown, args, got.out)
	}
}

// TestCapacityFitsItsBox with one rate and with as many as there can be.
func TestCapacityFitsItsBox(t *testing.T) {
	t.Parallel()
	for _, rates := range []string{"1", "1,10,100", "1,10,100,1000,10000,100000,1000000,10000000", "9999999,9999998,9999997,9999996,9999995,9999994,9999993,9999992"} {
		got := settlectl(t, nil, nil, "capacity", "--rate="+rates)
		wantBoxed(t, got.out)
		for rate := range strings.SplitSeq(rates, ",") {
			x, err := strconv.ParseFloat(rate, 64)
			if err != nil {
				t.Fatal(err)
			}
			if shown := " " + amount(x) + " "; !strings.Contains(got.out, shown) {
				t.Errorf("--rate=%s: no column of %s", rates, shown)
			}
		}
		whole := settlectl(t, nil, nil, "capacity", "--json", "--rate="+rates).out
		for _, figure := range parse[capacityReport](t, whole).Figures {
			if strings.Contains(figure.Formula, "\n") || len(figure.Values) != strings.Count(rates, ",")+1 {
				t.Errorf("JSON is cut too: %+v", figure)
			}
		}
	}
}

func TestCapacityJSON(t *testing.T) {
	t.Parallel()
	got := settlectl(t, nil, nil, "capacity", "--rate=10000", "--bank-share=0", "--bank-latency=1s", "--output=json")
	said := parse[capacityReport](t, got.out)
	if got.code != exitOK || said.Assumed.BankMS != 1000 || said.Assumed.BankShare != 0 || len(said.Rates) != 1 {
		t.Errorf("exit code %d, %+v", got.code, said)
	}
	if f := said.Figures[2]; f.Name != "Spanner: processing units, at least" || len(f.Values) != 1 || f.Values[0] != 5000 {
		t.Errorf("%+v, want 5000 processing units", f)
	}
}

func TestCapacityUsage(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--rate is missing":           nil,
		"above 0, at most 10,000,000": {"--rate=0"},
		"--rate is NaN":               {"--rate=NaN"},
		"--rate is +Inf":              {"--rate=Inf"},
		"--rate is given 9 times":     {"--rate=1,2,3,4,5,6,7,8,9"},
		"--bank-share is 1.5":         {"--rate=1", "--bank-share=1.5"},
		"--bank-share is NaN":         {"--rate=1", "--bank-share=NaN"},
		"--rpc-latency is -1s":        {"--rate=1", "--rpc-latency=-1s"},
		"--concurrency is 0":          {"--rate=1", "--concurrency=0"},
		`--output is "yaml"`:          {"--rate=1", "--output=yaml"},
	} {
		got := settlectl(t, nil, nil, append([]string{"capacity"}, args...)...)
		if got.code != exitError || got.out != "" || !strings.Contains(got.errOut, want) {
			t.Errorf("%q: exit code %d, standard output %q, standard error %q; want %q", args, got.code, got.out, got.errOut, want)
		}
	}
}

func TestAmount(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]string{0: "0", 0.0042: "0.0042", 0.273: "0.27", 7: "7", 99.456: "99.46", 123.4: "123", 1234567: "1,234,567", 1000: "1,000"} {
		if got := amount(x); got != want {
			t.Errorf("%g: %s, want %s", x, got, want)
		}
	}
}
