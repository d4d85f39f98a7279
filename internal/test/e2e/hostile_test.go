package e2e_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
)

// sendRaw writes a request unchanged, and reads the response. With closes, it then closes
// the connection for writing.
func (f *function) sendRaw(ctx context.Context, request string, closes bool) answer {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.Trim(strings.TrimPrefix(f.url, "http://"), "/"))
	if err != nil {
		return answer{Error: err.Error()}
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return answer{Error: err.Error()}
	}
	written := make(chan struct{})
	go func() { // concurrently, because the response can arrive before the end of the request
		defer close(written)
		_, err := io.WriteString(conn, request)
		if err == nil && closes {
			_ = conn.(*net.TCPConn).CloseWrite() // the response tells
		}
	}()
	method, _, _ := strings.Cut(request, " ")
	a := readAnswer(bufio.NewReader(conn), method)
	_ = conn.Close()
	<-written
	return a
}

// readAnswer reads the response to a request with the method.
func readAnswer(r *bufio.Reader, method string) answer {
	response, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		return answer{Error: err.Error()}
	}
	if response.StatusCode == http.StatusContinue {
		return readAnswer(r, method)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	a := answer{Status: response.StatusCode, Body: string(text)}
	_ = json.Unmarshal(text, &a) // net/http's own responses are text
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// hostileRequest is a request with its expected result.
type hostileRequest struct {
	name    string
	request string
	closes  bool
	status  int
	// outcome and reason of the response. An empty outcome means that net/http or the
	// framework answers.
	outcome, reason string
	// kept is the quarantined data, if the reason is unsupported_event.
	kept string
}

// requests makes requests, each with a new payout.
type requests struct{ n int }

// payout returns a new payout message.
func (r *requests) payout() string {
	r.n++
	return fmt.Sprintf(`{"settlement_id":"hostile-%d","account_id":"a","amount_cents":1}`, r.n)
}

// push returns a push body with a new payout.
func (r *requests) push() string { return push(fmt.Sprint(r.n+1), r.payout()) }

// with returns a push body with additional members in the message.
func (r *requests) with(members string) string {
	return strings.Replace(r.push(), `"message":{`, `"message":{`+members+`,`, 1)
}

// bare returns a push body whose message has a new payout and the members only.
func (r *requests) bare(members string) string {
	return fmt.Sprintf(`{"message":{"data":%q,%s},"subscription":"s"}`, base64.StdEncoding.EncodeToString([]byte(r.payout())), members)
}

// posted returns a request with header lines and a body.
func posted(header, body string) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: f\r\n%sContent-Length: %d\r\n\r\n%s", header, len(body), body)
}

// chunks returns a request with the body in chunks of a size, and then end.
func chunks(header, body string, size int, extension, end string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "POST / HTTP/1.1\r\nHost: f\r\nTransfer-Encoding: chunked\r\n%s\r\n", header)
	for at := 0; at < len(body); at += size {
		piece := body[at:min(at+size, len(body))]
		fmt.Fprintf(&b, "%x%s\r\n%s\r\n", len(piece), extension, piece)
	}
	return b.String() + end
}

// binaryEvent returns the header lines of a binary event. changes are pairs of a name
// and a value, which replace or add lines.
func binaryEvent(changes ...string) string {
	header := eventHeader.Clone()
	for change := range slices.Chunk(changes, 2) {
		header.Set(change[0], change[1])
	}
	var lines strings.Builder
	for name, values := range header {
		fmt.Fprintf(&lines, "%s: %s\r\n", name, values[0])
	}
	return lines.String()
}

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, text)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const (
	applied     = "applied"
	quarantined = "quarantined"
	unknown     = "unknown"
	unsupported = "unsupported_event"
)

