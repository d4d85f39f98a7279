package bank

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxProfileBytes is the largest profile that [ParseProfile] reads.
const MaxProfileBytes = 64 << 10

// profileMember is a member of a profile. A dot in the name separates the name of the
// object that holds it.
type profileMember struct {
	name     string
	required bool
	expected string // for errors
	target   any    // pointer to the member's value
	fault    string // of the value; empty for none
}

const (
	expectedBoolean = "true or false"
	expectedWords   = "up to 200 different words of 1 to 64 characters of A-Z a-z 0-9 _ . - (PART excepted, which is the status of a group)"
	expectedCodes   = "up to 200 different texts of 1 to 256 visible ASCII characters (about:blank excepted, which says nothing)"
)

// members returns all members, in the order of the faults in an error.
func (p *Profile) members() []profileMember {
	// A resend needs two not-founds, one lag apart. With a longer lag the bank forgets
	// the key before the second.
	longestLag := min(maxVisibilityLag, max(p.KeyLifetime, minKeyLifetime)/2-1)
	var notFound string
	if code := p.NotFound.ProblemCode; code != "" {
		notFound = listFault([]string{code}, shapeCode, problemBlank)
	}
	s := &p.Statuses
	return []profileMember{
		{"name", true, "1 to 64 characters of A-Z a-z 0-9 space . _ - that begin with a letter or digit", &p.Name, shapeFault(p.Name, shapeName)},
		{
			"transfer_path", false, "a path such as /v1/credit-transfers, without a slash at its end",
			&p.TransferPath, shapeFault(p.TransferPath, shapePath),
		},
		{"key_header", false, "the name of a header of its own, such as Idempotency-Key", &p.KeyHeader, headerFault(p.KeyHeader)},
		{"key_quoted", false, expectedBoolean, &p.KeyQuoted, ""},
		{
			"key_lifetime", true, "a duration from 1m to 87600h, such as 24h: how long the bank remembers an idempotency key",
			&p.KeyLifetime, durationFault(p.KeyLifetime, minKeyLifetime, maxKeyLifetime),
		},
		{
			"visibility_lag", true,
			"a duration from 0s to 24h, such as 15s, and below half of key_lifetime: the longest delay until the status API shows a transfer",
			&p.VisibilityLag, durationFault(p.VisibilityLag, 0, longestLag),
		},
		{"reject", true, expectedCodes, &p.Reject, listFault(p.Reject, shapeCode, problemBlank)},
		{
			"problem_media_types", false,
			"1 to 200 different media types in lower case without parameters, such as application/problem+json",
			&p.ProblemMediaTypes, cmp.Or(emptyFault(p.ProblemMediaTypes), listFault(p.ProblemMediaTypes, shapeMediaType, "")),
		},
		{"statuses.pending", false, expectedWords, &s.Pending, wordsFault(s.Pending)},
		{
			"statuses.confirmed", false, "at least one word, without which no transfer is ever confirmed; " + expectedWords,
			&s.Confirmed, cmp.Or(emptyFault(s.Confirmed), wordsFault(s.Confirmed)),
		},
		{"statuses.rejected", false, expectedWords, &s.Rejected, wordsFault(s.Rejected)},
		{"statuses.returned", false, expectedWords, &s.Returned, wordsFault(s.Returned)},
		{"statuses.manual", false, expectedWords, &s.Manual, wordsFault(s.Manual)},
		{"statuses.manual_reasons", false, expectedWords, &s.ManualReasons, wordsFault(s.ManualReasons)},
		{"not_found.empty_list", true, expectedBoolean, &p.NotFound.EmptyList, ""},
		{
			"not_found.problem_code", false,
			"the type or code of the 404 that means not found, 1 to 256 visible ASCII characters other than about:blank, or no such member",
			&p.NotFound.ProblemCode, notFound,
		},
		{
			"lookup_parameter", false, "the name of a query parameter, such as client_reference",
			&p.LookupParameter, shapeFault(p.LookupParameter, shapeParameter),
		},
	}
}

func wordsFault(words []string) string { return listFault(words, shapeWord, statusGroup) }

func emptyFault(list []string) string {
	if len(list) == 0 {
		return "is empty"
	}
	return ""
}

// profileObjects are the members that are objects.
var profileObjects = []string{"statuses", "not_found"}

