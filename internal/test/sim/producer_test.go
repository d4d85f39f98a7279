package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settleonce/settleonce/internal/settle/payout"
)

// What is published.
var (
	publications = weighted("what is published",
		6, "a new payout", 2, "the same message again", 2, "the same payout, written otherwise", 2, "another payout under a known ID", 1, "no payout",
	)
	newPayouts  = weighted("the new payout is", 6, "plain", 3, "without a creditor", 1, "without a currency", 1, "in EUR", 1, "with a reference")
	styles      = weighted("it is written", 1, "in another order", 1, "with white space", 1, "with escapes", 1, "with metadata")
	alterations = weighted("what is altered", 2, "the amount", 1, "the account", 1, "the currency", 1, "the creditor", 1, "whether there is a creditor", 1, "the reference")
	nonsense    = weighted("the message is", 1, "empty", 1, "cut off", 1, "a list", 1, "without an amount", 1, "with a member twice",
		1, "with an amount in quotes", 1, "with an amount below zero", 1, "with an unknown member", 1, "no Pub/Sub message")
	aKnownPayout = oneOfMany("known payout", meaning.String)
	newIDs       = oneOf("its settlement ID", "stl-1", "stl-2", "stl-3", "stl-4", "stl-5", "stl-6", "stl-7", "stl-8")
)

// content is what a payout says, member by member; an empty string is an absent
// member.
type content struct {
	account             string
	amount              int64
	currency            string
	creditor, reference string
}

// meaning is what a message is to the one who published it.
type meaning struct {
	settlement string // empty: it is no payout
	content    content
	data       []byte

	reason payout.Reason // why it is no payout
	member string
}

// producer publishes messages and remembers what they mean.
type producer struct {
	payouts  []meaning // the first message of each settlement ID
	meanings map[string]meaning
}

// publish publishes something that is drawn.
func (w *world) publish() *Message {
	p := &w.producer
	kind := draw(w, publications)
	var means meaning
	switch {
	case kind == "no payout":
		means = garbage(draw(w, nonsense))
		kind = strings.TrimSpace(fmt.Sprintf("%s %s", means.reason, means.member))
	case len(p.payouts) == 0 || kind == "a new payout" && len(p.payouts) < len(newIDs.values):
		kind = draw(w, newPayouts)
		means = payoutOf(w.newID(), contents[kind], "")
		p.payouts = append(p.payouts, means)
		kind = "a new payout, " + kind
	default:
		known := pick(w, aKnownPayout, p.payouts)
		switch kind {
		case "the same payout, written otherwise":
			style := draw(w, styles)
			means = payoutOf(known.settlement, known.content, style)
			kind = "the same payout, " + style
		case "another payout under a known ID":
			what := draw(w, alterations)
			means = payoutOf(known.settlement, known.content.altered(what), "")
			kind = "another payout under the same ID, in " + what
		default:
			means = known
			kind = "the same message again"
		}
	}
	w.seen["published: "+kind]++
	m := w.pubsub.Publish(means.String(), means.data, time.Now())
	w.tell("message %s is published: %s", m.ID, kind)
	w.means(m, means)
	return m
}

// newID draws a settlement ID that is not taken, or the next after it. It does not
// depend on how many there are: the code under test spreads its times by the ID.
func (w *world) newID() string {
	i := slices.Index(newIDs.values, draw(w, newIDs))
	taken := func(m meaning) bool { return m.settlement == newIDs.values[i] }
	for slices.ContainsFunc(w.producer.payouts, taken) {
		i = (i + 1) % len(newIDs.values)
	}
	return newIDs.values[i]
}

func (w *world) means(m *Message, means meaning) {
	if w.producer.meanings == nil {
		w.producer.meanings = map[string]meaning{}
	}
	w.producer.meanings[m.ID] = means
}

// String returns the settlement ID, or what stands for it in the names of messages.
func (m meaning) String() string {
	if m.settlement == "" {
		return "no-payout"
	}
	return m.settlement
}

