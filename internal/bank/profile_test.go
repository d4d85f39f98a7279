package bank

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	minimalProfile = `{"name":"bank","key_lifetime":"30m","visibility_lag":"5s","reject":[],"not_found":{"empty_list":true}}`
	wholeProfile   = `{
  "name": "Example Bank", "transfer_path": "/payments", "key_header": "x-idempotency-key", "key_quoted": true,
  "key_lifetime": "720h", "visibility_lag": "1m30s", "reject": ["https://bank.example/problems/closed", "limit"],
  "problem_media_types": ["application/json"],
  "statuses": {"pending": ["pending"], "confirmed": ["paid"], "rejected": ["failed"], "returned": ["returned"],
    "manual": ["blocked"], "manual_reasons": ["duplicate"]},
  "not_found": {"empty_list": false, "problem_code": "unknown_payment"}, "lookup_parameter": "filter[reference]"
}`
)

func TestParseProfile(t *testing.T) {
	t.Parallel()
	minimal := GenericProfile()
	minimal.Name, minimal.KeyLifetime, minimal.VisibilityLag, minimal.Reject = "bank", 30*time.Minute, 5*time.Second, []string{}
	minimal.NotFound = NotFound{EmptyList: true}
	whole := Profile{
		Name: "Example Bank", TransferPath: "/payments", KeyHeader: "x-idempotency-key", KeyQuoted: true,
		KeyLifetime: 720 * time.Hour, VisibilityLag: 90 * time.Second, Reject: []string{"https://bank.example/problems/closed", "limit"},
		ProblemMediaTypes: []string{"application/json"},
		Statuses: Statuses{
			Pending: []string{"pending"}, Confirmed: []string{"paid"}, Rejected: []string{"failed"},
			Returned: []string{"returned"}, Manual: []string{"blocked"}, ManualReasons: []string{"duplicate"},
		},
		NotFound: NotFound{ProblemCode: "unknown_payment"}, LookupParameter: "filter[reference]",
	}
	for name, row := range map[string]struct {
		json string
		want Profile
	}{"minimal": {minimalProfile, minimal}, "whole": {wholeProfile, whole}} {
		got, err := ParseProfile([]byte(row.json))
		if diff := cmp.Diff(row.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestGenericProfileAsAFile(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("testdata/generic.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseProfile(file)
	if diff := cmp.Diff(GenericProfile(), got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if err := GenericProfile().Validate(); err != nil {
		t.Error(err)
	}
}

func TestParseProfileRefuses(t *testing.T) {
	t.Parallel()
	change := func(old, replacement string) string {
		if !strings.Contains(wholeProfile, old) {
			t.Fatalf("no %s", old)
		}
		return strings.Replace(wholeProfile, old, replacement, 1)
	}
	for _, row := range []struct{ name, json, want string }{
		{"nothing", "", "not JSON"},
		{"null", "null", "another JSON value"},
		{"a list", "[]", "another JSON value"},
		{"trailing data", minimalProfile + "{}", "not JSON"},
		{"member twice", change(`"name"`, `"name":"a","name"`), "duplicate member /name;"},
		{"inner member twice", change(`"paid"]`, `"paid"],"confirmed":["x"]`), "duplicate member /statuses/confirmed;"},
		{"invalid UTF-8", change("Example", "Ex\xffmple"), "not JSON"},
		{"unknown member", change(`"name"`, `"nane":1,"name"`), `"nane" is unknown`},
		{"unknown inner member", change(`"pending": [`, `"pendign": [`), `"statuses.pendign" is unknown`},
		{"inner member outside", change(`"name"`, `"statuses.pending":["x"],"name"`), `"statuses.pending" is unknown`},
		{"other case", change(`"name"`, `"Name"`), `"Name" is unknown`},
		{"too large", wholeProfile + strings.Repeat(" ", MaxProfileBytes), "expected at most 65536"},
		{"name missing", change(`"name": "Example Bank",`, ""), "name is missing; expected 1 to 64"},
		{"name null", change(`"Example Bank"`, "null"), "name has a value of another kind"},
		{"lifetime missing", change(`"key_lifetime": "720h",`, ""), "key_lifetime is missing; expected a duration"},
		{"lag missing", change(`"visibility_lag": "1m30s",`, ""), "visibility_lag is missing"},
		{"reject missing", strings.Replace(minimalProfile, `"reject":[],`, "", 1), "reject is missing"},
		{"not_found missing", strings.Replace(minimalProfile, `,"not_found":{"empty_list":true}`, "", 1), "not_found.empty_list is missing"},
		{"not_found of another kind", change(`{"empty_list": false, "problem_code": "unknown_payment"}`, "[]"), "not_found has a value of another kind; expected an object"},
		{"lifetime a number", change(`"720h"`, "720"), "key_lifetime has a value of another kind"},
		{"lifetime without unit", change(`"720h"`, `"720"`), "key_lifetime has a value of another kind"},
		{"lifetime too short", change(`"720h"`, `"59s"`), "key_lifetime is 59s"},
		{"lifetime too long", change(`"720h"`, `"87601h"`), "key_lifetime is 87601h"},
		{"lag negative", change(`"1m30s"`, `"-1s"`), "visibility_lag is -1s"},
		{"lag over half the lifetime", change(`"720h"`, `"3m"`), "visibility_lag is 1m30s"},
		{"path without slash", change(`"/payments"`, `"payments"`), `transfer_path is "payments"`},
		{"path with a query", change(`"/payments"`, `"/payments?x=1"`), "transfer_path is"},
		{"path that climbs", change(`"/payments"`, `"/a/../b"`), "transfer_path is"},
		{"path with a slash at its end", change(`"/payments"`, `"/payments/"`), "transfer_path is"},
		{"header with a space", change("x-idempotency-key", "x idempotency"), "key_header is"},
		{"header in use", change("x-idempotency-key", "authorization"), "another purpose"},
		{"quoted a string", change("true", `"true"`), "key_quoted has a value of another kind"},
		{"reject null inside", change(`"limit"`, "null"), "reject has a value of another kind"},
		{"reject the blank type", change(`"limit"`, `"about:blank"`), `reject has "about:blank"`},
		{"reject twice", change(`"limit"`, `"limit","limit"`), `reject has "limit" twice`},
		{"reject too long", change(`"limit"`, `"`+strings.Repeat("x", 257)+`"`), "…"},
		{"reject too many", change(`"limit"`, `"limit"`+strings.Repeat(`,"x"`, maxListEntries)), "reject has 202 entries"},
		{"lifetime null", change(`"720h"`, "null"), "key_lifetime has a value of another kind"},
		{"words a text", change(`["pending"]`, `"pending"`), "statuses.pending has a value of another kind"},
		{"reject empty", change(`"limit"`, `""`), `reject has ""`},
		{"media types empty", change(`["application/json"]`, "[]"), "problem_media_types is empty"},
		{"media type in upper case", change("application/json", "Application/JSON"), "problem_media_types has"},
		{"PART", change(`["pending"]`, `["PART"]`), `statuses.pending has "PART"`},
		{"word twice", change(`["failed"]`, `["failed","paid"]`), `statuses.rejected has "paid", which statuses.confirmed has too`},
		{"a sentence as word", change(`["failed"]`, `["has failed"]`), "statuses.rejected has"},
		{"nothing confirmed", change(`"confirmed": ["paid"],`, ""), "statuses.confirmed is empty"},
		{"statuses of another kind", change(`"not_found"`, `"statuses_":1,"not_found"`), `"statuses_" is unknown`},
		{"problem code blank", change("unknown_payment", "about:blank"), "not_found.problem_code has"},
		{"parameter with an ampersand", change("filter[reference]", "a&b"), "lookup_parameter is"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseProfile([]byte(row.json))
			if err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), "expected") {
				t.Errorf("error %v; want %q in it, and the expected value", err, row.want)
			}
			if diff := cmp.Diff(Profile{}, got); diff != "" {
				t.Errorf("a profile beside the error:\n%s", diff)
			}
		})
	}
}

func TestParseProfileNamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := ParseProfile([]byte(`{"nane":"x","key_lifetime":"1s","visibility_lag":7,"reject":["about:blank"],"key_header":"Host",
		"statuses":{"confirmed":["PART"]},"not_found":{"empty_lst":true}}`))
	if err == nil {
		t.Fatal("no error")
	}
	const want = `read bank profile:
"nane" is unknown; expected a member of the table in docs/bank-profiles.md
"not_found.empty_lst" is unknown; expected a member of the table in docs/bank-profiles.md
name is missing; expected 1 to 64 characters of A-Z a-z 0-9 space . _ - that begin with a letter or digit
visibility_lag has a value of another kind; expected a duration from 0s to 24h, such as 15s, and below half of key_lifetime: the longest delay until the status API shows a transfer
not_found.empty_list is missing; expected true or false
key_header is "Host", which the request has for another purpose; expected the name of a header of its own, such as Idempotency-Key
key_lifetime is 1s; expected a duration from 1m to 87600h, such as 24h: how long the bank remembers an idempotency key
reject has "about:blank"; expected up to 200 different texts of 1 to 256 visible ASCII characters (about:blank excepted, which says nothing)
statuses.confirmed has "PART"; expected at least one word, without which no transfer is ever confirmed; up to 200 different words of 1 to 64 characters of A-Z a-z 0-9 _ . - (PART excepted, which is the status of a group)`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFaultsAreCountedAfterFifty(t *testing.T) {
	t.Parallel()
	var members strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&members, `,"m%d":0`, i)
	}
	strangers := strings.TrimSuffix(minimalProfile, "}") + members.String() + "}"
	words := strings.TrimSuffix(minimalProfile, "}") + `,"statuses":{"confirmed":["x"` + strings.Repeat(`,"x"`, 5000) + `]}}`
	for name, text := range map[string]string{"and 4950 more": strangers, "and 4951 more": words} {
		_, err := ParseProfile([]byte(text))
		if err == nil || !strings.HasSuffix(err.Error(), "\n"+name) || len(err.Error()) > 16<<10 {
			t.Errorf("error %.300v…; want %q at its end", err, name)
		}
	}
	p := GenericProfile()
	for range 100 {
		p.Statuses.Pending = append(p.Statuses.Pending, "ACSC")
	}
	if err := p.Validate(); err == nil || !strings.HasSuffix(err.Error(), "\nand 51 more") {
		t.Errorf("error %.300v…", err)
	}
}

func TestGenericProfileIsACopy(t *testing.T) {
	t.Parallel()
	first := GenericProfile()
	first.Reject[0], first.Statuses.Confirmed[0] = "changed", "changed"
	if diff := cmp.Diff(first, GenericProfile()); diff == "" {
		t.Error("the generic profile was changed")
	}
}

func TestProfilesOfTheDocumentation(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../docs/profiles/*.json")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d profiles, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseProfile(text); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
