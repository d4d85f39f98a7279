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
	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/schema"
)

// malformed has a message for every reason.
var malformed = []struct {
	data, reason, member string
}{
	{strings.Repeat(" ", payout.MaxMessageBytes+1), "too_large", ""},
	{" \n", "empty_data", ""},
	{"{\"settlement_id\":\"a\xff\"}", "not_json", ""},
	{`{"settlement_id":"a","settlement_id":"b"}`, "duplicate_field", ""},
	{`{"settlement_id":"a","account_id":"b","amount_cents":1,"Currency":"USD"}`, "unknown_field", ""},
	{`{"settlement_id":"a","account_id":"b"}`, "missing_field", "amount_cents"},
	{`{"settlement_id":"a","account_id":"b","amount_cents":1,"reference":"\u0007"}`, "invalid_field", "reference"},
}

func TestMalformedMessageIsQuarantinedOnce(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	f := startFunction(t, db.env(emulatortest.Spanner(t).GRPC)...)
	const deliveries = 3
	want := map[string]string{}
	for i, m := range malformed {
		id := strconv.Itoa(2000 + i)
		want[id] = fmt.Sprintf("%s %s %d", m.reason, m.member, len(m.data))
		for n := range deliveries {
			header := eventHeader
			if n == 1 {
				header = pushHeader // the same message by a push subscription
			}
			a := f.post(t.Context(), header, strings.NewReader(push(id, m.data)))
			if a.Status != 200 || a.Outcome != "quarantined" || a.Reason != m.reason || a.Member != m.member || a.Known != (n > 0) {
				t.Errorf("%.60q: %d %s, want %s %s, known %t", m.data, a.Status, a.Body, m.reason, m.member, n > 0)
			}
		}
	}
	got := map[string]string{}
	all := db.snapshot(t)
	for _, q := range all.Quarantined {
		got[q.MessageID] = fmt.Sprintf("%s %s %d", q.Reason, q.Member, len(q.Data))
	}
	if diff := cmp.Diff(want, got); diff != "" || len(all.Quarantined) != len(want) {
		t.Errorf("quarantine: reason, member, bytes (-want +got in %d rows):\n%s", len(all.Quarantined), diff)
	}
	if len(all.Movements) > 0 {
		t.Errorf("movements %+v, want none", all.Movements)
	}
}

