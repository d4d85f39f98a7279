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

// Reason says why a message is not a valid payout. The zero value is no reason.
type Reason string

// The reasons, in order: a refusal has the first that applies.
const (
	// ReasonUnsupportedEvent means that the event is not a Pub/Sub message. Package event
	// gives it, before a payout message is decoded.
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

// Refusal reports a message that is not a valid payout.
type Refusal struct {
	// Reason is the first reason that applies.
	Reason Reason `json:"reason"`
	// Member is the missing or invalid member; empty for the other reasons.
	Member string `json:"member,omitzero"`
	// Detail describes the fault and its place for people. It may quote a member's name
	// from the message, so it is stored in quarantine and never logged or answered.
	Detail string `json:"-"`
}

// Error returns the reason and the member without the detail, so it can be logged.
func (r *Refusal) Error() string {
	if r.Member == "" {
		return fmt.Sprintf("message refused: %s", r.Reason)
	}
	return fmt.Sprintf("message refused: %s %s", r.Reason, r.Member)
}

// explain returns the first reason to refuse data, in the order of [Reason]. It runs
// on refused messages only, and reads each several times to keep that order.
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

// checkSyntax refuses data that is not one JSON object, or has a duplicate member.
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
			"; the intended value is unknown"}
	}
	return nil
}

// describeSyntax returns the position and the cause of a syntax error. The library's
// own text is not used: it quotes the message and is not stable.
func describeSyntax(err error) string {
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return fmt.Sprintf("byte %d: duplicate member %s", syntax.ByteOffset, quoteShort(string(syntax.JSONPointer)))
		}
		return fmt.Sprintf("byte %d: not JSON", syntax.ByteOffset)
	}
	return "the JSON is incomplete"
}

// splitMembers returns the members' values by index in members; nil for absent ones.
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

// disagreement is the refusal of a message that Decode refuses and explain accepts.
// FuzzDecode searches for such a message. If one exists, it is quarantined like any
// other, so no payout is lost.
func disagreement(err error) *Refusal {
	return &Refusal{Reason: ReasonNotJSON, Detail: fmt.Sprintf("%s (%v)", disagreementDetail, err)}
}

const disagreementDetail = "refused for an unknown reason: a fault of the decoder, please report it"

func memberNames() string {
	names := make([]string, len(members))
	for i := range members {
		names[i] = members[i].name
	}
	return strings.Join(names, ", ")
}

// quoteShort quotes at most 80 bytes of the message's text.
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
