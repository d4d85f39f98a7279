package bank

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// The client's time limit in rows where the bank hangs: long enough for a connection
// and a handshake on a busy machine.
const hangTimeout = time.Second

const headOK = "HTTP/1.1 201 Created\r\n"

func chunked(pieces ...string) string {
	var b strings.Builder
	b.WriteString(headOK + "Transfer-Encoding: chunked\r\n\r\n")
	for _, piece := range pieces {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(piece), piece)
	}
	return b.String()
}

func lengthOf(body string, more int) string {
	return fmt.Sprintf(headOK+"Content-Length: %d\r\n\r\n%s", len(body)+more, body)
}

// answered is the stored answer of a send with goodTransfer.
func answered(status int, word string) transfer.BankAnswer {
	return transfer.BankAnswer{HTTPStatus: status, TransferID: "tr-1", Status: word}
}

// sendRow is a row of the table of sends after the first.
type sendRow struct {
	name    string
	answer  script
	earlier bool
	hangs   bool
	want    transfer.SendClass
	// kept: nil is not compared.
	kept *transfer.BankAnswer
}

func kept(a transfer.BankAnswer) *transfer.BankAnswer { return &a }

func sendRows() []sendRow {
	half := goodTransfer[:len(goodTransfer)/2]
	big := strings.Repeat(" ", 5<<20)
	rows := []sendRow{
		// Header written, then anything broke.
		{name: "reset", answer: reset},
		{name: "closed", answer: cut},
		{name: "hang", answer: hang, hangs: true},
		{name: "hang in the header", answer: then("HTTP/1.1 201 Cre", hang), hangs: true},
		{name: "hang in the body", answer: then(lengthOf(half, 200), hang), hangs: true},
		{name: "garbage", answer: say("SSH-2.0-OpenSSH_9.9\r\n\r\n")},
		{name: "status 000", answer: say("HTTP/1.1 000 Nothing\r\nContent-Length: 0\r\n\r\n")},
		{name: "header over its limit", answer: say(headOK + "X: " + strings.Repeat("x", 80<<10) + "\r\n\r\n")},
		{name: "1xx then close", answer: then("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", cut)},
		{name: "100 then close", answer: then("HTTP/1.1 100 Continue\r\n\r\n", cut)},
		{name: "101", answer: then("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", cut)},

		// Accepted.
		{
			name: "201", answer: reply(201, "Content-Type: application/json\r\n", goodTransfer), want: transfer.SendAccepted,
			kept: kept(answered(201, "ACCP")),
		},
		{
			name: "200 replayed", answer: reply(200, "Idempotent-Replayed: true\r\n", withStatus("ACSC")), want: transfer.SendAccepted,
			kept: kept(answered(200, "ACSC")),
		},
		{name: "after an earlier send", answer: reply(200, "", goodTransfer), earlier: true, want: transfer.SendAccepted},
		{name: "1xx then 201", answer: then("HTTP/1.1 103 Early Hints\r\n\r\n", reply(201, "", goodTransfer)), want: transfer.SendAccepted},
		{name: "more members", answer: reply(201, "", with(`"status"`, `"new":{"x":[1]},"status"`)), want: transfer.SendAccepted},
		{name: "white space around", answer: reply(201, "", "\r\n "+goodTransfer+" \n"), want: transfer.SendAccepted},
		{name: "content type is not trusted", answer: reply(201, "Content-Type: text/html\r\n", goodTransfer), want: transfer.SendAccepted},
		{name: "chunked", answer: say(chunked(half, goodTransfer[len(half):]) + "0\r\n\r\n"), want: transfer.SendAccepted},
		{name: "a word that is final", answer: reply(201, "", withStatus("RJCT")), want: transfer.SendAccepted},

		// Echoed otherwise.
		{name: "other amount", answer: reply(201, "", with("4731", "4732")), want: transfer.SendManual},
		{name: "amount too large for an int64", answer: reply(201, "", with("4731", "47310000000000000000000")), want: transfer.SendManual},
		{name: "other currency", answer: reply(201, "", with("USD", "EUR")), want: transfer.SendManual},
		{
			name: "other creditor", answer: reply(201, "", with("cp-19", "cp-20")), want: transfer.SendManual,
			kept: kept(transfer.BankAnswer{HTTPStatus: 201, TransferID: "tr-1", Status: "ACCP", Detail: "the bank's transfer differs from ours in creditor"}),
		},
		{name: "other amount and unknown word", answer: reply(201, "", strings.Replace(withStatus("NEWWORD"), "4731", "1", 1)), want: transfer.SendManual},

		// 2xx otherwise.
		{name: "truncated, Content-Length", answer: then(lengthOf(half, len(goodTransfer)-len(half)), cut)},
		{name: "whole JSON but fewer bytes than announced", answer: then(lengthOf(goodTransfer, 10), cut)},
		{name: "truncated, chunked", answer: then(chunked(half), cut)},
		{name: "whole JSON but no last chunk", answer: then(chunked(goodTransfer), cut)},
		{name: "truncated, until close", answer: say(headOK + "\r\n" + half)},
		{name: "204", answer: say("HTTP/1.1 204 No Content\r\n\r\n")},
		{name: "empty", answer: reply(201, "", "")},
		{name: "HTML", answer: reply(200, "Content-Type: text/html\r\n", "<html><body>Sign in</body></html>")},
		{name: "{}", answer: reply(200, "", "{}")},
		{name: "null", answer: reply(200, "", "null")},
		{name: "a list", answer: reply(200, "", "["+goodTransfer+"]")},
		{name: "error object", answer: reply(200, problemType, `{"type":"x","code":"insufficient_funds","status":402}`)},
		{name: "unknown word", answer: reply(201, "", withStatus("NEWWORD"))},
		{name: "the group's word", answer: reply(201, "", withStatus("PART"))},
		{name: "empty word", answer: reply(201, "", withStatus(""))},
		{name: "trailing data", answer: reply(201, "", goodTransfer+"x")},
		{name: "two values", answer: reply(201, "", goodTransfer+goodTransfer)},
		{name: "5 MiB", answer: reply(201, "", goodTransfer+big)},
		{name: "just over 1 MiB", answer: reply(201, "", goodTransfer+big[:1<<20+1-len(goodTransfer)])},
		{name: "5 MiB until close", answer: say(headOK + "\r\n" + goodTransfer + big)},
		{name: "compressed without being asked", answer: reply(201, "Content-Encoding: gzip\r\n", "\x1f\x8b\x08\x00\x00")},
		{name: "member twice", answer: reply(201, "", with(`"id"`, `"id":"tr-0","id"`))},
		{name: "another member twice", answer: reply(201, "", with(`"id"`, `"x":1,"x":2,"id"`))},
		{name: "no id", answer: reply(201, "", with(`"id":"tr-1",`, ``))},
		{name: "id empty", answer: reply(201, "", with(`"tr-1"`, `""`))},
		{name: "id null", answer: reply(201, "", with(`"tr-1"`, `null`))},
		{name: "id a number", answer: reply(201, "", with(`"tr-1"`, `1`))},
		{name: "other case", answer: reply(201, "", with(`"status"`, `"Status"`))},
		{name: "other key", answer: reply(201, "", with("bcb7c10c", "00000000"))},
		{name: "other key, amount too", answer: reply(201, "", strings.Replace(with("bcb7c10c", "00000000"), "4731", "1", 1)), kept: kept(transfer.BankAnswer{HTTPStatus: 201, Detail: errOtherKey.Error()})},
		{name: "no key", answer: reply(201, "", with(`"client_reference":"bcb7c10c-019a-5ca0-b0b1-23cf6e23a1a6",`, ""))},
		{name: "amount with a point", answer: reply(201, "", with("4731", "4731.0"))},
		{name: "amount scaled", answer: reply(201, "", with("4731", "47.31"))},
		{name: "amount with an exponent", answer: reply(201, "", with("4731", "4731e0"))},
		{name: "amount negative", answer: reply(201, "", with("4731", "-4731"))},
		{name: "amount a string", answer: reply(201, "", with("4731", `"4731"`))},
		{name: "invalid UTF-8", answer: reply(201, "", with("tr-1", "tr-\xff"))},

		// Refusals.
		{
			name: "listed, after an earlier send", answer: refuse(422, "insufficient_funds"), earlier: true,
			kept: kept(transfer.BankAnswer{HTTPStatus: 422, Detail: "a listed refusal, after an earlier send that may have reached the bank"}),
		},
		{name: "listed 403, after an earlier send", answer: refuse(403, "creditor_account_closed"), earlier: true},
		{name: "not listed", answer: refuse(422, "idempotency_key_reused")},
		{name: "duplicate", answer: refuse(400, "duplicate_request")},
		{name: "listed, but HTML", answer: reply(400, "Content-Type: text/html\r\n", `{"code":"insufficient_funds"}`)},
		{name: "listed, but no content type", answer: reply(400, "", `{"code":"insufficient_funds"}`)},
		{name: "listed, but plain JSON", answer: reply(400, "Content-Type: application/json\r\n", `{"code":"insufficient_funds"}`)},
		{name: "listed, but truncated", answer: then("HTTP/1.1 400 Bad Request\r\n"+problemType+"Content-Length: 99\r\n\r\n"+`{"code":"insufficient_funds"}`, cut)},
		{name: "listed, but trailing data", answer: reply(400, problemType, `{"code":"insufficient_funds"}}`)},
		{name: "listed, but twice", answer: reply(400, problemType, `{"code":"x","code":"insufficient_funds"}`)},
		{name: "listed, but of another status", answer: reply(400, problemType, `{"status":409,"code":"insufficient_funds"}`)},
		{name: "listed, but inside", answer: reply(400, problemType, `{"error":{"code":"insufficient_funds"}}`)},
		{name: "listed, but null", answer: reply(400, problemType, `null`)},
		{name: "400 empty", answer: reply(400, "", "")},
		{name: "402 HTML", answer: reply(402, "Content-Type: text/html\r\n", "<html>")},
		{name: "type listed", answer: reply(422, problemType, `{"type":"insufficient_funds","title":"x"}`), want: transfer.SendRejected},
		{name: "with a charset", answer: reply(422, "Content-Type: Application/Problem+JSON; charset=utf-8\r\n", `{"code":"insufficient_funds"}`), want: transfer.SendRejected},

		// Held.
		{name: "401", answer: reply(401, "", ""), want: transfer.SendHeld, kept: kept(transfer.BankAnswer{HTTPStatus: 401, Detail: "HTTP status 401"})},
		{name: "401 with a listed code", answer: refuse(401, "insufficient_funds"), want: transfer.SendHeld},
		{name: "403", answer: reply(403, "", "forbidden"), want: transfer.SendHeld},
		{name: "403 with another code", answer: refuse(403, "forbidden"), want: transfer.SendHeld},
		{name: "403, after an earlier send", answer: refuse(403, "forbidden"), earlier: true, want: transfer.SendHeld},

		// Later.
		{
			name: "429", answer: reply(429, "Retry-After: 7\r\n", ""), want: transfer.SendRetryLater,
			kept: kept(transfer.BankAnswer{HTTPStatus: 429, RetryAfter: 7 * time.Second, Detail: "HTTP status 429"}),
		},
		{
			name: "425", answer: reply(425, "Retry-After: Sun, 29 Nov 2026 12:01:30 GMT\r\n", ""), want: transfer.SendRetryLater,
			kept: kept(transfer.BankAnswer{HTTPStatus: 425, RetryAfter: 90 * time.Second, Detail: "HTTP status 425"}),
		},
		{name: "429 with an endless body", answer: then("HTTP/1.1 429 Too Many Requests\r\n\r\nx", hang), want: transfer.SendRetryLater},
		{
			name: "503", answer: reply(503, "Retry-After: 120\r\n", ""),
			kept: kept(transfer.BankAnswer{HTTPStatus: 503, RetryAfter: 2 * time.Minute, Detail: "HTTP status 503"}),
		},
		{name: "500 with a listed code", answer: refuse(500, "insufficient_funds")},
		{name: "500 with a transfer", answer: reply(500, "", goodTransfer)},
		// At some banks 409 means that the transfer exists.
		{name: "409 with a transfer", answer: reply(409, "", goodTransfer)},
		{name: "409 without a body", answer: reply(409, "", "")},
	}
	for _, status := range []int{400, 402, 403, 422} {
		rows = append(rows, sendRow{name: fmt.Sprintf("%d listed", status), answer: refuse(status, "insufficient_funds"), want: transfer.SendRejected})
	}
	for _, status := range []int{413, 414, 431} {
		rows = append(rows, sendRow{name: fmt.Sprint(status), answer: reply(status, "", ""), want: transfer.SendHeld})
	}
	for _, status := range []int{404, 405, 406, 407, 408, 409, 410, 411, 412, 415, 416, 418, 421, 423, 424, 426, 428, 451, 499} {
		rows = append(rows, sendRow{name: fmt.Sprint(status), answer: refuse(status, "insufficient_funds")})
	}
	for _, status := range []int{500, 501, 502, 504, 505, 507, 520, 599, 600, 999} {
		rows = append(rows, sendRow{name: fmt.Sprint(status), answer: reply(status, "", "")})
	}
	// A client that followed a 301 would turn the POST into a GET that ends in 200.
	for _, status := range []int{300, 301, 302, 303, 304, 305, 307, 308} {
		rows = append(rows,
			sendRow{name: fmt.Sprint(status), answer: reply(status, "Location: /v1/credit-transfers\r\n", "")},
			sendRow{name: fmt.Sprintf("%d without Location", status), answer: reply(status, "", goodTransfer)})
	}
	return rows
}