// ParseProfile reads a profile from JSON. [Profile] documents the members and their
// defaults. Durations are strings such as "24h". Unknown and duplicate members, null,
// and data after the object are faults. The error lists the faults, one a line, each
// with the expected value: at most fifty, and the number of the others. The Profile
// is then the zero value.
func ParseProfile(data []byte) (Profile, error) {
	if len(data) > MaxProfileBytes {
		return Profile{}, fmt.Errorf("read bank profile: it has %d bytes; expected at most %d", len(data), MaxProfileBytes)
	}
	values, faults, err := splitProfile(data)
	if err != nil {
		return Profile{}, fmt.Errorf("read bank profile: %w", err)
	}

	// An absent or unreadable member keeps its valid default, so that p.faults does not
	// report it again.
	p := GenericProfile()
	p.NotFound.ProblemCode = ""
	if _, given := values["statuses"]; given {
		p.Statuses = Statuses{}
	}
	for _, m := range p.members() {
		value, present := values[m.name]
		switch {
		case present && !readMember(value, m.target):
			faults = append(faults, fmt.Errorf("%s has a value of another kind; expected %s", m.name, m.expected))
		case !present && m.required:
			faults = append(faults, fmt.Errorf("%s is missing; expected %s", m.name, m.expected))
		}
	}
	faults = append(faults, p.faults()...)
	if len(faults) > 0 {
		return Profile{}, fmt.Errorf("read bank profile:\n%w", joinFaults(faults))
	}
	return p, nil
}

// splitProfile returns the values of all members by name, and a fault for each unknown
// member. The members of an object have its name and a dot before theirs; the object
// itself is a value too.
func splitProfile(data []byte) (values map[string]jsontext.Value, faults []error, err error) {
	if err := json.Unmarshal(data, &values); err != nil || values == nil {
		return nil, nil, describeProfile(err)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if strings.Contains(name, ".") { // it would pass for a member of an object
			faults = append(faults, unknownMember(name))
			delete(values, name)
		}
	}
	for _, object := range profileObjects {
		value, present := values[object]
		if !present {
			continue
		}
		var members map[string]jsontext.Value
		if err := json.Unmarshal(value, &members); err != nil || members == nil {
			faults = append(faults, fmt.Errorf("%s has a value of another kind; expected an object", object))
			delete(values, object)
			continue
		}
		for name, value := range members {
			values[object+"."+name] = value
		}
	}
	members := new(Profile).members()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		known := slices.Contains(profileObjects, name) ||
			slices.ContainsFunc(members, func(m profileMember) bool { return m.name == name })
		if !known {
			faults = append(faults, unknownMember(name))
		}
	}
	return values, faults, nil
}

func unknownMember(name string) error {
	return fmt.Errorf("%q is unknown; expected a member of the table in docs/bank-profiles.md", shorten(name))
}

// describeProfile explains why the file is not one JSON object. The text of the
// library's error is not stable, so it uses only the position and the cause.
func describeProfile(err error) error {
	const expected = "expected one JSON object in UTF-8"
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return fmt.Errorf("byte %d: duplicate member %s; expected it once", syntax.ByteOffset, shorten(string(syntax.JSONPointer)))
		}
		return fmt.Errorf("byte %d: not JSON; %s", syntax.ByteOffset, expected)
	}
	return errors.New("another JSON value, or data after the object; " + expected)
}

// readMember reads a value into target, a pointer, and reports whether the value has
// the target's type.
func readMember(value jsontext.Value, target any) bool {
	if value.Kind() == jsontext.KindNull {
		return false
	}
	if d, ok := target.(*time.Duration); ok {
		var text string
		if json.Unmarshal(value, &text) != nil {
			return false
		}
		parsed, err := time.ParseDuration(text)
		if err == nil {
			*d = parsed
		}
		return err == nil
	}
	if list, ok := target.(*[]string); ok {
		// The library would read a null in the list as "".
		var entries []jsontext.Value
		if json.Unmarshal(value, &entries) != nil {
			return false
		}
		texts := make([]string, len(entries))
		for i, entry := range entries {
			if !readMember(entry, &texts[i]) {
				return false
			}
		}
		*list = texts
		return true
	}
	return json.Unmarshal(value, target) == nil
}