// contents are the payouts that are published as new ones.
var contents = map[string]content{
	"plain":              {"reserve", 4731, "USD", "cp-19", ""},
	"without a creditor": {"reserve", 4731, "USD", "", ""},
	"without a currency": {"reserve", 4731, "", "cp-19", ""},
	"in EUR":             {"reserve", 4731, "EUR", "cp-19", ""},
	"with a reference":   {"reserve", 4731, "USD", "cp-19", "claim 7"},
}

// altered returns another content. Every alteration changes one member.
func (c content) altered(what string) content {
	other := func(s *string, present string) {
		if *s != "" {
			present = ""
		}
		*s = present
	}
	switch what {
	case "the amount":
		c.amount++
	case "the account":
		c.account = "other"
	case "the currency":
		other(&c.currency, "USD")
	case "the creditor":
		c.creditor += "x1"
	case "whether there is a creditor":
		other(&c.creditor, "cp-20")
	case "the reference":
		other(&c.reference, "claim 8")
	}
	return c
}

// differences names the members in which two contents differ.
func (c content) differences(o content) (names []string) {
	for _, member := range []struct {
		name string
		same bool
	}{
		{"account_id", c.account == o.account},
		{"amount_cents", c.amount == o.amount},
		{"currency", c.currency == o.currency},
		{"creditor_account", c.creditor == o.creditor},
		{"reference", c.reference == o.reference},
	} {
		if !member.same {
			names = append(names, member.name)
		}
	}
	return names
}

// payoutOf writes a payout message.
func payoutOf(id string, c content, style string) meaning {
	if style == "with escapes" {
		id = strings.ReplaceAll(id, "-", `\u002d`)
	}
	members := []string{
		`"settlement_id":"` + id + `"`, `"account_id":"` + c.account + `"`, fmt.Sprintf(`"amount_cents":%d`, c.amount),
	}
	for _, optional := range [][2]string{{"currency", c.currency}, {"creditor_account", c.creditor}, {"reference", c.reference}} {
		if optional[1] != "" {
			members = append(members, fmt.Sprintf(`"%s":"%s"`, optional[0], optional[1]))
		}
	}
	between := ","
	switch style {
	case "in another order":
		slices.Reverse(members)
	case "with white space":
		between = " ,\r\n\t"
	case "with metadata":
		members = append(members, `"metadata":{"batch":"7"}`)
	}
	return meaning{
		settlement: strings.ReplaceAll(id, `\u002d`, "-"), content: c,
		data: []byte("{" + strings.Join(members, between) + "}"),
	}
}

// garbage writes a message that is no payout.
func garbage(kind string) meaning {
	whole := string(payoutOf("stl-0", contents["plain"], "").data)
	switch kind {
	case "empty":
		return meaning{reason: payout.ReasonEmptyData}
	case "cut off":
		return meaning{reason: payout.ReasonNotJSON, data: []byte(whole[:len(whole)-1])}
	case "a list":
		return meaning{reason: payout.ReasonNotJSON, data: []byte("[" + whole + "]")}
	case "without an amount":
		return meaning{reason: payout.ReasonMissingField, member: "amount_cents", data: []byte(`{"settlement_id":"stl-0","account_id":"reserve"}`)}
	case "with a member twice":
		return meaning{reason: payout.ReasonDuplicateField, data: []byte(whole[:len(whole)-1] + `,"amount_cents":1}`)}
	case "with an amount in quotes":
		return meaning{reason: payout.ReasonInvalidField, member: "amount_cents", data: []byte(strings.Replace(whole, "4731", `"4731"`, 1))}
	case "with an amount below zero":
		return meaning{reason: payout.ReasonInvalidField, member: "amount_cents", data: []byte(strings.Replace(whole, "4731", "-4731", 1))}
	case "with an unknown member":
		return meaning{reason: payout.ReasonUnknownField, data: []byte(whole[:len(whole)-1] + `,"Amount_cents":1}`)}
	}
	return meaning{reason: payout.ReasonUnsupportedEvent, data: []byte("a request from somewhere else")}
}
