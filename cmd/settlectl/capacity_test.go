package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/term"
)

// TestDocumentedCapacityTable compares the table in docs/capacity.md with the output of
// the command above it on a terminal of 100 columns. With -update it writes the table.
func TestDocumentedCapacityTable(t *testing.T) {
	t.Parallel()
	const path, prompt = "../../docs/capacity.md", "$ go run ./cmd/settlectl capacity "
	document, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(document), prompt)
	if !found {
		t.Fatalf("%s has no %q", path, prompt)
	}
	args, after, _ := strings.Cut(after, "\n")
	shown, after, _ := strings.Cut(after, "```")
	got := settlectlOn(t, 100, time.Now, nil, nil, append([]string{"capacity"}, strings.Fields(args)...)...)
	if got.code != term.ExitOK || got.errOut != "" {
		t.Fatalf("exit code %d, standard error %q", got.code, got.errOut)
	}
	if *update {
		writeFile(t, path, before+prompt+args+"\n"+got.out+"```"+after)
	} else if got.out != shown {
		t.Errorf("%s shows\n%s\nand settlectl capacity %s prints\n%s", path, shown, args, got.out)
	}
}

func TestCapacityJSON(t *testing.T) {
	t.Parallel()
	got := settlectl(t, nil, nil, "capacity", "--rate=10000", "--bank-share=0", "--bank-latency=1s", "--output=json")
	said := parse[capacityReport](t, got.out)
	if got.code != term.ExitOK || said.Assumed.BankMS != 1000 || said.Assumed.BankShare != 0 || said.Assumed.MultiRegion || len(said.Rates) != 1 {
		t.Errorf("exit code %d, %+v", got.code, said)
	}
	if f := said.Figures[2]; f.Name != "Spanner: processing units, at least" || len(f.Values) != 1 || f.Values[0] != 5000 {
		t.Errorf("%+v, want 5000 processing units", f)
	}
	got = settlectl(t, nil, nil, "capacity", "--rate=10000", "--bank-share=0", "--multi-region", "--output=json")
	said = parse[capacityReport](t, got.out)
	// 10000 / (2700 × 0.45) = 8.2 nodes.
	if f := said.Figures[2]; got.code != term.ExitOK || !said.Assumed.MultiRegion || f.Values[0] != 9000 {
		t.Errorf("exit code %d, %+v, want 9000 processing units of a multi-region", got.code, f)
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
