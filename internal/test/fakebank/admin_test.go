package fakebank_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/internal/test/fakebank"
)

func (x *teller) admin(method, path, token, body string) got {
	r, err := http.NewRequestWithContext(x.t.Context(), method, x.url+path, strings.NewReader(body))
	if err != nil {
		x.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	return x.do(r)
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	x, key := open(t, nil, fakebank.Options{Token: "s3cret"}), newKey()
	r := x.postRequest(key, orderOf(key))
	r.Header.Set("Authorization", "Bearer s3cret")
	x.do(r)
	move := `{"client_reference":"` + key + `","status":"RETURNED"}`
	for _, test := range []struct {
		method, path, token, body string
		status                    int
	}{
		{http.MethodGet, "/admin/ledger", "other", "", http.StatusUnauthorized},
		{http.MethodPost, "/admin/status", "other", move, http.StatusUnauthorized},
		{http.MethodPost, "/admin/status", "s3cret", "{}", http.StatusBadRequest},
		{http.MethodPost, "/admin/status", "s3cret", strings.Replace(move, key, "x", 1), http.StatusNotFound},
		{http.MethodPost, "/admin/status", "s3cret", move, http.StatusNoContent},
	} {
		if g := x.admin(test.method, test.path, test.token, test.body); g.status != test.status {
			t.Errorf("%+v: got %+v", test, g)
		}
	}
	g := x.admin(http.MethodGet, "/admin/ledger", "s3cret", "")
	var all fakebank.AdminLedger
	if err := json.Unmarshal([]byte(g.body), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Transfers) != 1 || all.Transfers[0] != x.Ledger()[0] || !all.Transfers[0].Returned || all.Violations == nil {
		t.Errorf("ledger %s", g.body)
	}
}
