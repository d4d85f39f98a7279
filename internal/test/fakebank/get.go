package fakebank

import (
	"net/http"
	"net/url"
	"time"
)

// transferList is the answer to a question.
type transferList struct {
	Transfers []wireTransfer `json:"transfers"`
}

// get answers a question.
func (b *Bank) get(w http.ResponseWriter, r *http.Request) {
	var answer reply
	b.locked(func(now time.Time) { answer = b.lookUp(r, now) })
	b.transmit(w, answer)
}

func (b *Bank) lookUp(r *http.Request, now time.Time) reply {
	query := r.URL.Query()
	key := query.Get(b.options.LookupParameter)
	s := b.state(key)
	s.Gets++
	plan, step := b.plans.step(key, s.order.CreditorAccount, s.Gets)
	reused := b.isReused(r.RemoteAddr)
	switch {
	case now.Before(b.downUntil), reused && plan.KeptAlive != KeptAliveServed, step.Say == SayRefuse:
		return reply{answer: AnswerClose}
	case step.Say == SayHang:
		return reply{answer: AnswerHang}
	case step.HTTPStatus != 0:
		answer := b.statusReply(step.HTTPStatus, step.Code, step.Page)
		answer.setHeader("Retry-After", step.RetryAfter)
		answer.answer, answer.cutAt = step.Answer, step.CutAt
		if step.HTTPStatus/100 == 3 {
			answer.setHeader("Location", b.lookUpPath(key))
		}
		return answer
	case !b.authorized(r.Header):
		return b.problemReply(http.StatusUnauthorized, "", "")
	case len(query) != 1 || len(query[b.options.LookupParameter]) != 1:
		return b.problemReply(http.StatusBadRequest, "", "the one parameter is "+b.options.LookupParameter)
	}
	answer := b.say(plan, step, b.visible(key, s, plan.Lag, now))
	answer.setHeader("Retry-After", step.RetryAfter)
	answer.answer, answer.cutAt = step.Answer, step.CutAt
	return answer
}

// lookUpPath is where a key is looked up.
func (b *Bank) lookUpPath(key string) string {
	return b.options.TransferPath + "?" + url.Values{b.options.LookupParameter: {key}}.Encode()
}

// visible is what questions can see of a key: what was executed, and what is
// queued, unless it is too new.
func (b *Bank) visible(key string, s *keyState, lag time.Duration, now time.Time) []wireTransfer {
	list := []wireTransfer{} // never null
	for _, t := range s.executed {
		if !t.ExecutedAt.Add(lag).After(now) {
			list = append(list, t.wire(now))
		}
	}
	for _, l := range b.late {
		if l.key == key && l.claim != nil && !l.claim.since.Add(lag).After(now) {
			queued := l.claim.made
			queued.Status = Received
			list = append(list, queued)
		}
	}
	return list
}

// say turns what can be seen into an answer.
func (b *Bank) say(plan Plan, step Step, list []wireTransfer) reply {
	typed404 := len(list) == 0 && plan.Typed404
	switch step.Say {
	case SayEmpty:
		list, typed404 = []wireTransfer{}, false
	case SayTyped404:
		typed404 = true
	case SayPlain404:
		return b.statusReply(http.StatusNotFound, "", true)
	case SayTwice:
		for _, t := range list {
			t.ID += "-again"
			list = append(list, t)
		}
	case SayTruth, SayHang, SayRefuse:
	}
	if typed404 {
		return b.problemReply(http.StatusNotFound, b.options.NotFoundCode, "")
	}
	for i := range list {
		if step.Status != "" {
			list[i].Status, list[i].Reason = step.Status, step.Reason
		}
		list[i] = damaged(list[i], step.Answer)
	}
	return reply{status: http.StatusOK, contentType: typeJSON, body: encode(transferList{list})}
}
