package payout

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Decode reads payout message version 1. defaultCurrency is the currency of a
// message that has none; when it is empty such a message is refused.
//
// A message that is refused gives a *[Refusal] as the error, and no other error
// is ever returned. Decode does not keep data.
func Decode(data []byte, defaultCurrency string) (Payout, error) {
	if p, ok := decodeAccepted(data, defaultCurrency); ok {
		return p, nil
	}
	return Payout{}, explain(data, defaultCurrency)
}

// reader is a JSON decoder with its input, kept for the next message: a new
// decoder would be the largest allocation of a delivery.
type reader struct {
	input bytes.Buffer
	json  jsontext.Decoder
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// decodeAccepted decodes in one pass over the bytes, and gives up without a
// reason at the first fault. Duplicate members, invalid UTF-8 and nesting that
// is too deep are refused by the JSON library on the way.
func decodeAccepted(data []byte, defaultCurrency string) (p Payout, ok bool) {
	if len(data) > MaxMessageBytes {
		return Payout{}, false
	}
	r, _ := readers.Get().(*reader)
	r.input = *bytes.NewBuffer(data)
	r.json.Reset(&r.input)
	defer func() {
		r.input = bytes.Buffer{} // keep no message alive
		r.json.Reset(&r.input)
		readers.Put(r)
	}()

	present, ok := readObject(&r.json, &p)
	if !ok {
		return Payout{}, false
	}
	for i := range members {
		if members[i].required && !present[i] {
			return Payout{}, false
		}
	}
	if p.Currency == "" {
		p.Currency, p.CurrencyDefaulted = defaultCurrency, true
	}
	return p, p.Currency != ""
}

// readObject reads the one object of a message and the end of the input.
func readObject(dec *jsontext.Decoder, p *Payout) (present [len(members)]bool, ok bool) {
	if begin, err := dec.ReadToken(); err != nil || begin.Kind() != jsontext.KindBeginObject {
		return present, false
	}
	for dec.PeekKind() != jsontext.KindEndObject {
		name, ok := readString(dec)
		if !ok {
			return present, false
		}
		i := memberIndex(name)
		if i < 0 || members[i].read(p, dec) != "" {
			return present, false
		}
		present[i] = true
	}
	if _, err := dec.ReadToken(); err != nil {
		return present, false
	}
	_, err := dec.ReadToken()
	return present, errors.Is(err, io.EOF)
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
		i := memberIndex(name)
		if i < 0 {
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

// disagreement is what is left when decodeAccepted refuses a message in which
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
