package fakebank

import (
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
)

// AdminLedger is the answer of GET /admin/ledger.
type AdminLedger struct {
	Transfers  []Transfer `json:"transfers"`
	Violations []string   `json:"violations"`
}

// AdminStatus is the body of POST /admin/status.
type AdminStatus struct {
	Key    string `json:"client_reference"`
	Status string `json:"status"`
}

func (b *Bank) adminLedger(w http.ResponseWriter, r *http.Request) {
	if !b.authorized(r.Header) {
		b.transmit(w, problemReply(http.StatusUnauthorized, "", ""))
		return
	}
	var all AdminLedger
	b.locked(func(now time.Time) {
		all = AdminLedger{Transfers: b.ledger(now), Violations: slices.Clone(b.violations)}
	})
	b.transmit(w, reply{status: http.StatusOK, contentType: typeJSON, body: encode(all)})
}

func (b *Bank) adminStatus(w http.ResponseWriter, r *http.Request) reply {
	if !b.authorized(r.Header) {
		return problemReply(http.StatusUnauthorized, "", "")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		return problemReply(http.StatusBadRequest, "", "the body is incomplete or too large")
	}
	var change AdminStatus
	if err := json.Unmarshal(body, &change, json.RejectUnknownMembers(true)); err != nil || change.Status == "" {
		return problemReply(http.StatusBadRequest, "", "expected client_reference and status")
	}
	if err := b.Settle(change.Key, change.Status); err != nil {
		return problemReply(http.StatusNotFound, codeNotFound, "")
	}
	return reply{status: http.StatusNoContent}
}