// TestSendTable has the table of sends without its first row, which TestNotSent has.
func TestSendTable(t *testing.T) {
	t.Parallel()
	overPlainAndTLS(t, func(t *testing.T, secure bool) {
		for _, row := range sendRows() {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				bank := serve(t, secure, row.answer)
				config := testConfig(bank.url)
				if row.hangs {
					config.SendTimeout = hangTimeout
				}
				request := sendRequest()
				request.EarlierMayHaveReached = row.earlier
				got := newClient(t, config).Send(t.Context(), request)
				if got.Class != row.want {
					t.Errorf("class %v, want %v; answer %+v", got.Class, row.want, got.Answer)
				}
				if row.kept != nil {
					if diff := cmp.Diff(*row.kept, got.Answer); diff != "" {
						t.Errorf("answer (-want +got):\n%s", diff)
					}
				}
				checkDetail(t, got.Answer.Detail)
				if n := len(bank.stop()); n != 1 {
					t.Errorf("the bank processed %d requests, want 1", n)
				}
			})
		}
	})
}

type statusRow struct {
	name   string
	answer script
	hangs  bool
	want   transfer.StatusReading
	kept   *transfer.BankAnswer
}

func statusRows() []statusRow {
	ok := func(body string) script { return reply(200, "Content-Type: application/json\r\n", body) }
	half := list(goodTransfer)[:60]
	withReason := func(word, reason string) string {
		return list(with(`"ACCP"`, `"`+word+`","reason":`+reason))
	}
	rows := []statusRow{
		{name: "rejected as duplicate", answer: ok(withReason("RJCT", `"DUPL"`)), want: transfer.StatusAttention},
		{name: "rejected as duplicate, other code", answer: ok(withReason("RJCT", `"AM05"`)), want: transfer.StatusAttention},
		{name: "rejected for another reason", answer: ok(withReason("RJCT", `"AC04"`)), want: transfer.StatusRejected},
		{name: "reason null", answer: ok(withReason("RJCT", `null`)), want: transfer.StatusRejected},
		{name: "reason of another kind", answer: ok(withReason("RJCT", `{"code":"DUPL"}`))},
		{name: "confirmed with such a reason", answer: ok(withReason("ACSC", `"DUPL"`)), want: transfer.StatusConfirmed},
		{
			name: "unknown word", answer: ok(list(withStatus("NEWWORD"))), want: transfer.StatusPending,
			kept: kept(transfer.BankAnswer{HTTPStatus: 200, TransferID: "tr-1", Status: "NEWWORD", Detail: detailUnknownWord}),
		},
		{
			name: "a sentence as the word", answer: ok(list(withStatus("paid to cp-19"))), want: transfer.StatusPending,
			kept: kept(transfer.BankAnswer{HTTPStatus: 200, TransferID: "tr-1", Detail: detailUnknownWord}),
		},
		{name: "the group's word", answer: ok(list(withStatus("PART"))), want: transfer.StatusPending},
		{name: "word in lower case", answer: ok(list(withStatus("rjct"))), want: transfer.StatusPending},

		{
			name: "empty list", answer: ok(list()), want: transfer.StatusNotFound,
			kept: kept(transfer.BankAnswer{HTTPStatus: 200}),
		},
		{name: "404 with the code", answer: refuse(404, "transfer_not_found"), want: transfer.StatusNotFound},
		{name: "404 with the code as type", answer: reply(404, problemType, `{"type":"transfer_not_found"}`), want: transfer.StatusNotFound},

		{name: "two transfers", answer: ok(list(goodTransfer, with("tr-1", "tr-2"))), want: transfer.StatusManual},
		{name: "other amount", answer: ok(list(with("4731", "4732"))), want: transfer.StatusManual},
		{name: "other currency", answer: ok(list(with("USD", "EUR"))), want: transfer.StatusManual},
		{name: "other creditor", answer: ok(list(with("cp-19", "cp-20"))), want: transfer.StatusManual},
		{
			name: "confirmed, but all differs", answer: ok(list(`{"id":"tr-1","client_reference":"bcb7c10c-019a-5ca0-b0b1-23cf6e23a1a6","amount_minor":1,"currency":"JPY","creditor_account":"x","status":"ACSC"}`)),
			want: transfer.StatusManual,
			kept: kept(transfer.BankAnswer{HTTPStatus: 200, TransferID: "tr-1", Status: "ACSC", Detail: "the bank's transfer differs from ours in amount, currency, creditor"}),
		},

		{name: "404 plain", answer: reply(404, "", "404 page not found\n")},
		{name: "404 HTML", answer: reply(404, "Content-Type: text/html\r\n", "<html>")},
		{name: "404 with another code", answer: refuse(404, "no_such_route")},
		{name: "404 with the code, but plain JSON", answer: reply(404, "Content-Type: application/json\r\n", `{"code":"transfer_not_found"}`)},
		{name: "404 with the code, but truncated", answer: then("HTTP/1.1 404 Not Found\r\n"+problemType+"Content-Length: 99\r\n\r\n"+`{"code":"transfer_not_found"}`, cut)},
		{name: "400 with the code", answer: refuse(400, "transfer_not_found")},
		{name: "410 with the code", answer: refuse(410, "transfer_not_found")},
		{
			name: "429", answer: reply(429, "Retry-After: 5\r\n", ""),
			kept: kept(transfer.BankAnswer{HTTPStatus: 429, RetryAfter: 5 * time.Second, Detail: "HTTP status 429"}),
		},
		{name: "201 with a transfer", answer: reply(201, "", list(withStatus("ACSC")))},
		{name: "204", answer: say("HTTP/1.1 204 No Content\r\n\r\n")},
		{name: "206 with an empty list", answer: reply(206, "", list())},
		{name: "reset", answer: reset},
		{name: "closed", answer: cut},
		{name: "hang", answer: hang, hangs: true},
		{name: "hang in the body", answer: then("HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"+half, hang), hangs: true},
		{name: "1xx then close", answer: then("HTTP/1.1 103 Early Hints\r\n\r\n", cut)},
		{name: "garbage", answer: say("hello?\r\n\r\n")},
		{name: "truncated, Content-Length", answer: then("HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"+list(withStatus("ACSC")), cut)},
		{name: "truncated, chunked", answer: then("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n12\r\n"+list()+"\r\n", cut)},
		{name: "truncated, until close", answer: say("HTTP/1.1 200 OK\r\n\r\n" + half)},
		{name: "empty", answer: ok("")},
		{name: "HTML", answer: reply(200, "Content-Type: text/html\r\n", "<html>")},
		{name: "{}", answer: ok("{}")},
		{name: "null", answer: ok("null")},
		{name: "a bare list", answer: ok("[]")},
		{name: "list null", answer: ok(`{"transfers":null}`)},
		{name: "list an object", answer: ok(`{"transfers":{}}`)},
		{name: "list twice", answer: ok(`{"transfers":[],"transfers":[]}`)},
		{name: "trailing data", answer: ok(list() + "]")},
		{name: "error object", answer: ok(`{"error":{"code":"transfer_not_found"}}`)},
		{name: "empty transfer", answer: ok(list("{}"))},
		{name: "null transfer", answer: ok(list("null"))},
		{name: "one good, one broken", answer: ok(list(goodTransfer, "{}")), want: transfer.StatusManual},
		{name: "no id", answer: ok(list(with(`"id":"tr-1",`, "")))},
		{name: "other key", answer: ok(list(with("bcb7c10c", "00000000")))},
		{name: "amount with a point", answer: ok(list(with("4731", "4731.0")))},
		{name: "5 MiB", answer: ok(list() + strings.Repeat(" ", 5<<20))},
	}
	for reading, words := range map[transfer.StatusReading]string{
		transfer.StatusPending:   "RCVD PDNG ACTC PATC ACCP ACFC ACSP ACWC ACWP",
		transfer.StatusConfirmed: "ACSC ACCC",
		transfer.StatusRejected:  "RJCT CANC",
		transfer.StatusReturned:  "RETURNED",
		transfer.StatusAttention: "BLCK",
	} {
		for word := range strings.FieldsSeq(words) {
			answer := answered(200, word)
			rows = append(rows, statusRow{name: word, answer: ok(list(withStatus(word))), want: reading, kept: &answer})
		}
	}
	for _, status := range []int{400, 401, 403, 405, 408, 409, 422, 500, 502, 503, 504} {
		rows = append(rows, statusRow{name: fmt.Sprint(status), answer: reply(status, "", list(withStatus("RJCT")))})
	}
	for _, status := range []int{301, 302, 303, 307, 308} {
		rows = append(rows, statusRow{name: fmt.Sprint(status), answer: reply(status, "Location: /v1/credit-transfers\r\n", list())})
	}
	return rows
}