// A payout settles once, whatever the form of its message and from any topic, also from the
// dead-letter topic. Other messages of a wrong topic are quarantined.
func TestEveryFormOfAMessageIsTheSamePayout(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	f := startFunction(t, db.env(emulatortest.Spanner(t).GRPC)...)
	from := func(topic string) http.Header {
		header := eventHeader.Clone()
		header.Set("Ce-Source", "//pubsub.googleapis.com/projects/"+topic)
		return header
	}
	by := func(subscription, body string) string {
		return strings.Replace(body, "projects/p/subscriptions/s", subscription, 1)
	}
	with := func(members, body string) string {
		return strings.Replace(body, `"messageId"`, members+`,"messageId"`, 1)
	}
	unwrapped := http.Header{
		"X-Goog-Pubsub-Message-Id": {"10"}, "X-Goog-Pubsub-Publish-Time": {"2026-11-29T12:00:00Z"},
		"X-Goog-Pubsub-Subscription-Name": {"projects/p/subscriptions/unwrapped"},
	}
	structured := http.Header{"Content-Type": {"application/cloudevents+json"}}
	whole := `{"specversion":"1.0","id":"5","source":"//pubsub.googleapis.com/projects/p/topics/t",` +
		`"type":"google.cloud.pubsub.topic.v1.messagePublished","data":` + push("5", plain) + `}`
	deadLetter := with(`"attributes":{"CloudPubSubDeadLetterSourceDeliveryCount":"5",`+
		`"CloudPubSubDeadLetterSourceSubscription":"s","CloudPubSubDeadLetterSourceTopicPublishTime":"2026-11-29T12:00:00Z"}`, push("9", plain))
	for _, test := range []struct {
		name   string
		header http.Header
		body   string
		want   string
		reason string
	}{
		{"binary", eventHeader, push("1", plain), applied, ""},
		{"the same delivered again", eventHeader, push("1", plain), "duplicate", ""},
		{"published again, another message ID", eventHeader, push("2", plain), "duplicate", ""},
		{"push", pushHeader, push("3", plain), "duplicate", ""},
		{"structured", structured, whole, "duplicate", ""},
		{"unwrapped", unwrapped, plain, "duplicate", ""},
		{"attributes never change a payout", pushHeader, with(`"attributes":{"amount_cents":"9","settlement_id":"other"},"orderingKey":"k"`, push("6", plain)), "duplicate", ""},
		{"members in another order", pushHeader, push("7", `{"amount_cents":4731,"account_id":"reserve-claims","settlement_id":"stl-8472"}`), "duplicate", ""},
		{"other metadata", pushHeader, push("8", strings.Replace(plain, "}", `,"metadata":{"trace":"t"}}`, 1)), "duplicate", ""},
		{"another topic", from("p/topics/other"), by("projects/p/subscriptions/other", push("2", plain)), "duplicate", ""},
		{"another project", from("elsewhere/topics/payouts"), by("projects/elsewhere/subscriptions/s", push("1", plain)), "duplicate", ""},
		{"the dead-letter topic", from("p/topics/dead"), by("projects/p/subscriptions/dead", deadLetter), "duplicate", ""},
		{"no topic name", from(""), by("", push("1", plain)), "duplicate", ""},
		{"another payout by another topic", from("p/topics/other"), by("x", push("1", strings.Replace(plain, "4731", "4732", 1))), "conflict", ""},
		{"an unknown member", from("p/topics/other"), by("r", push("3", `{"run":1}`)), quarantined, "unknown_field"},
		{"a tick for the reconciler", from("p/topics/reconcile"), by("r", push("4", event.Tick)), quarantined, "not_json"},
		{"the same message by another subscription", from("p/topics/reconcile"), by("r2", push("4", event.Tick)), quarantined, "not_json"},
	} {
		a := f.post(t.Context(), test.header, strings.NewReader(test.body))
		if a.Status != 200 || a.Outcome != test.want || a.Reason != test.reason || test.reason == "" && a.SettlementID != "stl-8472" {
			t.Errorf("%s: %d %s, want %s %s", test.name, a.Status, a.Body, test.want, test.reason)
		}
	}
	if all := db.snapshot(t); len(all.Movements) != 1 || len(all.Receipts) != 1 || len(all.Conflicts) != 1 || len(all.Quarantined) != 3 {
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

var wrongConfiguration = []string{"SPANNER_DATABASE=payouts", "DEFAULT_CURRENCY=usd", "BANK_URL=https://bank.example", "BANK_VISIBILITY_LAG=soon"}

// A payout that wants a bank waits in the subscription until a bank is configured.
func TestPayoutForABankIsRedeliveredWithoutABank(t *testing.T) {
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

// A payouts topic bound to ReconcileBank loses no message.
func TestReconcileBankAcknowledgesTicksOnly(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	f := startFunction(t, append(db.env(emulatortest.Spanner(t).GRPC), "FUNCTION_TARGET=ReconcileBank")...)
	for n, data := range []string{plain, "[" + plain + "]", "\ufeff" + plain, strings.Replace(plain, "settlement_id", "Settlement_id", 1), ""} {
		if a := f.deliver(t.Context(), strconv.Itoa(n), data); a.Status != 500 || !strings.Contains(a.Error, "bind the payouts topic to SettlePayout") {
			t.Errorf("%s: %d %s", data, a.Status, a.Body)
		}
		f.waitForLog(t, `"severity":"CRITICAL","message":"message misrouted"`, n+1)
	}
	if a := f.deliver(t.Context(), "tick", event.Tick); a.Status != 200 {
		t.Errorf("a tick: %d %s", a.Status, a.Body)
	}
	if all := db.snapshot(t); len(all.Movements)+len(all.Quarantined) != 0 {
		t.Errorf("stored %+v", all)
	}
}

// The platform then keeps the previous revision.
func TestMisconfiguredDeployedFunctionDoesNotStart(t *testing.T) {
	t.Parallel()
	cmd, _ := functionProcess(t.Context(), t, testBinary(t), append(slices.Clone(wrongConfiguration), "K_SERVICE=settle-payout", "PORT=0")...)
	text, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(text), "SPANNER_DATABASE") || !strings.Contains(string(text), "DEFAULT_CURRENCY") {
		t.Errorf("%v: %s", err, text)
	}
}

// A copied environment must not make a deployed function acknowledge payouts that an
// emulator forgets. The same environment elsewhere settles, and says where.
func TestDeployedFunctionRejectsAnEmulator(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	env := db.env(emulatortest.Spanner(t).GRPC)
	cmd, _ := functionProcess(t.Context(), t, testBinary(t), append(slices.Clone(env), "K_SERVICE=settle-payout", "CLOUD_RUN_TIMEOUT_SECONDS=20", "PORT=0")...)
	text, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("%v, want exit status 1", err)
	}
	for _, want := range []string{"instance start rejected", "remove SPANNER_EMULATOR_HOST", "CLOUD_RUN_TIMEOUT_SECONDS is 20"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	f := startFunction(t, env...)
	for _, outcome := range []string{"applied", "duplicate"} {
		if a := f.deliver(t.Context(), "1", plain); a.Outcome != outcome {
			t.Errorf("%d %s, want %s", a.Status, a.Body, outcome)
		}
	}
	if n := strings.Count(f.log.all(), "Spanner emulator selected"); n != 1 {
		t.Errorf("%d lines say that an emulator is selected, want one:\n%s", n, f.log.all())
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
