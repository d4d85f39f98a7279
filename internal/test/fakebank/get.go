package fakebank

import (
	"net/http"
	"net/url"
	"slices"
	"time"
)

// transferList is the answer to a status request.
type transferList struct {
	Transfers []wireTransfer `json:"transfers"`
}

// get answers a status request.
func (b *Bank) get(w http.ResponseWriter, r *http.Request) {
	var answer reply
	b.locked(func(now time.Time) { answer = b.lookUp(r, now) })
	b.transmit(w, answer)
}

func (b *Bank) lookUp(r *http.Request, now time.Time) reply {
	query := r.URL.Query()
	key := query.Get(lookUpParameter)
	s := b.state(key)
	s.gets++
	step := b.plan(s.order.CreditorAccount).step(s.gets)
	switch {
	case step.Say == SayHang:
		return reply{answer: AnswerHang}
	case step.HTTPStatus != 0:
		return scriptedReply(step.HTTPStatus, "", step.RetryAfter, key)
	case !b.authorized(r.Header):
		return problemReply(http.StatusUnauthorized, "", "")
	case len(query) != 1 || len(query[lookUpParameter]) != 1:
		return problemReply(http.StatusBadRequest, "", "the only parameter is "+lookUpParameter)
	}
	answer := s.say(step, now)
	answer.answer = step.Answer
	return answer
}

// lookUpPath is the path of a status request.
func lookUpPath(key string) string {
	return transferPath + "?" + url.Values{lookUpParameter: {key}}.Encode()
}

// say makes the answer of the step from the executed transfers.
func (s *keyState) say(step Step, now time.Time) reply {
	var list []wireTransfer
	for _, t := range s.executed {
		list = append(list, t.wire(now))
	}
	switch step.Say {
	case SayEmpty:
		list = nil
	case SayTyped404:
		return problemReply(http.StatusNotFound, codeNotFound, "")
	case SayPlain404:
		return reply{status: http.StatusNotFound, contentType: typeHTML, body: []byte(htmlPage)}
	case SayTwice:
		for _, t := range slices.Clone(list) {
			t.ID += "-again"
			list = append(list, t)
		}
	case SayTruth, SayHang:
	}
	for i := range list {
		if step.Status != "" {
			list[i].Status, list[i].Reason = step.Status, ""
		}
		list[i] = list[i].answeredAs(step.Answer)
	}
	return reply{status: http.StatusOK, contentType: typeJSON, body: encode(transferList{list})}
}