// check sends the request and checks the response. The message must be in the table that
// the outcome names, and in no other. It returns the rows afterwards.
func (h hostileRequest) check(t *testing.T, f *function, db database, before audit.Snapshot) audit.Snapshot {
	t.Helper()
	a := f.sendRaw(t.Context(), h.request, h.closes)
	if a.Status != h.status || a.Outcome != h.outcome || a.Reason != h.reason {
		t.Errorf("%d %.300s %s, want %d %s %s", a.Status, a.Body, a.Error, h.status, h.outcome, h.reason)
	}
	after := db.snapshot(t)
	moved, kept := len(after.Movements)-len(before.Movements), len(after.Quarantined)-len(before.Quarantined)
	if (moved == 1) != (h.outcome == applied) || (kept == 1) != (h.outcome == quarantined) || moved+kept > 1 {
		t.Errorf("%d movements and %d quarantined messages more", moved, kept)
	}
	unchanged := func(q spannerstore.QuarantineRow) bool {
		return string(q.Data) == h.kept && q.Reason == payout.ReasonUnsupportedEvent
	}
	if h.reason == unsupported && !slices.ContainsFunc(after.Quarantined, unchanged) {
		t.Error("not quarantined unchanged")
	}
	return after
}

// runHostile sends all requests to one function, one after another.
func runHostile(t *testing.T, all []hostileRequest) {
	t.Helper()
	db := newDatabase(t)
	f := startFunction(t, db.env(emulatortest.Spanner(t).GRPC)...)
	rows := db.snapshot(t)
	for _, h := range all {
		t.Run(h.name, func(t *testing.T) { rows = h.check(t, f, db, rows) })
	}
	if a := f.deliver(t.Context(), "last", plain); a.Outcome != applied {
		t.Errorf("the next valid payout: %d %s %s", a.Status, a.Body, a.Error)
	}
	if log := f.log.all(); strings.Contains(log, "panic") || strings.Contains(log, "CRITICAL") {
		t.Errorf("logged %s", f.log)
	}
}

// settles expects a settlement.
func settles(name, request string) hostileRequest {
	return hostileRequest{name: name, request: request, status: 200, outcome: applied}
}

// isKept expects that the body is quarantined unchanged, since it is no Pub/Sub message.
func isKept(name, request, body string) hostileRequest {
	return hostileRequest{name: name, request: request, status: 200, outcome: quarantined, reason: unsupported, kept: body}
}

// isRejected expects that the function answers an error and stores nothing.
func isRejected(name, request string, status int) hostileRequest {
	return hostileRequest{name: name, request: request, status: status, outcome: unknown}
}

// isRefused expects that net/http or the framework answers.
func isRefused(name, request string, status int) hostileRequest {
	return hostileRequest{name: name, request: request, status: status}
}

// The content type matters only if it says that the body is an event.
func TestContentTypes(t *testing.T) {
	t.Parallel()
	var r requests
	var all []hostileRequest
	for _, kind := range []string{
		"text/plain", "application/octet-stream", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
		"application/json; charset=utf-16", "application/xml", "image/png", ";;;", "", "application/cloudevents", "a/b, c/d",
	} {
		all = append(all, settles("a payout as "+kind, posted("Content-Type: "+kind+"\r\n", r.push())))
	}
	all = append(all, settles("a payout of two types", posted("Content-Type: text/plain\r\nContent-Type: application/cloudevents+json\r\n", r.push())))
	for _, kind := range []string{
		"application/cloudevents+json", "application/cloudevents+json; charset=UTF-8", "APPLICATION/CLOUDEVENTS+JSON", "application/cloudevents-batch+json",
	} {
		body := r.push()
		all = append(all, isKept("no event, as "+kind, posted("Content-Type: "+kind+"\r\n", body), body))
	}
	for kind, body := range map[string]string{
		"application/xml":                   "<payout/>",
		"application/x-www-form-urlencoded": "settlement_id=stl-1&amount_cents=1",
		"multipart/form-data; boundary=x":   "--x\r\nContent-Disposition: form-data; name=a\r\n\r\n{}\r\n--x--\r\n",
		"application/protobuf":              "\x0a\x03stl",
	} {
		all = append(all, isKept("another body, as "+kind, posted("Content-Type: "+kind+"\r\n", body), body))
	}
	compressed := gzipped(t, r.push())
	all = append(
		all,
		isKept("compressed", posted("Content-Encoding: gzip\r\n", compressed), compressed),
		settles("compressed by name only", posted("Content-Encoding: gzip\r\n", r.push())),
	)
	runHostile(t, all)
}

