package fakebank_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/internal/test/fakebank"
)

func (c *client) admin(method, path, token, body string) got {
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	return c.do(r)
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	c, key := newClient(t, nil, fakebank.Options{Token: "s3cret"}), newKey()
	r := c.postRequest(key, orderOf(key))
	r.Header.Set("Authorization", "Bearer s3cret")
	c.do(r)
	change := `{"client_reference":"` + key + `","status":"RETURNED"}`
	for _, test := range []struct {
		method, path, token, body string
		status                    int
	}{
		{http.MethodGet, "/admin/ledger", "other", "", http.StatusUnauthorized},
		{http.MethodPost, "/admin/status", "other", change, http.StatusUnauthorized},
		{http.MethodPost, "/admin/status", "s3cret", "{}", http.StatusBadRequest},
		{http.MethodPost, "/admin/status", "s3cret", strings.Replace(change, key, "x", 1), http.StatusNotFound},
		{http.MethodPost, "/admin/status", "s3cret", change, http.StatusNoContent},
	} {
		if g := c.admin(test.method, test.path, test.token, test.body); g.status != test.status {
			t.Errorf("%+v: got %+v", test, g)
		}
	}
	g := c.admin(http.MethodGet, "/admin/ledger", "s3cret", "")
	var all fakebank.AdminLedger
	if err := json.Unmarshal([]byte(g.body), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Transfers) != 1 || all.Transfers[0] != c.Ledger()[0] || !all.Transfers[0].Returned || all.Violations == nil {
		t.Errorf("ledger %s", g.body)
	}
}
