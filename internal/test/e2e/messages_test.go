package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/schema"
)

// malformed has a message for every reason, and for every part of the rule behind it.
var malformed = []struct {
	data, reason, member string
}{
	{strings.Repeat(" ", payout.MaxMessageBytes+1), "too_large", ""},
	{"", "empty_data", ""},
	{" \n", "empty_data", ""},
	{"payout stl-8472", "not_json", ""},
	{`["` + plain + `"]`, "not_json", ""},
	{plain + plain, "not_json", ""},
	{"\ufeff" + plain, "not_json", ""},
	{"{\"settlement_id\":\"a\xff\"}", "not_json", ""},
	{strings.Repeat("[", 10_001), "not_json", ""},
	{`{"settlement_id":"a","settlement_id":"b"}`, "duplicate_field", ""},
	{`{"settlement_id":"a","account_id":"b","amount_cents":1,"Currency":"USD"}`, "unknown_field", ""},
	{`{"settlement_id":"a","account_id":"b"}`, "missing_field", "amount_cents"},
	{`{"settlement_id":"a b","account_id":"b","amount_cents":1}`, "invalid_field", "settlement_id"},
	{`{"settlement_id":"a","account_id":null,"amount_cents":1}`, "invalid_field", "account_id"},
	{`{"settlement_id":"a","account_id":"b","amount_cents":1.0}`, "invalid_field", "amount_cents"},
	{`{"settlement_id":"a","account_id":"b","amount_cents":1,"currency":"usd"}`, "invalid_field", "currency"},
	{`{"settlement_id":"a","account_id":"b","amount_cents":1,"creditor_account":""}`, "invalid_field", "creditor_account"},
	{`{"settlement_id":"a","account_id":"b","amount_cents":1,"reference":"\u0007"}`, "invalid_field", "reference"},
	{`{"settlement_id":"a","account_id":"b","amount_cents":1,"metadata":[]}`, "invalid_field", "metadata"},
}

func TestMalformedMessageIsQuarantinedOnce(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	f := startFunction(t, db.env(emulatortest.Spanner(t).GRPC)...)
	const deliveries = 3
	want := map[string]string{}
	for i, m := range malformed {
		id := strconv.Itoa(2000 + i)
		want[id] = fmt.Sprintf("%s %s %d %d", m.reason, m.member, len(m.data), deliveries)
		for n := range deliveries {
			header := eventHeader
			if n == 1 {
				header = pushHeader // the same message by a push subscription
			}
			a := f.post(t.Context(), header, strings.NewReader(push(id, m.data)))
			if a.Status != 200 || a.Outcome != "quarantined" || a.Reason != m.reason || a.Member != m.member {
				t.Errorf("%.60q: %d %s, want %s %s", m.data, a.Status, a.Body, m.reason, m.member)
			}
		}
	}
	got := map[string]string{}
	all := db.snapshot(t)
	for _, q := range all.Quarantined {
		got[q.MessageID] = fmt.Sprintf("%s %s %d %d", q.Reason, q.Member, len(q.Data), q.Deliveries)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("quarantine: reason, member, bytes, deliveries (-want +got):\n%s", diff)
	}
	if len(all.Movements) > 0 {
		t.Errorf("movements %+v, want none", all.Movements)
	}
}

