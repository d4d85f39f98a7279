package fakebank

import (
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// Rates say how often chance does what, from 0 to 1. Of the rates of a send one
// at most happens, so their sum is 1 at most; the same holds for those of a
// question and of a life. The zero value is a good bank.
type Rates struct {
	// Of a send: ended before the bank looks at the transfer,
	Before float64
	// refused with a code of RejectCodes,
	Reject float64
	// read, forgotten and not answered,
	Lost float64
	// executed up to LateBy later, and not answered,
	Late float64
	// executed, and answered in a way that proves nothing,
	Garbled float64
	// executed, and answered as if it were another transfer.
	Wrong float64

	// Of a question: answered in a way that proves nothing,
	Unsure float64
	// answered as if there were no transfer,
	Absent float64
	// answered with an unknown status word,
	UnknownWord float64
	// answered with another transfer, or with two.
	WrongStatus float64

	// Of a life: sent back up to LifeWithin after it was executed,
	Return float64
	// rejected up to LifeWithin after it was accepted,
	Fail float64
	// pending for up to LifeWithin.
	Slow float64

	// LateBy is how late an execution is at most. Defaults to an hour.
	LateBy time.Duration
	// LifeWithin is how long a life takes at most. Defaults to a week.
	LifeWithin time.Duration
	// RejectCodes are the codes of refusals. Defaults to "insufficient_funds" and
	// "creditor_account_closed".
	RejectCodes []string
	// Hang says that exchanges may hang. A client needs its whole time limit for
	// each.
	Hang bool
}

// random draws plans. What it draws depends on the seed and its arguments only.
type random struct {
	seed     uint64
	rates    Rates
	returned string // the status word
}

// dice are the dice for one decision.
type dice struct{ *rand.Rand } //nolint:forbidigo // seeded below: the same seed gives the same faults

func (r *random) dice(decision, key string, n int) dice {
	h := fnv.New64a()
	_, _ = h.Write([]byte(decision + "\x00" + key + "\x00" + strconv.Itoa(n))) // never fails
	pcg := rand.NewPCG(r.seed, h.Sum64())                                      //nolint:forbidigo // as above
	return dice{rand.New(pcg)}                                                 //nolint:forbidigo,gosec // as above; a run must be repeatable
}

// one draws at most one of the rates, as its index; -1 for none.
func (d dice) one(rates ...float64) int {
	u := d.Float64()
	for i, rate := range rates {
		if u < rate {
			return i
		}
		u -= rate
	}
	return -1
}

// upTo draws a duration from 1 ns to the limit.
func (d dice) upTo(limit, otherwise time.Duration) time.Duration {
	if limit <= 0 {
		limit = otherwise
	}
	return 1 + time.Duration(d.Int64N(int64(limit)))
}

func pick[T any](d dice, from []T) T { return from[d.IntN(len(from))] }

// What chance picks from. Those that hang come last.
var (
	randomBefore = []Attempt{
		{Before: BeforeRefuse},
		{BeforeStatus: http.StatusFound},
		{BeforeStatus: http.StatusUnauthorized},
		{BeforeStatus: http.StatusRequestTimeout},
		{BeforeStatus: http.StatusTooEarly},
		{BeforeStatus: http.StatusTooManyRequests, RetryAfter: "2"},
		{BeforeStatus: http.StatusTooManyRequests, RetryAfter: "Wed, 21 Oct 2015 07:28:00 GMT"},
		{BeforeStatus: http.StatusTooManyRequests, RetryAfter: "99999999999999999999"},
		{BeforeStatus: http.StatusServiceUnavailable, RetryAfter: "5"},
		{BeforeStatus: http.StatusServiceUnavailable, Page: true},
		{Before: BeforeHang},
	}
	randomLost = []Attempt{
		{Answer: AnswerReset},
		{Answer: AnswerClose},
		{AfterStatus: http.StatusGatewayTimeout, Page: true},
		{Answer: AnswerHang},
	}
	randomGarbled = []Attempt{
		{Answer: AnswerReset},
		{Answer: AnswerClose},
		{Answer: AnswerCut},
		{Answer: AnswerCutChunked},
		{Answer: AnswerCutUnsized},
		{Answer: AnswerEmptyObject},
		{Answer: AnswerNull},
		{Answer: AnswerHTML},
		{Answer: AnswerNoContent},
		{Answer: AnswerErrorObject},
		{Answer: AnswerTrailing},
		{Answer: AnswerInformational},
		{Answer: AnswerNoID},
		{AfterStatus: http.StatusInternalServerError},
		{AfterStatus: http.StatusBadGateway, Page: true},
		{Answer: AnswerHang},
	}
	randomWrong  = []Answer{AnswerWrongAmount, AnswerWrongCurrency, AnswerWrongCreditor}
	randomUnsure = []Step{
		{Say: SayRefuse},
		{Say: SayPlain404},
		{HTTPStatus: http.StatusFound},
		{HTTPStatus: http.StatusBadRequest},
		{HTTPStatus: http.StatusUnauthorized},
		{HTTPStatus: http.StatusTooManyRequests, RetryAfter: "2"},
		{HTTPStatus: http.StatusInternalServerError},
		{HTTPStatus: http.StatusServiceUnavailable, Page: true},
		{Answer: AnswerReset},
		{Answer: AnswerCut},
		{Answer: AnswerCutUnsized},
		{Answer: AnswerNull},
		{Answer: AnswerHTML},
		{Say: SayHang},
	}
	randomAbsent      = []Step{{Say: SayEmpty}, {Say: SayTyped404}}
	randomWrongStatus = []Step{
		{Say: SayTwice}, {Answer: AnswerWrongAmount}, {Answer: AnswerWrongCurrency}, {Answer: AnswerWrongCreditor},
	}
	randomCodes = []string{"insufficient_funds", "creditor_account_closed"}
)

// allowed returns the list, without its last element if that one hangs and
// hanging is not allowed.
func allowed[T any](r *random, list []T) []T {
	if r.rates.Hang {
		return list
	}
	return list[:len(list)-1]
}

// attempt draws a key's n-th send.
func (r *random) attempt(key string, n int) Attempt {
	d, p := r.dice("send", key, n), r.rates
	switch d.one(p.Before, p.Reject, p.Lost, p.Late, p.Garbled, p.Wrong) {
	case 0:
		return pick(d, allowed(r, randomBefore))
	case 1:
		codes := p.RejectCodes
		if len(codes) == 0 {
			codes = randomCodes
		}
		return Attempt{Reject: pick(d, codes)}
	case 2:
		a := pick(d, allowed(r, randomLost))
		a.Execute = ExecuteNever
		return a
	case 3:
		a := pick(d, allowed(r, randomLost))
		a.Execute = pick(d, []Execute{ExecuteLate, ExecuteQueued})
		a.LateBy = d.upTo(p.LateBy, time.Hour)
		return a
	case 4:
		return pick(d, allowed(r, randomGarbled))
	case 5:
		return Attempt{Answer: pick(d, randomWrong)}
	}
	return Attempt{}
}

// step draws a key's n-th question.
func (r *random) step(key string, n int) Step {
	d, p := r.dice("question", key, n), r.rates
	switch d.one(p.Unsure, p.Absent, p.UnknownWord, p.WrongStatus) {
	case 0:
		return pick(d, allowed(r, randomUnsure))
	case 1:
		return pick(d, randomAbsent)
	case 2:
		return Step{Status: "WXYZ"}
	case 3:
		return pick(d, randomWrongStatus)
	}
	return Step{}
}

// plan is the default plan with a life that was drawn for the key.
func (r *random) plan(rest Plan, key string) Plan {
	d, p := r.dice("life", key, 0), r.rates
	within := d.upTo(p.LifeWithin, 7*24*time.Hour)
	switch d.one(p.Return, p.Fail, p.Slow) {
	case 0:
		rest.Life = []Change{{Status: Settled}, {After: within, Status: r.returned}}
	case 1:
		rest.Life = []Change{{Status: Accepted}, {After: within, Status: Rejected}}
	case 2:
		rest.Life = []Change{{Status: "ACSP"}, {After: within, Status: Settled}}
	}
	return rest
}