func TestStatusTable(t *testing.T) {
	t.Parallel()
	overPlainAndTLS(t, func(t *testing.T, secure bool) {
		for _, row := range statusRows() {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				bank := serve(t, secure, row.answer)
				config := testConfig(bank.url)
				if row.hangs {
					config.StatusTimeout = hangTimeout
				}
				got := newClient(t, config).Status(t.Context(), statusRequest())
				if got.Reading != row.want {
					t.Errorf("reading %v, want %v; answer %+v", got.Reading, row.want, got.Answer)
				}
				if row.kept != nil {
					if diff := cmp.Diff(*row.kept, got.Answer); diff != "" {
						t.Errorf("answer (-want +got):\n%s", diff)
					}
				}
				checkDetail(t, got.Answer.Detail)
				if n := len(bank.stop()); n != 1 {
					t.Errorf("the bank processed %d requests, want 1", n)
				}
			})
		}
	})
}

func TestNotFoundOnlyAsTheProfileSays(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		notFound NotFound
		answer   script
		want     transfer.StatusReading
	}{
		{"empty list does not count", NotFound{ProblemCode: "gone"}, reply(200, "", list()), transfer.StatusUnknown},
		{"404 does not count", NotFound{EmptyList: true}, refuse(404, "transfer_not_found"), transfer.StatusUnknown},
		{"404 without a code", NotFound{EmptyList: true}, reply(404, problemType, `{"type":"","code":""}`), transfer.StatusUnknown},
		{"404 with its own code", NotFound{ProblemCode: "gone"}, refuse(404, "gone"), transfer.StatusNotFound},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			config := testConfig(serve(t, false, row.answer).url)
			config.Profile.NotFound = row.notFound
			if got := newClient(t, config).Status(t.Context(), statusRequest()); got.Reading != row.want {
				t.Errorf("reading %v, want %v; answer %+v", got.Reading, row.want, got.Answer)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{
		"":                               0,
		"0":                              0,
		"30":                             30 * time.Second,
		" 30 ":                           30 * time.Second,
		"86400":                          24 * time.Hour,
		"86401":                          24 * time.Hour,
		"99999999999999999999999":        24 * time.Hour,
		"-5":                             0,
		"+5":                             0,
		"1.5":                            0,
		"soon":                           0,
		"30, 60":                         0,
		"Sun, 29 Nov 2026 12:00:10 GMT":  10 * time.Second,
		"Sunday, 29-Nov-26 12:00:10 GMT": 10 * time.Second,
		"Sun Nov 29 12:00:10 2026":       10 * time.Second,
		"Sun, 29 Nov 2026 11:59:50 GMT":  0,
		"Fri, 31 Dec 9999 23:59:59 GMT":  24 * time.Hour,
		"Mon, 01 Jan 0001 00:00:00 GMT":  0,
	} {
		h := http.Header{}
		h.Set("Retry-After", value)
		if got := retryAfter(h, testNow); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}

func TestZeroValuesProveNothing(t *testing.T) {
	t.Parallel()
	c := newClient(t, testConfig("https://bank.example"))
	if got := c.readSend(sendRequest(), exchange{}); got.Class != transfer.SendUncertain {
		t.Errorf("an exchange of which nothing is known is %v", got.Class)
	}
	if got := c.readStatus(statusRequest(), exchange{}); got.Reading != transfer.StatusUnknown {
		t.Errorf("an exchange of which nothing is known reads %v", got.Reading)
	}
}

func TestCallerCancellationEndsNoExchange(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	bank := serve(t, false, func(c net.Conn, n int) bool {
		cancel()
		return reply(201, "", goodTransfer)(c, n)
	})
	if got := newClient(t, testConfig(bank.url)).Send(ctx, sendRequest()); got.Class != transfer.SendAccepted {
		t.Errorf("class %v, answer %+v", got.Class, got.Answer)
	}
	if got := newClient(t, testConfig(serve(t, false, reply(200, "", list())).url)).Status(ctx, statusRequest()); got.Reading != transfer.StatusNotFound {
		t.Errorf("reading %v, answer %+v", got.Reading, got.Answer)
	}
}
