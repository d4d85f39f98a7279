package fakebank

import (
	"io"
	"net/http"
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
		b.transmit(w, b.problemReply(http.StatusUnauthorized, "", ""))
		return
	}
	all := AdminLedger{Transfers: []Transfer{}, Violations: []string{}}
	b.locked(func(now time.Time) {
		for _, t := range b.transfers {
			all.Transfers = append(all.Transfers, b.shown(t, now))
		}
		all.Violations = append(all.Violations, b.violations...)
	})
	b.transmit(w, reply{status: http.StatusOK, contentType: typeJSON, body: encode(all)})
}

func (b *Bank) adminStatus(w http.ResponseWriter, r *http.Request) {
	b.transmit(w, b.moveByAdmin(w, r))
}

func (b *Bank) moveByAdmin(w http.ResponseWriter, r *http.Request) reply {
	if !b.authorized(r.Header) {
		return b.problemReply(http.StatusUnauthorized, "", "")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		return b.problemReply(http.StatusBadRequest, "", "the body broke off or is too large")
	}
	var move AdminStatus
	if err := json.Unmarshal(body, &move, json.RejectUnknownMembers(true)); err != nil || move.Status == "" {
		return b.problemReply(http.StatusBadRequest, "", "expected client_reference and status")
	}
	if err := b.Settle(move.Key, move.Status); err != nil {
		return b.problemReply(http.StatusNotFound, b.options.NotFoundCode, "")
	}
	return reply{status: http.StatusNoContent}
}