func TestHostileHeaders(t *testing.T) {
	t.Parallel()
	var r requests
	otherType := func(changes ...string) string { return binaryEvent(append(changes, "Ce-Type", "other")...) }
	var extensions strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&extensions, "Ce-Extension%d: %d\r\n", i, i)
	}
	all := []hostileRequest{
		settles("1,000 extensions", posted(binaryEvent()+extensions.String(), r.push())),
		settles("900 KiB", posted("X-Filler: "+strings.Repeat("x", 900<<10)+"\r\n", r.push())),
		isRefused("over 1 MiB", posted("X-Filler: "+strings.Repeat("x", 1<<20+8<<10)+"\r\n", r.push()), 431),
		isRefused("over 1 MiB of small headers", posted(strings.Repeat("X-Filler: x\r\n", 100_000), r.push()), 431),
		isKept("1 MiB, kept", posted(otherType("Ce-Subject", strings.Repeat(`"`, 1<<20-4096)), "1"), "1"),
		isKept("1,000 extensions, kept", posted(otherType()+extensions.String(), "2"), "2"),
		isKept("invalid UTF-8, kept", posted(otherType("Ce-Id", strings.Repeat("a\xff", 512), "Ce-Subject", "\xff\xfe"), "3"), "3"),
		isKept("an extension without a name", posted(otherType("Ce-", "x"), "4"), "4"),
		settles("an enormous event ID", posted(binaryEvent("Ce-Id", strings.Repeat("7", 500<<10)), r.push())),
		settles("an enormous URL", strings.Replace(posted("", r.push()), "POST /", "POST /?"+strings.Repeat("x", 500<<10), 1)),
		isRefused("NUL in a value", posted("Ce-Id: 7\x00\r\n", r.push()), 400),
		isRefused("NUL in a name", posted("Ce\x00-Id: 7\r\n", r.push()), 400),
		isRefused("a control character in a value", posted("Ce-Id: 7\x01\r\n", r.push()), 400),
		isRefused("a space before the colon", posted("Ce-Id : 7\r\n", r.push()), 400),
		isRefused("a line without a colon", posted("Ce-Id\r\n", r.push()), 400),
		isRefused("no host", strings.Replace(posted("", r.push()), "Host: f\r\n", "", 1), 400),
		isRefused("two hosts", posted("Host: g\r\n", r.push()), 400),
	}
	runHostile(t, all)
}

// docs/message.md has the same table.
func TestRequestsThatAreNoMessages(t *testing.T) {
	t.Parallel()
	var r requests
	kept := func(name, body string) hostileRequest { return isKept(name, posted("", body), body) }
	storage, largest := r.push(), strings.Repeat("x", settle.MaxQuarantineBytes)
	runHostile(t, []hostileRequest{
		kept("not an event", "hello"),
		kept("empty body", ""),
		isKept("an event of another type", posted(binaryEvent("Ce-Type", "google.cloud.storage.object.v1.finalized"), storage), storage),
		kept("no message", `{"subscription":"s"}`),
		kept("bad base64", `{"message":{"messageId":"2","data":"%%%"}}`),
		kept("10 MiB, more than a message can have", largest),
		isRejected("over 10 MiB, more than a row can hold", posted("", largest+"x"), 413),
		isRejected("17 MiB", posted("", strings.Repeat("x", 17<<20)), 413),
	})
}

