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
		6, "a new payout", 2, "the same message", 2, "the same payout in another encoding", 2, "another payout under a known ID",
		2, "the same other payout again", 1, "an invalid message",
	)
	newPayouts = table("new payout",
		row[content]{6, "plain", plain},
		row[content]{3, "without a creditor", content{"reserve", 4731, "USD", "", ""}},
		row[content]{1, "without a currency", content{"reserve", 4731, "", "cp-19", ""}},
		row[content]{1, "in EUR", content{"reserve", 4731, "EUR", "cp-19", ""}},
		row[content]{1, "with a reference", content{"reserve", 4731, "USD", "cp-19", "claim 7"}},
	)
	plain       = content{"reserve", 4731, "USD", "cp-19", ""}
	encodings   = weighted("encoding", 1, "in another order", 1, "with white space", 1, "with escapes", 1, "with metadata")
	alterations = table("altered member",
		row[func(*content)]{2, "the amount", func(c *content) { c.amount++ }},
		row[func(*content)]{1, "the account", func(c *content) { c.account = "other" }},
		row[func(*content)]{1, "the currency", func(c *content) { toggle(&c.currency, "USD") }},
		row[func(*content)]{1, "the creditor", func(c *content) { c.creditor += "x1" }},
		row[func(*content)]{1, "the creditor's presence", func(c *content) { toggle(&c.creditor, "cp-20") }},
		row[func(*content)]{1, "the reference", func(c *content) { toggle(&c.reference, "claim 8") }},
	)
	valid    = string(newPayout("stl-0", plain, "").data)
	invalids = table("invalid message",
		row[meaning]{1, "empty", meaning{reason: payout.ReasonEmptyData}},
		row[meaning]{1, "cut off", meaning{reason: payout.ReasonNotJSON, data: []byte(valid[:len(valid)-1])}},
		row[meaning]{1, "a list", meaning{reason: payout.ReasonNotJSON, data: []byte("[" + valid + "]")}},
		row[meaning]{1, "without an amount", meaning{
			reason: payout.ReasonMissingField, member: "amount_cents", data: []byte(`{"settlement_id":"stl-0","account_id":"reserve"}`),
		}},
		row[meaning]{1, "with a duplicate member", meaning{reason: payout.ReasonDuplicateField, data: []byte(valid[:len(valid)-1] + `,"amount_cents":1}`)}},
		row[meaning]{1, "with a quoted amount", meaning{
			reason: payout.ReasonInvalidField, member: "amount_cents", data: []byte(strings.Replace(valid, "4731", `"4731"`, 1)),
		}},
		row[meaning]{1, "with a negative amount", meaning{
			reason: payout.ReasonInvalidField, member: "amount_cents", data: []byte(strings.Replace(valid, "4731", "-4731", 1)),
		}},
		row[meaning]{1, "with an unknown member", meaning{reason: payout.ReasonUnknownField, data: []byte(valid[:len(valid)-1] + `,"Amount_cents":1}`)}},
		row[meaning]{1, "not a Pub/Sub message", meaning{reason: payout.ReasonUnsupportedEvent, data: []byte("a request from another sender")}},
	)
	aKnownPayout = oneOfMany("known payout", meaning.String)
	anotherAgain = oneOfMany("known other payout", meaning.String)
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
	others   []meaning          // later messages with another payout
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
		means = draw(w, invalids)
		kind = strings.TrimSpace(fmt.Sprintf("%s %s", means.reason, means.member))
	case len(p.payouts) == 0 || kind == "a new payout" && len(p.payouts) < len(newIDs.values):
		word, content := drawWord(w, newPayouts)
		means = newPayout(w.newID(), content, "")
		p.payouts = append(p.payouts, means)
		kind = "a new payout, " + word
	case kind == "the same other payout again" && len(p.others) > 0:
		means = pick(w, anotherAgain, p.others)
	default:
		known := pick(w, aKnownPayout, p.payouts)
		switch kind {
		case "the same payout in another encoding":
			encoding := draw(w, encodings)
			means = newPayout(known.settlement, known.content, encoding)
			kind = "the same payout, " + encoding
		case "another payout under a known ID":
			member, alter := drawWord(w, alterations)
			content := known.content
			alter(&content)
			means = newPayout(known.settlement, content, "")
			p.others = append(p.others, means)
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

// toggle removes a member, or sets it where it is absent.
func toggle(member *string, value string) {
	if *member != "" {
		value = ""
	}
	*member = value
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