// docs/message.md has the same table.
func TestRequestThatIsNoMessage(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	f := startFunction(t, db.env(emulatortest.Spanner(t).GRPC)...)
	otherType := eventHeader.Clone()
	otherType.Set("Ce-Type", "google.cloud.storage.object.v1.finalized")
	kept := 0
	for _, test := range []struct {
		name    string
		header  http.Header
		body    string
		status  int
		outcome string
	}{
		{"not an event", pushHeader, "hello", 200, "quarantined"},
		{"empty body", pushHeader, "", 200, "quarantined"},
		{"an event of another type", otherType, push("1", plain), 200, "quarantined"},
		{"no message", pushHeader, `{"subscription":"s"}`, 200, "quarantined"},
		{"bad base64", pushHeader, `{"message":{"messageId":"2","data":"%%%"}}`, 200, "quarantined"},
		{"10 MiB, more than a message can have", pushHeader, strings.Repeat("x", settle.MaxQuarantineBytes), 200, "quarantined"},
		{"over 10 MiB, more than a row can hold", pushHeader, strings.Repeat("x", settle.MaxQuarantineBytes+1), 413, "unknown"},
		{"17 MiB", pushHeader, strings.Repeat("x", 17<<20), 413, "unknown"},
	} {
		a := f.post(t.Context(), test.header, strings.NewReader(test.body))
		if a.Status != test.status || a.Outcome != test.outcome || test.status == 200 && a.Reason != "unsupported_event" {
			t.Errorf("%s: %d %s %s, want %d %s", test.name, a.Status, a.Body, a.Error, test.status, test.outcome)
		}
		all := db.snapshot(t)
		if test.status == 200 {
			kept++
			found := false
			for _, q := range all.Quarantined {
				found = found || string(q.Data) == test.body && q.Reason == payout.ReasonUnsupportedEvent
			}
			if !found {
				t.Errorf("%s: not quarantined unchanged", test.name)
			}
		}
		if len(all.Quarantined) != kept {
			t.Errorf("%s: %d rows in quarantine, want %d", test.name, len(all.Quarantined), kept)
		}
	}
}

func TestEveryFormOfAMessageIsTheSamePayout(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	f := startFunction(t, db.env(emulatortest.Spanner(t).GRPC)...)
	structured := http.Header{"Content-Type": {"application/cloudevents+json"}}
	event := `{"specversion":"1.0","id":"5","source":"//pubsub.googleapis.com/projects/p/topics/t",` +
		`"type":"google.cloud.pubsub.topic.v1.messagePublished","data":` + push("5", plain) + `}`
	withAttributes := strings.Replace(push("6", plain), `"messageId"`, `"attributes":{"amount_cents":"9","settlement_id":"other"},"orderingKey":"k","messageId"`, 1)
	for i, test := range []struct {
		name   string
		header http.Header
		body   string
	}{
		{"binary", eventHeader, push("1", plain)},
		{"the same delivered again", eventHeader, push("1", plain)},
		{"published again, another message ID", eventHeader, push("2", plain)},
		{"push", pushHeader, push("3", plain)},
		{"structured", structured, event},
		{"attributes never change a payout", pushHeader, withAttributes},
		{"members in another order", pushHeader, push("7", `{"amount_cents":4731,"account_id":"reserve-claims","settlement_id":"stl-8472"}`)},
		{"other metadata", pushHeader, push("8", strings.Replace(plain, "}", `,"metadata":{"trace":"t"}}`, 1))},
	} {
		want := "duplicate"
		if i == 0 {
			want = "applied"
		}
		a := f.post(t.Context(), test.header, strings.NewReader(test.body))
		if a.Status != 200 || a.Outcome != want || a.SettlementID != "stl-8472" {
			t.Errorf("%s: %d %s, want %s", test.name, a.Status, a.Body, want)
		}
	}
	if all := db.snapshot(t); len(all.Movements) != 1 || len(all.Receipts) != 1 || len(all.Conflicts)+len(all.Quarantined) != 0 {
		t.Errorf("stored %+v", all)
	}
}

func TestPayloadIsNeitherLoggedNorAnswered(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	f := startFunction(t, db.env(emulatortest.Spanner(t).GRPC)...)
	const secret = "S3CRET"
	p := func(reference string) string {
		return `{"settlement_id":"stl-1","account_id":"acc-` + secret + `","amount_cents":4731,"reference":"` + reference + secret + `","metadata":{"` + secret + `":"` + secret + `"}}`
	}
	var answers strings.Builder
	for i, data := range []string{
		p(""), p(""), p("changed "),
		strings.Replace(p(""), "}}", `},"creditor_account":"cp-`+secret+`"}`, 1),
		`{"settlement_id":"stl-2","` + secret + `":1}`, secret, `{"` + secret + `":1,"` + secret + `":2}`,
	} {
		a := f.deliver(t.Context(), strconv.Itoa(i), data)
		answers.WriteString(a.Body)
	}
	answers.WriteString(f.post(t.Context(), pushHeader, strings.NewReader(secret)).Body)
	if strings.Contains(answers.String(), secret) {
		t.Errorf("answered %s", answers.String())
	}
	f.waitForLog(t, `"duration_ms"`, 8)
	if log := f.log.all(); strings.Contains(log, secret) || !strings.Contains(log, `"outcome":"conflict"`) {
		t.Errorf("logged %s", log)
	}
}

func TestBankPayoutWithoutABankIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	f := startFunction(t, db.env(emulatortest.Spanner(t).GRPC)...)
	a := f.deliver(t.Context(), "1", strings.Replace(plain, "}", `,"creditor_account":"cp-19"}`, 1))
	if a.Status != 500 || !strings.Contains(a.Error, "no bank is configured") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if all := db.snapshot(t); len(all.Movements) != 0 {
		t.Errorf("stored %+v", all)
	}
}

var wrongConfiguration = []string{"SPANNER_DATABASE=payouts", "DEFAULT_CURRENCY=usd", "BANK_URL=https://bank.example", "BANK_VISIBILITY_LAG=soon"}

// The platform then keeps the previous revision.
func TestMisconfiguredDeployedFunctionDoesNotStart(t *testing.T) {
	t.Parallel()
	cmd, _ := functionProcess(t.Context(), t, testBinary(t), append(slices.Clone(wrongConfiguration), "K_SERVICE=settle-payout", "PORT=0")...)
	text, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(text), "SPANNER_DATABASE") || !strings.Contains(string(text), "DEFAULT_CURRENCY") {
		t.Errorf("%v: %s", err, text)
	}
}

func TestAllWrongSettingsAreLogged(t *testing.T) {
	t.Parallel()
	f := startFunction(t, wrongConfiguration...)
	if a := f.deliver(t.Context(), "1", plain); a.Status != 500 || a.Outcome != "unknown" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	f.waitForLog(t, "SPANNER_DATABASE", 1)
	f.waitForLog(t, "DEFAULT_CURRENCY", 1)
	f.waitForLog(t, "BANK_VISIBILITY_LAG", 1)
}

// In the first round the function creates its client while nothing listens. In the second
// one Spanner restarts with an empty database.
func TestFunctionRecoversAfterSpannerOutage(t *testing.T) {
	t.Parallel()
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	addr := freeAddr(t)
	_, portText, _ := net.SplitHostPort(addr)
	port, err := strconv.Atoi(portText)
	if err != nil {
		t.Fatal(err)
	}
	const name = "projects/emulator/instances/emulator/databases/payouts"
	env := []string{"SPANNER_DATABASE=" + name, "SPANNER_EMULATOR_HOST=" + addr, "SETTLE_TIMEOUT=10s"}
	f := startFunction(t, env...)
	for round, id := range []string{"no connection before", "restarted empty"} {
		p := fmt.Sprintf(`{"settlement_id":"stl-%d","account_id":"a","amount_cents":1}`, round)
		if a := f.deliver(t.Context(), id, p); a.Status != 500 || a.Outcome != "unknown" {
			t.Errorf("%s: %d %s while Spanner is down", id, a.Status, a.Body)
		}
		e, err := emulator.StartSpanner(t.Context(), emulator.WithPort(port))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.CreateDatabase(t.Context(), name, statements); err != nil {
			t.Fatal(err)
		}
		// Pub/Sub redelivers until status 200. The first delivery can fail because the old
		// Spanner's session is gone.
		var a answer
		for attempt := 0; a.Status != 200 && attempt < 3; attempt++ {
			a = f.deliver(t.Context(), id, p)
		}
		if a.Status != 200 || a.Outcome != "applied" {
			t.Errorf("%s: %d %s after it is back: %s", id, a.Status, a.Body, f.log)
		}
		if all := openDatabase(t, e, name).snapshot(t); len(all.Movements) != 1 {
			t.Errorf("%s: stored %+v", id, all)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