// Attributes, IDs and all other members of a message but its data.
func TestHostileAttributes(t *testing.T) {
	t.Parallel()
	var r requests
	attributes := func(n int, value string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"a%d":"%s"`, i, value)
		}
		return `"attributes":{` + b.String()[1:] + `}`
	}
	const nul = `"attributes":{"\u0000":"\u0000","a\u0000b":"\u0000x"},"messageId":"7\u0000","orderingKey":"\u0000","publishTime":"\u0000"`
	broken := func(members string) string {
		r.n++
		return fmt.Sprintf(`{"message":{"data":"eHg=","messageId":"x%d",%s},"subscription":"s\u0000"}`, r.n, members)
	}
	kept := func(name, body string) hostileRequest { return isKept(name, posted("", body), body) }
	notJSON := func(name, body string) hostileRequest {
		return hostileRequest{name: name, request: posted("", body), status: 200, outcome: quarantined, reason: "not_json"}
	}
	all := []hostileRequest{
		settles("1,000 attributes", posted("", r.with(attributes(1000, "v")))),
		kept("1,000 attributes of 200 bytes", r.with(attributes(1000, strings.Repeat("v", 200)))),
		notJSON("1,000 attributes of an invalid payout", broken(attributes(1000, `\u0001\"`))),
		settles("NUL in all of a payout", posted("", r.bare(nul))),
		notJSON("NUL in all of an invalid payout", broken(strings.Replace(nul, `"messageId":"7\u0000",`, "", 1))),
		kept("a NUL byte", strings.Replace(r.push(), `"subscription":"`, "\"subscription\":\"\x00", 1)),
		kept("a NUL byte at the end", r.push()+"\x00"),
		{name: "NUL in a settlement ID", request: posted("", push("9", `{"settlement_id":"a\u0000","account_id":"a","amount_cents":1}`)), status: 200, outcome: quarantined, reason: "invalid_field"},
		settles("the longest message ID", posted("", r.bare(`"messageId":"`+strings.Repeat("7", 1024)+`"`))),
		kept("a longer message ID", r.bare(`"messageId":"`+strings.Repeat("7", 1025)+`"`)),
		kept("an enormous message ID", r.bare(`"messageId":"`+strings.Repeat("7", 1<<20)+`"`)),
		kept("an enormous ordering key", r.bare(`"orderingKey":"`+strings.Repeat("7", 1<<20)+`"`)),
		kept("an enormous subscription", strings.Replace(r.push(), `/s"`, `/`+strings.Repeat("s", 1<<20)+`"`, 1)),
		settles("an empty message ID", posted("", r.bare(`"messageId":""`))),
		settles("no message ID", posted("", r.bare(`"x":1`))),
		kept("a number for a message ID", r.bare(`"messageId":7`)),
		kept("half a surrogate pair in an attribute", r.with(`"attributes":{"a":"\ud83d"}`)),
		kept("an attribute twice", r.with(`"attributes":{"a":"1","\u0061":"1"}`)),
	}
	for _, when := range []string{
		"yesterday", "", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "10000-01-01T00:00:00Z",
		"9999-12-31T23:59:59-01:00", "2026-02-30T00:00:00Z", "2026-12-31T23:59:60Z", "1796040000", "2026-11-29 12:00:00",
	} {
		all = append(all, settles("published at "+when, posted("", r.bare(`"publishTime":"`+when+`"`))))
	}
	all = append(all, kept("a number for the publish time", r.bare(`"publishTime":1796040000`)))
	for _, n := range []string{"-1", "0", "-9223372036854775808", "2147483648", "9223372036854775807", "null"} {
		all = append(all, settles("attempt "+n, posted("", strings.TrimSuffix(r.bare(`"messageId":"7"`), "}")+`,"deliveryAttempt":`+n+"}")))
	}
	for _, n := range []string{"9223372036854775808", "1e400", "1e3", "1.5", `"3"`, "[]"} {
		all = append(all, kept("attempt "+n, strings.TrimSuffix(r.bare(`"messageId":"7"`), "}")+`,"deliveryAttempt":`+n+"}"))
	}
	runHostile(t, all)
}

