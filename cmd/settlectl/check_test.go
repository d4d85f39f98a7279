package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/term"
)

const smallest = `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731}`

func parse[T any](t *testing.T, text string) T {
	t.Helper()
	if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
		t.Errorf("standard output is not one line: %q", text)
	}
	var value T
	if err := json.Unmarshal([]byte(text), &value, json.RejectUnknownMembers(true)); err != nil {
		t.Fatalf("standard output is not the JSON expected: %v: %q", err, text)
	}
	return value
}

func TestCheckEveryCase(t *testing.T) {
	t.Parallel()
	cases, err := os.ReadFile(filepath.Join("..", "..", "internal", "settle", "payout", "testdata", "payout_messages.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for caseLine := range bytes.Lines(cases) {
		var c struct {
			Name string `json:"name"`
			Data []byte `json:"data_base64"`
			report
		}
		if err := json.Unmarshal(caseLine, &c, json.RejectUnknownMembers(true)); err != nil {
			t.Fatal(err)
		}
		count++
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "message.json")
			if err := os.WriteFile(path, c.Data, 0o600); err != nil {
				t.Fatal(err)
			}
			wantCode := term.ExitOK
			if c.Verdict == verdictRefused {
				wantCode = term.ExitNo
			}
			for form, got := range map[string]outcome{
				"file":           settlectl(t, nil, nil, "check", path, "--default-currency", "USD"),
				"standard input": settlectl(t, bytes.NewReader(c.Data), nil, "check", "--default-currency=USD"),
				"dash":           settlectl(t, iotest.OneByteReader(bytes.NewReader(c.Data)), map[string]string{"DEFAULT_CURRENCY": "USD"}, "check", "-"),
			} {
				if got.code != wantCode || got.errOut != "" {
					t.Errorf("%s: exit code %d, want %d; standard error %q", form, got.code, wantCode, got.errOut)
				}
				said := parse[report](t, got.out)
				if (said.Detail == "") != (c.Verdict == verdictPayout) {
					t.Errorf("%s: detail %q with verdict %s", form, said.Detail, said.Verdict)
				}
				said.Detail = ""
				if diff := cmp.Diff(c.report, said); diff != "" {
					t.Errorf("%s (-want +got):\n%s", form, diff)
				}
			}
		})
	}
	if count < 90 {
		t.Errorf("%d cases only", count)
	}
}

func TestCheckPrintsTheMembersOfItsVerdict(t *testing.T) {
	t.Parallel()
	accepted := settlectl(t, strings.NewReader(strings.Replace(smallest, "}", `,"reference":"a<b>&c"}`, 1)), nil, "check", "--default-currency", "USD")
	want := `{"verdict":"payout","payload_hash":"v1:39","preimage":"{\"account_id\":\"reserve-claims\",\"amount_cents\":\"4731\",\"reference\":\"a<b>&c\",\"settlement_id\":\"stl-8472\"}","currency":"USD"}` + "\n"
	hash := parse[report](t, accepted.out).PayloadHash
	if diff := cmp.Diff(strings.Replace(want, "v1:39", string(hash), 1), accepted.out); diff != "" {
		t.Errorf("accepted (-want +got):\n%s", diff)
	}

	refused := settlectl(t, strings.NewReader("[]"), nil, "check")
	want = `{"verdict":"refused","reason":"not_json","detail":"the message is JSON but not an object; publish the payout as one JSON object in UTF-8"}` + "\n"
	if diff := cmp.Diff(want, refused.out); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
}

func TestCheckDefaultCurrency(t *testing.T) {
	t.Parallel()
	const withEUR = `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731,"currency":"EUR"}`
	tests := []struct {
		name, message, env string
		args               []string
		wantCode           int
		want               report // compared in verdict, reason, member and currency
	}{
		{name: "none refuses a message without one", message: smallest, wantCode: term.ExitNo, want: report{Verdict: "refused", Reason: "missing_field", Member: "currency"}},
		{name: "none accepts a message with one", message: withEUR, want: report{Verdict: "payout", Currency: "EUR"}},
		{name: "environment", message: smallest, env: "JPY", want: report{Verdict: "payout", Currency: "JPY"}},
		{name: "flag over environment", message: smallest, env: "JPY", args: []string{"--default-currency", "USD"}, want: report{Verdict: "payout", Currency: "USD"}},
		{name: "empty flag over environment", message: smallest, env: "JPY", args: []string{"--default-currency="}, wantCode: term.ExitNo, want: report{Verdict: "refused", Reason: "missing_field", Member: "currency"}},
		{name: "message over flag", message: withEUR, args: []string{"--default-currency", "USD"}, want: report{Verdict: "payout", Currency: "EUR"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := settlectl(t, strings.NewReader(tt.message), map[string]string{"DEFAULT_CURRENCY": tt.env}, append([]string{"check"}, tt.args...)...)
			if got.code != tt.wantCode || got.errOut != "" {
				t.Fatalf("exit code %d, want %d; standard error %q", got.code, tt.wantCode, got.errOut)
			}
			said := parse[report](t, got.out)
			if diff := cmp.Diff(tt.want, report{Verdict: said.Verdict, Reason: said.Reason, Member: said.Member, Currency: said.Currency}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// countingReader is an endless input of spaces, and counts them.
type countingReader struct{ given int }

func (r *countingReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	r.given += len(p)
	return len(p), nil
}

func TestCheckBoundsItsInput(t *testing.T) {
	t.Parallel()
	endless := &countingReader{}
	got := settlectl(t, endless, nil, "check")
	said := parse[report](t, got.out)
	if got.code != term.ExitNo || said.Reason != payout.ReasonTooLarge || !strings.Contains(said.Detail, "more than 65536 bytes") {
		t.Errorf("exit code %d, %+v", got.code, said)
	}
	if endless.given > payout.MaxMessageBytes+1 {
		t.Errorf("read %d bytes", endless.given)
	}

	exact := smallest + strings.Repeat(" ", payout.MaxMessageBytes-len(smallest))
	if got := settlectl(t, strings.NewReader(exact), nil, "check", "--default-currency", "USD"); got.code != term.ExitOK {
		t.Errorf("a message of exactly the limit: exit code %d: %s", got.code, got.out)
	}
}

func TestCheckNamesByteOrderMarks(t *testing.T) {
	t.Parallel()
	for encoding, message := range map[string]string{
		"UTF-8": "\ufeff" + smallest, "UTF-16": "\xff\xfe{\x00", "": " " + smallest[1:],
	} {
		got := settlectl(t, strings.NewReader(message), nil, "check")
		said := parse[report](t, got.out)
		want := "the message begins with a " + encoding + " byte order mark"
		if got.code != term.ExitNo || said.Reason != payout.ReasonNotJSON || strings.Contains(said.Detail, want) != (encoding != "") {
			t.Errorf("%q: exit code %d, %+v; want %q", message, got.code, said, want)
		}
	}
}
