package payout

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Reason says why a message cannot be a payout. The zero value is no reason.
type Reason string

// The reasons, in the order in which the first that applies is given.
const (
	// ReasonUnsupportedEvent means that the event is not a Pub/Sub message. It comes from
	// the event's reading, before there is a payout message to decode.
	ReasonUnsupportedEvent Reason = "unsupported_event"
	// ReasonTooLarge means over MaxMessageBytes.
	ReasonTooLarge Reason = "too_large"
	// ReasonEmptyData means no data, or JSON white space only.
	ReasonEmptyData Reason = "empty_data"
	// ReasonNotJSON means not exactly one JSON object in valid UTF-8.
	ReasonNotJSON Reason = "not_json"
	// ReasonDuplicateField means a member twice in one object, at any depth.
	ReasonDuplicateField Reason = "duplicate_field"
	// ReasonUnknownField means a member that payout message version 1 does not have.
	ReasonUnknownField Reason = "unknown_field"
	// ReasonMissingField means that a required member is absent.
	ReasonMissingField Reason = "missing_field"
	// ReasonInvalidField means that a member's value breaks the member's rule.
	ReasonInvalidField Reason = "invalid_field"
)

// Refusal is the verdict on a message that cannot be a payout.
type Refusal struct {
	// Reason is the first reason that applies.
	Reason Reason `json:"reason"`
	// Member names the payout message's member that is missing or invalid; empty
	// for the other reasons.
	Member string `json:"member,omitzero"`
	// Detail says in words what is wrong and where. It may name a member that
	// the message has and should not have, so it belongs into the quarantine
	// table and in front of the person who wrote the message, and never into a
	// log or an answer.
	Detail string `json:"-"`
}

// Error gives the reason and the member, not the detail: it can be logged.
func (r *Refusal) Error() string {
	if r.Member == "" {
		return fmt.Sprintf("message refused: %s", r.Reason)
	}
	return fmt.Sprintf("message refused: %s %s", r.Reason, r.Member)
}

// explain finds the first reason to refuse data, in the order of [Reason]. It
// is run on refused messages only, and reads them as often as the order needs.
func explain(data []byte, defaultCurrency string) *Refusal {
	if len(data) > MaxMessageBytes {
		return &Refusal{Reason: ReasonTooLarge, Detail: fmt.Sprintf(
			"the message has %d bytes; a payout message has at most %d", len(data), MaxMessageBytes)}
	}
	if len(bytes.Trim(data, " \t\r\n")) == 0 {
		return &Refusal{Reason: ReasonEmptyData, Detail: "the message has no data"}
	}
	if fault := checkSyntax(data); fault != nil {
		return fault
	}
	values, fault := splitMembers(data)
	if fault != nil {
		return fault
	}
	return checkMembers(values, defaultCurrency)
}

// checkSyntax reports what keeps data from being one JSON object, and after
// that a member that stands twice.
func checkSyntax(data []byte) *Refusal {
	const intact = "; publish the payout as one JSON object in UTF-8"
	dec := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true))
	value, err := dec.ReadValue()
	switch {
	case err != nil:
		return &Refusal{Reason: ReasonNotJSON, Detail: describeSyntax(err) + intact}
	case value.Kind() != jsontext.KindBeginObject:
		return &Refusal{Reason: ReasonNotJSON, Detail: "the message is JSON but not an object" + intact}
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return &Refusal{Reason: ReasonNotJSON, Detail: fmt.Sprintf(
			"something follows the object that ends at byte %d", dec.InputOffset()) + intact}
	}
	if _, err := jsontext.NewDecoder(bytes.NewReader(data)).ReadValue(); err != nil {
		return &Refusal{Reason: ReasonDuplicateField, Detail: describeSyntax(err) +
			"; which of the values is meant cannot be known"}
	}
	return nil
}

// describeSyntax says where the library stopped. The library's own text quotes
// the message and is not stable, so only its position and cause are used.
func describeSyntax(err error) string {
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return fmt.Sprintf("byte %d: a member stands twice: %s", syntax.ByteOffset, quoteShort(string(syntax.JSONPointer)))
		}
		return fmt.Sprintf("byte %d: not JSON", syntax.ByteOffset)
	}
	return "the JSON ends too early"
}

// splitMembers returns the values of the members that payout message version 1
// knows, by their place in members; absent ones are nil.
func splitMembers(data []byte) (values [len(members)]jsontext.Value, fault *Refusal) {
	dec := jsontext.NewDecoder(bytes.NewReader(data))
	if _, err := dec.ReadToken(); err != nil {
		return values, disagreement(err)
	}
	for dec.PeekKind() != jsontext.KindEndObject {
		name, ok := readString(dec)
		if !ok {
			return values, disagreement(nil)
		}
		i, known := memberIndex[string(name)]
		if !known {
			return values, &Refusal{Reason: ReasonUnknownField, Detail: fmt.Sprintf(
				"payout message version 1 has no member %s; letter case matters; its members are %s",
				quoteShort(string(name)), memberNames())}
		}
		value, err := dec.ReadValue()
		if err != nil {
			return values, disagreement(err)
		}
		values[i] = value.Clone()
	}
	return values, nil
}

func checkMembers(values [len(members)]jsontext.Value, defaultCurrency string) *Refusal {
	for i, m := range members {
		switch {
		case values[i] == nil && m.required:
			return &Refusal{Reason: ReasonMissingField, Member: m.name, Detail: m.name + " is required"}
		case values[i] == nil && m.name == MemberCurrency && defaultCurrency == "":
			return &Refusal{Reason: ReasonMissingField, Member: m.name, Detail: "currency is required where no DEFAULT_CURRENCY is configured"}
		}
	}
	var p Payout
	for i, m := range members {
		if values[i] == nil {
			continue
		}
		if rule := m.read(&p, jsontext.NewDecoder(bytes.NewReader(values[i]))); rule != "" {
			return &Refusal{Reason: ReasonInvalidField, Member: m.name, Detail: m.name + " must be " + rule}
		}
	}
	return disagreement(nil)
}

// disagreement is the refusal of a message that Decode refuses and in which
// explain finds no fault. FuzzDecode looks for one; if there is one after all,
// the message is kept in quarantine and nothing is lost.
func disagreement(err error) *Refusal {
	return &Refusal{Reason: ReasonNotJSON, Detail: fmt.Sprintf("%s (%v)", disagreementDetail, err)}
}

const disagreementDetail = "refused for a reason that could not be worked out: a fault of the decoder, please report it"

func memberNames() string {
	names := make([]string, len(members))
	for i := range members {
		names[i] = members[i].name
	}
	return strings.Join(names, ", ")
}

// quoteShort quotes text of the message for a person, and no more of it than
// tells which member is meant.
func quoteShort(s string) string {
	const most = 80
	if len(s) > most {
		cut := most
		for !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	return fmt.Sprintf("%q", s)
}