// Content lengths and chunks.
func TestHostileLengths(t *testing.T) {
	t.Parallel()
	var r requests
	length := func(line string) string {
		return strings.Replace(posted("", r.push()), "Content-Length: ", line+"\r\nX-Length: ", 1)
	}
	cut := r.push()
	half := cut[:len(cut)/2]
	const end = "0\r\n\r\n"
	all := []hostileRequest{
		isKept("shorter than the body", fmt.Sprintf("POST / HTTP/1.1\r\nHost: f\r\nContent-Length: %d\r\n\r\n%s", len(half), cut), half),
		{name: "longer than the body", request: fmt.Sprintf("POST / HTTP/1.1\r\nHost: f\r\nContent-Length: %d\r\n\r\n%s", len(cut)+9, cut), closes: true, status: 400, outcome: unknown},
		isKept("none", "POST / HTTP/1.1\r\nHost: f\r\n\r\n", ""),
		isRefused("negative", length("Content-Length: -1"), 400),
		isRefused("with a sign", length("Content-Length: +5"), 400),
		isRefused("hexadecimal", length("Content-Length: 0x5"), 400),
		isRefused("a word", length("Content-Length: all"), 400),
		isRefused("two in one", length("Content-Length: 5, 6"), 400),
		isRefused("two that differ", length("Content-Length: 5\r\nContent-Length: 6"), 400),
		isRefused("past int64", length("Content-Length: 99999999999999999999"), 400),
		isRejected("an exbibyte", length("Content-Length: 1152921504606846976"), 413),
		isRejected("one byte over 16 MiB", length("Content-Length: 16777217"), 413),

		settles("chunks", chunks("", r.push(), 64, "", end)),
		settles("chunks of a byte", chunks("", r.push(), 1, "", end)),
		settles("chunks with extensions", chunks("", r.push(), 64, `;a="b"`, end)),
		settles("chunks with a trailer", chunks("Trailer: X-Sum\r\n", r.push(), 64, "", "0\r\nX-Sum: 7\r\n\r\n")),
		settles("chunks with a trailer that is an event", chunks("", r.push(), 64, "", "0\r\nCe-Type: other\r\nCe-Specversion: 1.0\r\n\r\n")),
		settles("leading zeros", strings.Replace(chunks("", r.push(), 4096, "", end), "\r\n\r\n", "\r\n\r\n0000", 1)),
		{name: "truncated chunks", request: chunks("", r.push(), 64, "", ""), closes: true, status: 400, outcome: unknown},
		{name: "a truncated chunk", request: chunks("", "", 1, "", "40\r\nabc"), closes: true, status: 400, outcome: unknown},
		isRejected("no hexadecimal size", chunks("", "", 1, "", "xyz\r\n"), 400),
		isRejected("a negative size", chunks("", "", 1, "", "-1\r\n"), 400),
		isRejected("a size past int64", chunks("", "", 1, "", "fffffffffffffffff\r\n"), 400),
		isRejected("no line end after a chunk", chunks("", "", 1, "", "2\r\n{}xyz"), 400),
		isRejected("a long line of a size", chunks("", "", 1, "", "2;"+strings.Repeat("x", 8<<10)+"\r\n{}\r\n"+end), 400),
		isRejected("more extensions than data", chunks("", strings.Repeat(" ", 4<<10), 1, ";"+strings.Repeat("x", 1<<10), end), 400),
		isRejected("an endless trailer", chunks("", "{}", 2, "", "0\r\n"+strings.Repeat("X: x\r\n", 10_000)+"\r\n"), 400),
		isRejected("over 16 MiB", chunks("", strings.Repeat(" ", 16<<20+1), 1<<20, "", end), 413),
		settles("a length beside them", strings.Replace(chunks("", r.push(), 64, "", end), "\r\n", "\r\nContent-Length: 3\r\n", 1)),
		isRefused("compressed and chunked", strings.Replace(chunks("", r.push(), 64, "", end), "chunked", "gzip, chunked", 1), 501),
		isRefused("identity", strings.Replace(posted("", r.push()), "Host", "Transfer-Encoding: identity\r\nHost", 1), 501),
		isRefused("chunked twice", strings.Replace(chunks("", r.push(), 64, "", end), "chunked", "chunked, chunked", 1), 501),
		settles("expected and continued", posted("Expect: 100-continue\r\n", r.push())),
		isRefused("an unknown expectation", posted("Expect: payment\r\n", r.push()), 417),
	}
	runHostile(t, all)
}

