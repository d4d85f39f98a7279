package bank

import (
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/settleonce/settleonce/internal/jsonsuite"
	"github.com/settleonce/settleonce/internal/settle"
)

// transferVerdict reads a transfer.
func transferVerdict(body []byte) jsonsuite.Verdict {
	_, err := readTransfer(body)
	return verdictOf(err)
}

// listVerdict reads the answer to a look-up.
func listVerdict(body []byte) jsonsuite.Verdict {
	_, err := readTransfers(body)
	return verdictOf(err)
}

func verdictOf(err error) jsonsuite.Verdict {
	switch {
	case err == nil:
		return jsonsuite.Taken
	case errors.Is(err, errNotWhole):
		return jsonsuite.IllFormed
	}
	return jsonsuite.OtherFault
}

// problemVerdict reads a refusal. What is no problem and what is none that is
// listed are the same to it: nothing is proved.
func problemVerdict(client *Client) func([]byte) jsonsuite.Verdict {
	return func(body []byte) jsonsuite.Verdict {
		e := exchange{status: 422, header: http.Header{"Content-Type": {"application/problem+json"}}, body: body}
		if client.readSend(sendRequest(), e).Class == settle.SendRejected {
			return jsonsuite.Taken
		}
		return jsonsuite.IllFormed
	}
}

func profileVerdict(text []byte) jsonsuite.Verdict {
	_, err := ParseProfile(text)
	switch {
	case err == nil:
		return jsonsuite.Taken
	case strings.Contains(err.Error(), "not JSON"), strings.Contains(err.Error(), "stands twice"):
		return jsonsuite.IllFormed
	}
	return jsonsuite.OtherFault
}

// TestJSONSuite: the readers of the bank's answers and of its profile, in every
// place where a value can stand.
func TestJSONSuite(t *testing.T) {
	place := func(name, before, after string, sound jsonsuite.Verdict, read func([]byte) jsonsuite.Verdict) jsonsuite.Reader {
		return jsonsuite.Reader{Name: name, Before: before, After: after, Sound: sound, Read: read}
	}
	profile := func(name, before, after string, sound jsonsuite.Verdict) jsonsuite.Reader {
		r := place("profile, "+name, before, after, sound, profileVerdict)
		r.MaxBytes = MaxProfileBytes
		return r
	}
	transfer, minimal := strings.TrimSuffix(goodTransfer, "}"), strings.TrimSuffix(minimalProfile, "}")
	beforeAmount, afterAmount, _ := strings.Cut(goodTransfer, "4731")
	problem := problemVerdict(newClient(t, testConfig("https://bank.example")))
	jsonsuite.Run(
		t,
		place("transfer, unknown member", transfer+`,"new":`, `}`, jsonsuite.Taken, transferVerdict),
		place("transfer, unknown member first", `{"new":`, `,`+strings.TrimPrefix(goodTransfer, "{"), jsonsuite.Taken, transferVerdict),
		place("transfer, reason", transfer+`,"reason":`, `}`, 0, transferVerdict),
		place("transfer, amount", beforeAmount, afterAmount, 0, transferVerdict),
		place("list, unknown member", `{"transfers":[],"new":`, `}`, jsonsuite.Taken, listVerdict),
		place("list, transfers", `{"transfers":`, `}`, 0, listVerdict),
		place("list, in one of two transfers", `{"transfers":[`+goodTransfer+`,{"new":`, `}]}`, jsonsuite.Taken, listVerdict),
		place("list, in the transfer", `{"transfers":[`+transfer+`,"new":`, `}]}`, jsonsuite.Taken, listVerdict),
		place("problem, unknown member", `{"code":"insufficient_funds","new":`, `}`, jsonsuite.Taken, problem),
		place("problem, detail first", `{"detail":`, `,"type":"insufficient_funds"}`, jsonsuite.Taken, problem),
		profile("unknown member", minimal+`,"new":`, `}`, jsonsuite.OtherFault),
		profile("unknown member within", minimal+`,"statuses":{"confirmed":["paid"],"new":`, `}}`, jsonsuite.OtherFault),
		profile("name", `{"name":`, strings.TrimPrefix(minimalProfile, `{"name":"bank"`), 0),
		profile("key_quoted", minimal+`,"key_quoted":`, `}`, 0),
		profile("transfer_path", minimal+`,"transfer_path":`, `}`, 0),
		profile("statuses", minimal+`,"statuses":`, `}`, 0),
		profile("confirmed words", minimal+`,"statuses":{"confirmed":`, `}}`, 0),
		profile("a confirmed word", minimal+`,"statuses":{"confirmed":[`, `]}}`, 0),
	)
}

// TestALongListCostsLittle: an answer may have 1 MiB, and a function has little
// memory. It is not parallel, since it measures.
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
