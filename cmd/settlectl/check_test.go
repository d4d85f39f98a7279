package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/settle/payout"
)

const smallest = `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731}`

// outcome is what one run of the program gave.
type outcome struct {
	code        int
	out, errOut string
}

// settlectl runs the program in-process. env is its environment.
func settlectl(t *testing.T, in io.Reader, env map[string]string, args ...string) outcome {
	t.Helper()
	return settlectlAt(t, time.Now, in, env, args...)
}

// settlectlAt runs it at a time of the test's choice.
func settlectlAt(t *testing.T, now func() time.Time, in io.Reader, env map[string]string, args ...string) outcome {
	t.Helper()
	var out, errOut bytes.Buffer
	code := run(t.Context(), args, streams{in: in, out: &out, err: &errOut, now: now, getenv: func(name string) string { return env[name] }})
	return outcome{code: code, out: out.String(), errOut: errOut.String()}
}

// report is everything that check can print.
type report struct {
	Verdict     string        `json:"verdict"`
	Reason      payout.Reason `json:"reason"`
	Member      string        `json:"member"`
	Detail      string        `json:"detail"`
	PayloadHash payout.Hash   `json:"payload_hash"`
	Preimage    string        `json:"preimage"`
	Currency    string        `json:"currency"`
}

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

func TestCheckGivesTheVerdictOfEveryCase(t *testing.T) {
	t.Parallel()
	cases, err := os.ReadFile(filepath.Join("..", "..", "internal", "settle", "testdata", "payout_messages.jsonl"))
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
			wantCode := exitOK
			if c.Verdict == verdictRefused {
				wantCode = exitNo
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

func TestCheckPrintsExactlyTheMembersOfTheVerdict(t *testing.T) {
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
		wantErr            string
	}{
		{name: "none refuses a message without one", message: smallest, wantCode: exitNo, want: report{Verdict: "refused", Reason: "missing_field", Member: "currency"}},
		{name: "none accepts a message with one", message: withEUR, want: report{Verdict: "payout", Currency: "EUR"}},
		{name: "environment", message: smallest, env: "JPY", want: report{Verdict: "payout", Currency: "JPY"}},
		{name: "flag over environment", message: smallest, env: "JPY", args: []string{"--default-currency", "USD"}, want: report{Verdict: "payout", Currency: "USD"}},
		{name: "empty flag over environment", message: smallest, env: "JPY", args: []string{"--default-currency="}, wantCode: exitNo, want: report{Verdict: "refused", Reason: "missing_field", Member: "currency"}},
		{name: "the message's own wins", message: withEUR, args: []string{"--default-currency", "USD"}, want: report{Verdict: "payout", Currency: "EUR"}},
		{name: "flag is no currency", message: smallest, args: []string{"--default-currency", "usd"}, wantCode: exitError, wantErr: `--default-currency is "usd"; give an ISO 4217`},
		{name: "environment is no currency", message: smallest, env: "dollars", wantCode: exitError, wantErr: `DEFAULT_CURRENCY is "dollars"; give an ISO 4217`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := settlectl(t, strings.NewReader(tt.message), map[string]string{"DEFAULT_CURRENCY": tt.env}, append([]string{"check"}, tt.args...)...)
			if got.code != tt.wantCode || !strings.Contains(got.errOut, tt.wantErr) {
				t.Fatalf("exit code %d, want %d; standard error %q, want %q in it", got.code, tt.wantCode, got.errOut, tt.wantErr)
			}
			if tt.wantErr != "" {
				return
			}
			said := parse[report](t, got.out)
			if diff := cmp.Diff(tt.want, report{Verdict: said.Verdict, Reason: said.Reason, Member: said.Member, Currency: said.Currency}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// countingReader gives spaces for ever and counts them.
type countingReader struct{ given int }

func (r *countingReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	r.given += len(p)
	return len(p), nil
}

func TestCheckReadsNoMoreThanItHasTo(t *testing.T) {
	t.Parallel()
	endless := &countingReader{}
	got := settlectl(t, endless, nil, "check")
	said := parse[report](t, got.out)
	if got.code != exitNo || said.Reason != payout.ReasonTooLarge || !strings.Contains(said.Detail, "more than 65536 bytes") {
		t.Errorf("exit code %d, %+v", got.code, said)
	}
	if endless.given > payout.MaxMessageBytes+1 {
		t.Errorf("read %d bytes", endless.given)
	}

	exact := smallest + strings.Repeat(" ", payout.MaxMessageBytes-len(smallest))
	if got := settlectl(t, strings.NewReader(exact), nil, "check", "--default-currency", "USD"); got.code != exitOK {
		t.Errorf("a message of exactly the limit: exit code %d: %s", got.code, got.out)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing.json")
	broken := iotest.ErrReader(errors.New("the disk is gone"))
	tests := []struct {
		name string
		in   io.Reader
		args []string
		want string
	}{
		{"missing file", nil, []string{"check", missing}, "missing.json: no such file or directory; name a file"},
		{"directory", nil, []string{"check", dir}, dir + " is a directory; name a file"},
		{"broken input", broken, []string{"check"}, "read the message from standard input: the disk is gone"},
		{"two files", nil, []string{"check", "a", "b"}, "See 'settlectl check --help'"},
		{"unknown flag", nil, []string{"check", "--what"}, "settlectl check: there is no flag --what here; there is --default-currency, --help\nSee 'settlectl check --help'"},
		{"unknown command", nil, []string{"settle"}, "there is no command settlectl settle; give capacity, "},
		{"no file to publish", nil, []string{"publish", "--topic", "projects/p/topics/t"}, "See 'settlectl publish --help'"},
		{"missing file to publish", nil, []string{"publish", missing, "--topic", "projects/p/topics/t"}, "missing.json: no such file"},
		{"no topic", nil, []string{"publish", "-"}, "settlectl publish: --topic is missing: name of the topic"},
		{"topic without project", nil, []string{"publish", "-", "--topic", "t"}, "add --project"},
		{"topic of another kind", nil, []string{"publish", "-", "--topic", "projects/p/subscriptions/s"}, "give projects/P/topics/T"},
		{"two projects", nil, []string{"publish", "-", "--topic", "projects/p/topics/t", "--project", "q"}, "leave --project out"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := settlectl(t, tt.in, nil, tt.args...)
			if got.code != exitError || got.out != "" || !strings.Contains(got.errOut, tt.want) {
				t.Errorf("exit code %d, standard output %q, standard error %q; want %q in it", got.code, got.out, got.errOut, tt.want)
			}
		})
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestResultThatCannotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	for _, message := range []string{smallest, "[]"} {
		var errOut bytes.Buffer
		code := run(t.Context(), []string{"check", "--default-currency", "USD"}, streams{
			in: strings.NewReader(message), out: fullDisk{}, err: &errOut, getenv: func(string) string { return "" },
		})
		if code != exitError || !strings.Contains(errOut.String(), "no space left") {
			t.Errorf("exit code %d, standard error %q", code, errOut.String())
		}
	}
}

func TestEveryHelpHasAnExample(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"check"}, {"publish"}, {"verify"}} {
		got := settlectl(t, nil, nil, append(args, "--help")...)
		if got.code != exitOK || !strings.Contains(got.out, "Examples:\n") || !strings.Contains(strings.ToLower(got.out), "exit codes:") {
			t.Errorf("%q --help: exit code %d:\n%s", args, got.code, got.out)
		}
	}
	if got := settlectl(t, nil, nil, "completion", "bash"); got.code != exitOK || !strings.Contains(got.out, "settlectl") {
		t.Errorf("completion bash: exit code %d", got.code)
	}
}
