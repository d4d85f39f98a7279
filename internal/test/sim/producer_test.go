package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settleonce/settleonce/internal/settle/payout"
)

var (
	publications = weighted("publication",
		6, "a new payout", 2, "the same message", 2, "the same payout in another encoding", 2, "another payout under a known ID", 1, "an invalid message",
	)
	newPayouts  = weighted("new payout", 6, "plain", 3, "without a creditor", 1, "without a currency", 1, "in EUR", 1, "with a reference")
	encodings   = weighted("encoding", 1, "in another order", 1, "with white space", 1, "with escapes", 1, "with metadata")
	alterations = weighted("altered member", 2, "the amount", 1, "the account", 1, "the currency", 1, "the creditor", 1, "the creditor's presence", 1, "the reference")
	invalids    = weighted("invalid message", 1, "empty", 1, "cut off", 1, "a list", 1, "without an amount", 1, "with a duplicate member",
		1, "with a quoted amount", 1, "with a negative amount", 1, "with an unknown member", 1, "not a Pub/Sub message")
	aKnownPayout = oneOfMany("known payout", meaning.String)
	newIDs       = oneOf("settlement ID", "stl-1", "stl-2", "stl-3", "stl-4", "stl-5", "stl-6", "stl-7", "stl-8")
)

// content is the members of a payout; an empty string is an absent member.
type content struct {
	account             string
	amount              int64
	currency            string
	creditor, reference string
}

// meaning is the required effect of a message.
type meaning struct {
	settlement string // empty: the message must be quarantined
	content    content
	data       []byte

	reason payout.Reason // of the quarantine
	member string
}

// producer publishes messages and remembers their meanings.
type producer struct {
	payouts  []meaning          // the first message of each settlement ID
	meanings map[string]meaning // by message ID
}

func (p *producer) remember(m *Message, means meaning) {
	if p.meanings == nil {
		p.meanings = map[string]meaning{}
	}
	p.meanings[m.ID] = means
}

// publish draws a message and publishes it.
func (w *world) publish() *Message {
	p := &w.producer
	kind := draw(w, publications)
	var means meaning
	switch {
	case kind == "an invalid message":
		means = newInvalid(draw(w, invalids))
		kind = strings.TrimSpace(fmt.Sprintf("%s %s", means.reason, means.member))
	case len(p.payouts) == 0 || kind == "a new payout" && len(p.payouts) < len(newIDs.values):
		kind = draw(w, newPayouts)
		means = newPayout(w.newID(), contents[kind], "")
		p.payouts = append(p.payouts, means)
		kind = "a new payout, " + kind
	default:
		known := pick(w, aKnownPayout, p.payouts)
		switch kind {
		case "the same payout in another encoding":
			encoding := draw(w, encodings)
			means = newPayout(known.settlement, known.content, encoding)
			kind = "the same payout, " + encoding
		case "another payout under a known ID":
			member := draw(w, alterations)
			means = newPayout(known.settlement, known.content.altered(member), "")
			kind = "another payout under the same ID, in " + member
		default:
			means = known
			kind = "the same message"
		}
	}
	w.seen["published: "+kind]++
	m := w.pubsub.Publish(means.String(), means.data, time.Now())
	w.tell("message %s is published: %s", m.ID, kind)
	p.remember(m, means)
	return m
}

// newID draws a settlement ID, and takes the next free one. The draw does not depend
// on the number of IDs, because the code under test spreads its times by the ID.
func (w *world) newID() string {
	i := slices.Index(newIDs.values, draw(w, newIDs))
	taken := func(m meaning) bool { return m.settlement == newIDs.values[i] }
	for slices.ContainsFunc(w.producer.payouts, taken) {
		i = (i + 1) % len(newIDs.values)
	}
	return newIDs.values[i]
}

// String returns the settlement ID, or the name of invalid messages.
func (m meaning) String() string {
	if m.settlement == "" {
		return "no-payout"
	}
	return m.settlement
}

// contents are the contents of new payouts.
var contents = map[string]content{
	"plain":              {"reserve", 4731, "USD", "cp-19", ""},
	"without a creditor": {"reserve", 4731, "USD", "", ""},
	"without a currency": {"reserve", 4731, "", "cp-19", ""},
	"in EUR":             {"reserve", 4731, "EUR", "cp-19", ""},
	"with a reference":   {"reserve", 4731, "USD", "cp-19", "claim 7"},
}

// altered returns the content with one other member.
func (c content) altered(member string) content {
	toggle := func(s *string, present string) {
		if *s != "" {
			present = ""
		}
		*s = present
	}
	switch member {
	case "the amount":
		c.amount++
	case "the account":
		c.account = "other"
	case "the currency":
		toggle(&c.currency, "USD")
	case "the creditor":
		c.creditor += "x1"
	case "the creditor's presence":
		toggle(&c.creditor, "cp-20")
	case "the reference":
		toggle(&c.reference, "claim 8")
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

func newPayout(id string, c content, encoding string) meaning {
	encoded := id
	if encoding == "with escapes" {
		encoded = strings.ReplaceAll(id, "-", `\u002d`)
	}
	members := []string{
		`"settlement_id":"` + encoded + `"`, `"account_id":"` + c.account + `"`, fmt.Sprintf(`"amount_cents":%d`, c.amount),
	}
	for _, optional := range [][2]string{{"currency", c.currency}, {"creditor_account", c.creditor}, {"reference", c.reference}} {
		if optional[1] != "" {
			members = append(members, fmt.Sprintf(`"%s":"%s"`, optional[0], optional[1]))
		}
	}
	separator := ","
	switch encoding {
	case "in another order":
		slices.Reverse(members)
	case "with white space":
		separator = " ,\r\n\t"
	case "with metadata":
		members = append(members, `"metadata":{"batch":"7"}`)
	}
	return meaning{settlement: id, content: c, data: []byte("{" + strings.Join(members, separator) + "}")}
}

func newInvalid(kind string) meaning {
	valid := string(newPayout("stl-0", contents["plain"], "").data)
	switch kind {
	case "empty":
		return meaning{reason: payout.ReasonEmptyData}
	case "cut off":
		return meaning{reason: payout.ReasonNotJSON, data: []byte(valid[:len(valid)-1])}
	case "a list":
		return meaning{reason: payout.ReasonNotJSON, data: []byte("[" + valid + "]")}
	case "without an amount":
		return meaning{reason: payout.ReasonMissingField, member: "amount_cents", data: []byte(`{"settlement_id":"stl-0","account_id":"reserve"}`)}
	case "with a duplicate member":
		return meaning{reason: payout.ReasonDuplicateField, data: []byte(valid[:len(valid)-1] + `,"amount_cents":1}`)}
	case "with a quoted amount":
		return meaning{reason: payout.ReasonInvalidField, member: "amount_cents", data: []byte(strings.Replace(valid, "4731", `"4731"`, 1))}
	case "with a negative amount":
		return meaning{reason: payout.ReasonInvalidField, member: "amount_cents", data: []byte(strings.Replace(valid, "4731", "-4731", 1))}
	case "with an unknown member":
		return meaning{reason: payout.ReasonUnknownField, data: []byte(valid[:len(valid)-1] + `,"Amount_cents":1}`)}
	}
	return meaning{reason: payout.ReasonUnsupportedEvent, data: []byte("a request from another sender")}
}
