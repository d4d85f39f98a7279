package payout_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/test/jsoncases"
)

// messageCase is a line of testdata/payout_messages.jsonl: a payout message and its
// expected verdict with the default currency USD.
type messageCase struct {
	Name     string        `json:"name"`
	Data     []byte        `json:"data_base64"`
	Verdict  string        `json:"verdict"`
	Reason   payout.Reason `json:"reason"`
	Member   string        `json:"member"`
	Currency string        `json:"currency"`
	Preimage string        `json:"preimage"`
	Hash     payout.Hash   `json:"payload_hash"`
}

func messageCases(tb testing.TB) []messageCase {
	tb.Helper()
	file, err := os.ReadFile("testdata/payout_messages.jsonl")
	if err != nil {
		tb.Fatal(err)
	}
	var cases []messageCase
	for line := range bytes.Lines(file) {
		var c messageCase
		if err := json.Unmarshal(line, &c, json.RejectUnknownMembers(true)); err != nil {
			tb.Fatalf("line %d: %v", len(cases)+1, err)
		}
		cases = append(cases, c)
	}
	if len(cases) < 90 {
		tb.Fatalf("%d cases, want at least 90", len(cases))
	}
	return cases
}

func TestDecodeGivesTheVerdictOfEveryCase(t *testing.T) {
	t.Parallel()
	for _, c := range messageCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			got := messageCase{Name: c.Name, Data: c.Data}
			p, err := payout.Decode(c.Data, "USD")
			if refusal, refused := errors.AsType[*payout.Refusal](err); refused {
				got.Verdict, got.Reason, got.Member = "refused", refusal.Reason, refusal.Member
				if refusal.Detail == "" {
					t.Error("refused without a detail")
				}
			} else {
				got.Verdict, got.Currency = "payout", p.Currency
				got.Preimage, got.Hash = string(p.Preimage()), p.Hash()
			}
			if diff := cmp.Diff(c, got); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeBoundaries(t *testing.T) {
	t.Parallel()
	const head = `{"settlement_id":"a","account_id":"b","amount_cents":1`
	metadata := func(name, value string) string {
		return fmt.Sprintf(`%s,"metadata":{"%s":"%s"}}`, head, name, value)
	}
	nested := func(depth int) string { // the object itself is one level
		return head + `,"metadata":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + `}`
	}
	for _, test := range []struct {
		name, message string
		want          payout.Reason
		member        string
	}{
		{"64 KiB exactly", head + strings.Repeat(" ", 64<<10-len(head)-1) + "}", "", ""},
		{"one byte more", head + strings.Repeat(" ", 64<<10-len(head)) + "}", payout.ReasonTooLarge, ""},
		{"white space over 64 KiB", strings.Repeat(" ", 64<<10+1), payout.ReasonTooLarge, ""},
		{"10,000 levels", nested(10_000), payout.ReasonInvalidField, "metadata"},
		{"10,001 levels", nested(10_001), payout.ReasonNotJSON, ""},
		{"metadata name of 64", metadata(strings.Repeat("円", 64), ""), "", ""},
		{"metadata name of 65", metadata(strings.Repeat("円", 65), ""), payout.ReasonInvalidField, "metadata"},
		{"metadata name empty", metadata("", "v"), payout.ReasonInvalidField, "metadata"},
		{"metadata value of 256", metadata("n", strings.Repeat("円", 256)), "", ""},
		{"metadata value of 257", metadata("n", strings.Repeat("円", 257)), payout.ReasonInvalidField, "metadata"},
		{"metadata value NUL", metadata("n", `\u0000`), "", ""},
		{"metadata nested", head + `,"metadata":{"a":{"b":"c"}}}`, payout.ReasonInvalidField, "metadata"},
		{"twice deep inside an unknown member", head + `,"x":[{"y":{"z":1,"z":2}}]}`, payout.ReasonDuplicateField, ""},
		{"twice in an invalid member before text", head + `,"currency":{"z":1,"z":2}} x`, payout.ReasonNotJSON, ""},
		{"the first missing one is named", `{"account_id":"b","currency":""}`, payout.ReasonMissingField, "settlement_id"},
		{"the first invalid one in the table's order is named", `{"reference":"","currency":"","settlement_id":"","account_id":"b","amount_cents":1}`, payout.ReasonInvalidField, "settlement_id"},
		{"C1 control character", head + `,"reference":"a\u0085b"}`, payout.ReasonInvalidField, "reference"},
		{"format character is no control character", head + `,"reference":"a\u200bb"}`, "", ""},
		{"vertical tab is not white space", "\v", payout.ReasonNotJSON, ""},
		{"unfinished object", "{", payout.ReasonNotJSON, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := payout.Decode([]byte(test.message), "USD")
			refusal, refused := errors.AsType[*payout.Refusal](err)
			switch {
			case !refused:
				refusal = &payout.Refusal{}
			case strings.Contains(refusal.Detail, "fault of the decoder"):
				t.Errorf("detail %q", refusal.Detail)
			}
			if refusal.Reason != test.want || refusal.Member != test.member {
				t.Errorf("got %q %q, want %q %q (%s)", refusal.Reason, refusal.Member, test.want, test.member, refusal.Detail)
			}
		})
	}
}

func TestDecodeWithoutDefaultCurrency(t *testing.T) {
	t.Parallel()
	_, err := payout.Decode([]byte(`{"settlement_id":"a","account_id":"b","amount_cents":0}`), "")
	want := &payout.Refusal{Reason: payout.ReasonMissingField, Member: "currency", Detail: "currency is required where no DEFAULT_CURRENCY is configured"}
	if diff := cmp.Diff(error(want), err); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
}

func TestRefusalErrorQuotesNothing(t *testing.T) {
	t.Parallel()
	_, err := payout.Decode([]byte(`{"settlement_id":"secret-marker","secret-marker":1}`), "USD")
	if err == nil || strings.Contains(err.Error(), "secret-marker") {
		t.Errorf("error %q quotes the message", err)
	}
}

// TestPreimageIsCanonical compares the hand-written encoder with the JSON library's
// RFC 8785.
func TestPreimageIsCanonical(t *testing.T) {
	t.Parallel()
	for _, c := range messageCases(t) {
		if c.Verdict != "payout" {
			continue
		}
		p, err := payout.Decode(c.Data, "USD")
		if err != nil {
			t.Fatal(err)
		}
		preimage := jsontext.Value(p.Preimage())
		canonical := preimage.Clone()
		if err := canonical.Canonicalize(); err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		if diff := cmp.Diff(string(canonical), string(preimage)); diff != "" {
			t.Errorf("%s (-RFC 8785 +preimage):\n%s", c.Name, diff)
		}
	}
}

func TestPayloadHashOfUnknownVersion(t *testing.T) {
	t.Parallel()
	for _, hash := range []payout.Hash{"", "v2:00", "v1", "V1:00"} {
		if _, err := hash.Matches(payout.Payout{}); !errors.Is(err, payout.ErrUnknownHashVersion) {
			t.Errorf("%q: error %v, want ErrUnknownHashVersion", hash, err)
		}
	}
}

func addCases(f *testing.F) {
	f.Helper()
	const most = 4 << 10 // larger inputs slow the fuzzer down without new coverage
	for _, c := range messageCases(f) {
		if len(c.Data) < most {
			f.Add(c.Data)
		}
	}
	for _, c := range jsoncases.Cases(f) {
		switch {
		case len(c.Input) >= most, c.Name[0] != 'i': // only cases on which parsers disagree
		case bytes.HasPrefix(c.Input, []byte("{")):
			f.Add([]byte(c.Input))
		default:
			f.Add(fmt.Appendf(nil, `%s,"metadata":{"k":%s}}`, required, c.Input))
		}
	}
}

// FuzzDecode checks that Decode never panics and never changes its data, that the
// reason of a refusal agrees with the JSON library, and that an accepted payout
// survives encoding and decoding with the same bytes and hash.
func FuzzDecode(f *testing.F) {
	addCases(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		p, err := payout.Decode(data, "USD")
		if !bytes.Equal(data, before) {
			t.Fatalf("%q was changed to %q", before, data)
		}
		if err == nil {
			checkAccepted(t, p, data)
			return
		}
		refusal, refused := errors.AsType[*payout.Refusal](err)
		if !refused || !cmp.Equal(p, payout.Payout{}) {
			t.Fatalf("error %v with payout %+v", err, p)
		}
		checkRefusal(t, *refusal, data)
	})
}

func checkAccepted(t *testing.T, p payout.Payout, data []byte) {
	t.Helper()
	message, err := p.Message()
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := payout.Decode(message, "USD")
	if err != nil {
		t.Fatalf("%s encoded as %s: %v", data, message, err)
	}
	if diff := cmp.Diff(p, decoded); diff != "" {
		t.Fatalf("encoded and decoded (-before +after):\n%s", diff)
	}
	if p.Hash() != decoded.Hash() {
		t.Fatalf("hash %s became %s", p.Hash(), decoded.Hash())
	}
	if again, err := decoded.Message(); err != nil || !bytes.Equal(message, again) {
		t.Fatalf("encoded as %s, then as %s (%v)", message, again, err)
	}
	var read map[string]jsontext.Value
	if err := json.Unmarshal(data, &read); err != nil {
		t.Fatalf("accepted something other than a JSON object: %v", err)
	}
	for name := range read {
		if !slices.Contains(memberNames, name) {
			t.Fatalf("accepted the unknown member %q", name)
		}
	}
	if amount := string(read["amount_cents"]); amount != fmt.Sprint(p.AmountCents) {
		t.Fatalf("amount %s was read as %d", amount, p.AmountCents)
	}
}

// memberNames are the members of a payout message, version 1.
var memberNames = []string{"settlement_id", "account_id", "amount_cents", "currency", "creditor_account", "reference", "metadata"}

// maxDetailBytes bounds a refusal's detail: one sentence with the beginning of a
// member's name.
const maxDetailBytes = 1 << 10

func checkRefusal(t *testing.T, r payout.Refusal, data []byte) {
	t.Helper()
	if strings.Contains(r.Detail, "fault of the decoder") || r.Detail == "" || len(r.Detail) > maxDetailBytes || !utf8.ValidString(r.Detail) {
		t.Errorf("detail of %d bytes: %q", len(r.Detail), r.Detail)
	}
	ofMember := r.Reason == payout.ReasonMissingField || r.Reason == payout.ReasonInvalidField
	if ofMember != slices.Contains(memberNames, r.Member) || !ofMember && r.Member != "" {
		t.Errorf("%s of member %q", r.Reason, r.Member)
	}
	want := jsonReason(data)
	if (want == "" && jsonReasons[r.Reason]) || (want != "" && want != r.Reason) {
		t.Errorf("%s, want %q: %q", r.Reason, want, data)
	}
	if !jsonReasons[r.Reason] && r.Reason != payout.ReasonUnknownField && !ofMember {
		t.Errorf("unexpected reason %q", r.Reason)
	}
}

// jsonReasons are the reasons that precede the check of the members.
var jsonReasons = map[payout.Reason]bool{
	payout.ReasonTooLarge: true, payout.ReasonEmptyData: true, payout.ReasonNotJSON: true, payout.ReasonDuplicateField: true,
}

// jsonReason computes the first of jsonReasons independently of the decoder; empty for
// none.
func jsonReason(data []byte) payout.Reason {
	value := jsontext.Value(data)
	switch {
	case len(data) > payout.MaxMessageBytes:
		return payout.ReasonTooLarge
	case strings.Trim(string(data), " \t\r\n") == "":
		return payout.ReasonEmptyData
	case !value.IsValid(jsontext.AllowDuplicateNames(true)) || value.Kind() != jsontext.KindBeginObject:
		return payout.ReasonNotJSON
	case !value.IsValid():
		return payout.ReasonDuplicateField
	}
	return ""
}

// FuzzHashTellsPayoutsApart checks that two accepted messages have the same hash
// exactly if their business members are the same.
func FuzzHashTellsPayoutsApart(f *testing.F) {
	cases := messageCases(f)
	for i := range cases {
		f.Add(cases[i].Data, cases[(i+1)%len(cases)].Data)
		f.Add(cases[i].Data, cases[i].Data)
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		first, err := payout.Decode(a, "USD")
		if err != nil {
			return
		}
		second, err := payout.Decode(b, "USD")
		if err != nil {
			return
		}
		first.Metadata, second.Metadata = nil, nil
		sameMembers := cmp.Equal(first, second)
		if sameHash := first.Hash() == second.Hash(); sameHash != sameMembers {
			t.Fatalf("same members %t, same hash %t:\n%s\n%s", sameMembers, sameHash, a, b)
		}
	})
}

// FuzzChangedMember checks that a change of any business member changes the hash.
func FuzzChangedMember(f *testing.F) {
	f.Add("stl-8472", "reserve-claims", int64(4731), "EUR", "cp-19", "claim", uint8(0))
	f.Add("a", "b", int64(1), "", "", "", uint8(3))
	f.Fuzz(func(t *testing.T, id, account string, amount int64, currency, creditor, reference string, which uint8) {
		p := payout.Payout{SettlementID: id, AccountID: account, AmountCents: amount, Currency: currency, CreditorAccount: creditor, Reference: reference}
		if currency == "" {
			p.Currency, p.CurrencyDefaulted = "USD", true
		}
		if message, err := p.Message(); err != nil {
			return
		} else if p, err = payout.Decode(message, "USD"); err != nil {
			return
		}
		changed := p
		change := []func(){
			func() { changed.SettlementID += "x" },
			func() { changed.AccountID = "x" + changed.AccountID },
			func() { changed.AmountCents++ },
			func() { changed.CurrencyDefaulted = !changed.CurrencyDefaulted },
			func() { changed.CreditorAccount += "x" },
			func() { changed.Reference += "x" },
			func() { changed.Currency, changed.CurrencyDefaulted = "x"+changed.Currency, false },
		}
		change[int(which)%len(change)]()
		if changed.Hash() == p.Hash() {
			t.Fatalf("%s and %s have the same hash", p.Preimage(), changed.Preimage())
		}
	})
}

// The limits are above the measured values: under the race detector sync.Pool drops
// some readers.
func TestDecodeAndHashAllocations(t *testing.T) {
	for _, test := range []struct {
		name, message string
		most          float64
	}{
		{"usual members", `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731,"currency":"EUR","reference":"claim 19-4431"}`, 12},
		{"all members", `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731,"currency":"EUR","creditor_account":"cp-19","reference":"claim 19-4431","metadata":{"trace":"t-1","batch":"2026-11-29"}}`, 20},
	} {
		data := []byte(test.message)
		allocations := testing.AllocsPerRun(100, func() {
			p, err := payout.Decode(data, "USD")
			if err != nil {
				t.Fatal(err)
			}
			p.Hash()
		})
		if allocations > test.most {
			t.Errorf("%s: %v allocations, want at most %v", test.name, allocations, test.most)
		}
	}
}

func BenchmarkDecodeAndHash(b *testing.B) {
	for _, bench := range []struct{ name, message string }{
		{"required members", `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731}`},
		{"all members", `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731,"currency":"EUR","creditor_account":"cp-19","reference":"claim 19-4431","metadata":{"trace":"t-1","batch":"2026-11-29"}}`},
	} {
		b.Run(bench.name, func(b *testing.B) {
			data := []byte(bench.message)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				p, err := payout.Decode(data, "USD")
				if err != nil {
					b.Fatal(err)
				}
				p.Hash()
			}
		})
	}
}

func ExampleDecode() {
	p, err := payout.Decode([]byte(`{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731}`), "USD")
	fmt.Println(p.AmountCents, p.Currency, err)
	fmt.Println(p.Hash())
	_, err = payout.Decode([]byte(`{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":47.31}`), "USD")
	fmt.Println(err)
	// Output:
	// 4731 USD <nil>
	// v1:2ef5d116474234239b34892a6fa21c840166bd6b3b5f94a4c49e4db29144bad2
	// message refused: invalid_field amount_cents
}
