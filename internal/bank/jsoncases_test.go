package bank

import (
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/jsoncases"
)

func transferVerdict(body []byte) jsoncases.Verdict {
	_, err := readTransfer(body)
	return verdictOf(err)
}

func listVerdict(body []byte) jsoncases.Verdict {
	_, err := readTransfers(body)
	return verdictOf(err)
}

func verdictOf(err error) jsoncases.Verdict {
	switch {
	case err == nil:
		return jsoncases.Taken
	case errors.Is(err, errNotWhole):
		return jsoncases.IllFormed
	}
	return jsoncases.OtherFault
}

// problemVerdict reads a refusal. It cannot tell a malformed problem from a problem
// that the reject list does not have.
func problemVerdict(client *Client) func([]byte) jsoncases.Verdict {
	return func(body []byte) jsoncases.Verdict {
		e := exchange{status: 422, header: http.Header{"Content-Type": {"application/problem+json"}}, body: body}
		if client.readSend(sendRequest(), e).Class == transfer.SendRejected {
			return jsoncases.Taken
		}
		return jsoncases.IllFormed
	}
}

func profileVerdict(text []byte) jsoncases.Verdict {
	_, err := ParseProfile(text)
	switch {
	case err == nil:
		return jsoncases.Taken
	case strings.Contains(err.Error(), "not JSON"), strings.Contains(err.Error(), "duplicate member"):
		return jsoncases.IllFormed
	}
	return jsoncases.OtherFault
}

// TestJSONSuite runs the cases in every place of an answer and of a profile where a
// value can stand.
func TestJSONSuite(t *testing.T) {
	place := func(name, before, after string, sound jsoncases.Verdict, read func([]byte) jsoncases.Verdict) jsoncases.Reader {
		return jsoncases.Reader{Name: name, Before: before, After: after, Sound: sound, Read: read}
	}
	profile := func(name, before, after string, sound jsoncases.Verdict) jsoncases.Reader {
		r := place("profile, "+name, before, after, sound, profileVerdict)
		r.MaxBytes = MaxProfileBytes
		return r
	}
	tr, minimal := strings.TrimSuffix(goodTransfer, "}"), strings.TrimSuffix(minimalProfile, "}")
	beforeAmount, afterAmount, _ := strings.Cut(goodTransfer, "4731")
	problem := problemVerdict(newClient(t, testConfig("https://bank.example")))
	jsoncases.Run(
		t,
		place("transfer, unknown member", tr+`,"new":`, `}`, jsoncases.Taken, transferVerdict),
		place("transfer, unknown member first", `{"new":`, `,`+strings.TrimPrefix(goodTransfer, "{"), jsoncases.Taken, transferVerdict),
		place("transfer, reason", tr+`,"reason":`, `}`, 0, transferVerdict),
		place("transfer, amount", beforeAmount, afterAmount, 0, transferVerdict),
		place("list, unknown member", `{"transfers":[],"new":`, `}`, jsoncases.Taken, listVerdict),
		place("list, transfers", `{"transfers":`, `}`, 0, listVerdict),
		place("list, in one of two transfers", `{"transfers":[`+goodTransfer+`,{"new":`, `}]}`, jsoncases.Taken, listVerdict),
		place("list, in the transfer", `{"transfers":[`+tr+`,"new":`, `}]}`, jsoncases.Taken, listVerdict),
		place("problem, unknown member", `{"code":"insufficient_funds","new":`, `}`, jsoncases.Taken, problem),
		place("problem, detail first", `{"detail":`, `,"type":"insufficient_funds"}`, jsoncases.Taken, problem),
		profile("unknown member", minimal+`,"new":`, `}`, jsoncases.OtherFault),
		profile("unknown member within", minimal+`,"statuses":{"confirmed":["paid"],"new":`, `}}`, jsoncases.OtherFault),
		profile("name", `{"name":`, strings.TrimPrefix(minimalProfile, `{"name":"bank"`), 0),
		profile("key_quoted", minimal+`,"key_quoted":`, `}`, 0),
		profile("transfer_path", minimal+`,"transfer_path":`, `}`, 0),
		profile("statuses", minimal+`,"statuses":`, `}`, 0),
		profile("confirmed words", minimal+`,"statuses":{"confirmed":`, `}}`, 0),
		profile("a confirmed word", minimal+`,"statuses":{"confirmed":[`, `]}}`, 0),
	)
}

// TestALongListCostsLittle is not parallel, because it measures memory.
func TestALongListCostsLittle(t *testing.T) {
	body := []byte(`{"transfers":[0` + strings.Repeat(",0", maxBodyBytes/2-16) + `]}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	list, err := readTransfers(body)
	runtime.ReadMemStats(&after)
	if err != nil || len(list) != 2 {
		t.Errorf("%d transfers, %v; want 2, which means more than one", len(list), err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 8*maxBodyBytes {
		t.Errorf("%d bytes allocated for a body of %d", used, len(body))
	}
}
