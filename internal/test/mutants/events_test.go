package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// stream is the output of go test -json for packages of module m, shortened.
const stream = `{"Time":"2026-11-29T12:00:00Z","Action":"start","Package":"m/a"}
{"Action":"run","Package":"m/a","Test":"TestGood"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"pass","Package":"m/a","Test":"TestGood","Elapsed":0.5}
{"Action":"run","Package":"m/a","Test":"TestParts"}
{"Action":"output","Package":"m/a","Test":"TestParts/one","Output":"    a_test.go:1: no\n"}
{"Action":"fail","Package":"m/a","Test":"TestParts/one","Elapsed":0}
{"Action":"pass","Package":"m/a","Test":"TestParts/two","Elapsed":0}
{"Action":"fail","Package":"m/a","Test":"TestParts","Elapsed":0}
{"Action":"fail","Package":"m/a","Test":"TestPartsAlone","Elapsed":0}
{"Action":"fail","Package":"m/a","Elapsed":1}
{"Action":"output","Package":"m/late","Output":"panic: test timed out after 1s\n"}
{"Action":"run","Package":"m/late","Test":"TestSlow"}
{"Action":"fail","Package":"m/late","Elapsed":1}
{"ImportPath":"m/bad [m/bad.test]","Action":"build-output","Output":"bad.go:3: undefined: x\n"}
{"ImportPath":"m/bad [m/bad.test]","Action":"build-fail"}
{"Action":"fail","Package":"m/bad","Elapsed":0,"FailedBuild":"m/bad [m/bad.test]"}
{"Action":"skip","Package":"m","Elapsed":0}
`

func TestReadResults(t *testing.T) {
	t.Parallel()
	found, err := readResults(strings.NewReader(stream), "m")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]id{{"a", "TestParts/one"}, {"a", "TestPartsAlone"}}, found.failed(), cmp.AllowUnexported(id{})); diff != "" {
		t.Errorf("failed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"m/bad [m/bad.test]"}, found.broken); diff != "" {
		t.Errorf("broken (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"late"}, found.failedOutside()); diff != "" {
		t.Errorf("failed outside of tests (-want +got):\n%s", diff)
	}
	for t1, want := range map[id]string{{"a", "TestParts/one"}: "a_test.go:1: no", {"late", ""}: "timed out", {}: "undefined: x"} {
		if !strings.Contains(found.output[t1], want) {
			t.Errorf("output of %q: %q", t1, found.output[t1])
		}
	}
	if how := found.ended[id{".", ""}]; how != "skip" {
		t.Errorf("the package at the root: %q", how)
	}
	if _, err := readResults(strings.NewReader(stream+"go: no such tool\n"), "m"); err == nil {
		t.Error("read what is not JSON")
	}
}
