package jsoncases_test

import (
	stdjson "encoding/json"
	"regexp"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/settleonce/settleonce/internal/test/jsoncases"
)

var nameFormat = regexp.MustCompile(`^[yni]_[a-z]+_[a-z0-9_]+$`)

// classes are the kinds of input; the table must have ten cases of each.
var classes = []string{
	"array", "case", "comment", "depth", "duplicate", "encoding", "literal", "number", "space", "string", "structure", "trailing",
}

// No reader of the program uses encoding/json, so that it is a second opinion.
func TestTable(t *testing.T) {
	t.Parallel()
	seen, inputs, classCount := map[string]bool{}, map[string]string{}, map[string]int{}
	for _, c := range jsoncases.Cases(t) {
		if !nameFormat.MatchString(c.Name) || seen[c.Name] {
			t.Errorf("name %q", c.Name)
			continue
		}
		if other, twice := inputs[string(c.Input)]; twice {
			t.Errorf("%s has the input of %s", c.Name, other)
		}
		seen[c.Name], inputs[string(c.Input)] = true, c.Name
		classCount[c.Class()]++
		if c.Verdict != "accept" && c.Verdict != "refuse" || c.Why == "" || c.Document == "" || c.Metadata == "" {
			t.Errorf("%s: verdict %q, document %q, metadata %q, why %q", c.Name, c.Verdict, c.Document, c.Metadata, c.Why)
		}
		checkWithStandardLibrary(t, c)
	}
	for _, class := range classes {
		if classCount[class] < 10 {
			t.Errorf("class %s has %d cases", class, classCount[class])
		}
		delete(classCount, class)
	}
	if len(classCount) > 0 {
		t.Errorf("unknown classes: %v", classCount)
	}
}

// encoding/json has the same grammar, but accepts invalid UTF-8 and duplicate members.
func checkWithStandardLibrary(t *testing.T, c jsoncases.Case) {
	t.Helper()
	valid := stdjson.Valid(c.Input)
	switch kind := c.Name[0]; {
	case kind == 'y' && (!valid || !c.WellFormed() || !utf8.Valid(c.Input)):
		t.Errorf("%s must be accepted; verdict %s, encoding/json says %t", c.Name, c.Verdict, valid)
	case kind == 'n' && (valid || c.WellFormed()):
		t.Errorf("%s must be refused; verdict %s, encoding/json says %t", c.Name, c.Verdict, valid)
	case kind == 'i' && c.WellFormed() && !valid:
		t.Errorf("%s is not in the grammar", c.Name)
	}
}

func TestInputJoinsPieces(t *testing.T) {
	t.Parallel()
	var in jsoncases.Input
	if err := in.UnmarshalJSON([]byte(`["a\u0000",{"hex":"ff00"},{"repeat":"[{","times":2}]`)); err != nil {
		t.Fatal(err)
	}
	if want := []byte("a\x00\xff\x00[{[{"); !slices.Equal(in, want) {
		t.Errorf("%q, want %q", in, want)
	}
	for _, wrong := range []string{`["a"`, `"a"`, `[{"hex":"f"}]`, `[{"text":"a"}]`, `[1]`} {
		if err := in.UnmarshalJSON([]byte(wrong)); err == nil {
			t.Errorf("%s: no error", wrong)
		}
	}
}