func TestMethodsAndPaths(t *testing.T) {
	t.Parallel()
	var r requests
	line := func(line string) string { return strings.Replace(posted("", r.push()), "POST / HTTP/1.1", line, 1) }
	var all []hostileRequest
	for _, method := range []string{"GET", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PURGE", "post", "M-SEARCH"} {
		all = append(all, isRejected(method, line(method+" / HTTP/1.1"), 405))
	}
	all = append(
		all,
		isRefused("HEAD", line("HEAD / HTTP/1.1"), 405), // has no body
		settles("another path", line("POST /some/where?settlement_id=other#x HTTP/1.1")),
		settles("an escaped path", line("POST /%00%ff HTTP/1.1")),
		settles("a whole URL", line("POST http://elsewhere.example/ HTTP/1.1")),
		settles("HTTP/1.0", line("POST / HTTP/1.0")),
		isRefused("a path with two slashes", line("POST // HTTP/1.1"), 307),
		isRefused("a path that climbs", line("POST /a/../b HTTP/1.1"), 307),
		isRefused("HTTP/3.0", line("POST / HTTP/3.0"), 505),
		isRefused("no version", line("POST /"), 400),
		isRefused("a space in the path", line("POST /a b HTTP/1.1"), 400),
		isRefused("NUL in the path", line("POST /\x00 HTTP/1.1"), 400),
		isRefused("NUL in the method", line("PO\x00ST / HTTP/1.1"), 400),
		isRefused("a bad escape", line("POST /%zz HTTP/1.1"), 400),
		isRefused("no request", "settle this, please\r\n\r\n", 400),
		isRefused("TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
	)
	runHostile(t, all)
}

// The framework's server has no read timeout; without the function's own timeout these
// requests would never end.
func TestStalledBodyTimesOut(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	f := startFunction(t, db.env(emulatortest.Spanner(t).GRPC)...)
	body := push("1", plain)
	stalled := map[string]string{
		"a body":            fmt.Sprintf("POST / HTTP/1.1\r\nHost: f\r\nContent-Length: %d\r\n\r\n%s", len(body)+1, body),
		"chunks":            chunks("", body, 64, "", ""),
		"of another method": "PUT / HTTP/1.1\r\nHost: f\r\nContent-Length: 9\r\n\r\n",
	}
	answers := make(chan string, len(stalled))
	for name, request := range stalled {
		go func() {
			a := f.sendRaw(t.Context(), request, false)
			answers <- fmt.Sprintf("%s: %d %s", name, a.Status, a.Error)
		}()
	}
	if a := f.deliver(t.Context(), "2", strings.Replace(plain, "stl-8472", "stl-1", 1)); a.Outcome != applied {
		t.Errorf("beside the stalled ones: %d %s", a.Status, a.Body)
	}
	got := map[string]bool{}
	for range stalled {
		got[<-answers] = true
	}
	const slow = "408 the body did not arrive in time; Pub/Sub redelivers it"
	for _, want := range []string{"a body: " + slow, "chunks: " + slow, "of another method: 405 only POST is answered"} {
		if !got[want] {
			t.Errorf("no %q among %v", want, got)
		}
	}
	if all := db.snapshot(t); len(all.Movements) != 1 || len(all.Quarantined) != 0 {
		t.Errorf("stored %+v", all)
	}
}
