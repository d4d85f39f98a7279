package bank

import (
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

// profileMember is one row of the profile's table: everything that reading and
// checking know about the member.
type profileMember struct {
	name     string
	required bool
	// expected completes "…; expected".
	expected string
	// target returns where the value is read to.
	target func(*Profile) any
	// wrong returns what is wrong with the value, or "".
	wrong func(Profile) string
}

const (
	expectedWords   = "up to 200 different words of 1 to 64 characters of A-Z a-z 0-9 _ . - (PART excepted, which is the status of a group)"
	expectedCodes   = "up to 200 different texts of 1 to 256 visible ASCII characters (about:blank excepted, which says nothing)"
	expectedBoolean = "true or false"
)

// profileMembers is the table of a profile. Its order is the order in which
// faults are reported. A dot separates the members of an object within.
var profileMembers = []profileMember{
	{
		"name", true, "1 to 64 characters of A-Z a-z 0-9 space . _ - that begin with a letter or digit",
		func(p *Profile) any { return &p.Name },
		func(p Profile) string { return wrongShape(p.Name, shapeName) },
	},
	{
		"transfer_path", false, "a path such as /v1/credit-transfers, without a slash at its end",
		func(p *Profile) any { return &p.TransferPath },
		func(p Profile) string { return wrongShape(p.TransferPath, shapePath) },
	},
	{
		"key_header", false, "the name of a header of its own, such as Idempotency-Key",
		func(p *Profile) any { return &p.KeyHeader },
		func(p Profile) string { return wrongHeader(p.KeyHeader) },
	},
	{
		"key_quoted", false, expectedBoolean,
		func(p *Profile) any { return &p.KeyQuoted },
		func(Profile) string { return "" },
	},
	{
		"key_lifetime", true, "a duration from 1m to 87600h, such as 24h: how long the bank remembers an idempotency key",
		func(p *Profile) any { return &p.KeyLifetime },
		func(p Profile) string { return wrongDuration(p.KeyLifetime, minKeyLifetime, maxKeyLifetime) },
	},
	{
		"visibility_lag", true, "a duration from 0s to 24h, such as 15s, and below half of key_lifetime: how late the look-up may show a transfer",
		func(p *Profile) any { return &p.VisibilityLag },
		func(p Profile) string {
			// "Not found" has to be seen twice, that far apart, before a resend; with a
			// longer lag the key is forgotten before that.
			return wrongDuration(p.VisibilityLag, 0, min(maxVisibilityLag, max(p.KeyLifetime, minKeyLifetime)/2-1))
		},
	},
	{
		"reject", true, expectedCodes,
		func(p *Profile) any { return &p.Reject },
		func(p Profile) string { return wrongList(p.Reject, shapeCode, problemBlank) },
	},
	{
		"problem_media_types", false, "1 to 200 different media types in lower case without parameters, such as application/problem+json",
		func(p *Profile) any { return &p.ProblemMediaTypes },
		func(p Profile) string {
			if len(p.ProblemMediaTypes) == 0 {
				return "is empty"
			}
			return wrongList(p.ProblemMediaTypes, shapeMediaType)
		},
	},
	{
		"statuses.pending", false, expectedWords,
		func(p *Profile) any { return &p.Statuses.Pending },
		func(p Profile) string { return wrongList(p.Statuses.Pending, shapeWord, statusGroup) },
	},
	{
		"statuses.confirmed", false, "at least one word, without which nothing is ever confirmed; " + expectedWords,
		func(p *Profile) any { return &p.Statuses.Confirmed },
		func(p Profile) string {
			if len(p.Statuses.Confirmed) == 0 {
				return "is empty"
			}
			return wrongList(p.Statuses.Confirmed, shapeWord, statusGroup)
		},
	},
	{
		"statuses.rejected", false, expectedWords,
		func(p *Profile) any { return &p.Statuses.Rejected },
		func(p Profile) string { return wrongList(p.Statuses.Rejected, shapeWord, statusGroup) },
	},
	{
		"statuses.returned", false, expectedWords,
		func(p *Profile) any { return &p.Statuses.Returned },
		func(p Profile) string { return wrongList(p.Statuses.Returned, shapeWord, statusGroup) },
	},
	{
		"statuses.manual", false, expectedWords,
		func(p *Profile) any { return &p.Statuses.Manual },
		func(p Profile) string { return wrongList(p.Statuses.Manual, shapeWord, statusGroup) },
	},
	{
		"statuses.manual_reasons", false, expectedWords,
		func(p *Profile) any { return &p.Statuses.ManualReasons },
		func(p Profile) string { return wrongList(p.Statuses.ManualReasons, shapeWord, statusGroup) },
	},
	{
		"not_found.empty_list", true, expectedBoolean,
		func(p *Profile) any { return &p.NotFound.EmptyList },
		func(Profile) string { return "" },
	},
	{
		"not_found.problem_code", false, "the type or code of the 404 that means not found, 1 to 256 visible ASCII characters other than about:blank, or no such member",
		func(p *Profile) any { return &p.NotFound.ProblemCode },
		func(p Profile) string {
			if p.NotFound.ProblemCode == "" {
				return ""
			}
			return wrongList([]string{p.NotFound.ProblemCode}, shapeCode, problemBlank)
		},
	},
	{
		"lookup_parameter", false, "the name of a query parameter, such as client_reference",
		func(p *Profile) any { return &p.LookupParameter },
		func(p Profile) string { return wrongShape(p.LookupParameter, shapeParameter) },
	},
}

// profileObjects are the members that hold others.
var profileObjects = []string{"statuses", "not_found"}

// ParseProfile reads a profile from JSON; see [Profile] for the members and for
// what is taken where an optional one is absent. Durations are strings such as
// "24h". Unknown members, members that stand twice, null, and anything after the
// object are refused. The error names the members that are wrong, what is wrong
// with each and what is expected, a line each, and only counts them after fifty;
// the Profile is then the zero value.
func ParseProfile(data []byte) (Profile, error) {
	if len(data) > MaxProfileBytes {
		return Profile{}, fmt.Errorf("read bank profile: it has %d bytes; expected at most %d", len(data), MaxProfileBytes)
	}
	values, faults, err := splitProfile(data)
	if err != nil {
		return Profile{}, fmt.Errorf("read bank profile: %w", err)
	}

	// What is absent or cannot be read keeps its valid default, so that the check of
	// the values reports no fault twice.
	p := GenericProfile()
	p.NotFound.ProblemCode = ""
	if _, given := values["statuses"]; given {
		p.Statuses = Statuses{}
	}
	for _, m := range profileMembers {
		value, present := values[m.name]
		switch {
		case present && !readMember(value, m.target(&p)):
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

// splitProfile takes the members apart. Those of an object within have its name
// and a dot before their own; the object itself is there too. faults are the
// members that a profile does not have.
func splitProfile(data []byte) (values map[string]jsontext.Value, faults []error, err error) {
	if err := json.Unmarshal(data, &values); err != nil || values == nil {
		return nil, nil, describeProfile(err)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if strings.Contains(name, ".") { // it would pass for a member of an object within
			faults = append(faults, unknownMember(name))
			delete(values, name)
		}
	}
	for _, object := range profileObjects {
		value, present := values[object]
		if !present {
			continue
		}
		var within map[string]jsontext.Value
		if err := json.Unmarshal(value, &within); err != nil || within == nil {
			faults = append(faults, fmt.Errorf("%s has a value of another kind; expected an object", object))
			delete(values, object)
			continue
		}
		for name, value := range within {
			values[object+"."+name] = value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		known := slices.Contains(profileObjects, name) ||
			slices.ContainsFunc(profileMembers, func(m profileMember) bool { return m.name == name })
		if !known {
			faults = append(faults, unknownMember(name))
		}
	}
	return values, faults, nil
}

func unknownMember(name string) error {
	return fmt.Errorf("%q is unknown; expected the members that are documented at bank.Profile", shorten(name))
}

// describeProfile says why the file is not one JSON object. The library's own
// text is not stable, so only its position and cause are used.
func describeProfile(err error) error {
	const expected = "expected one JSON object in UTF-8"
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return fmt.Errorf("byte %d: the member %s stands twice; expected it once", syntax.ByteOffset, shorten(string(syntax.JSONPointer)))
		}
		return fmt.Errorf("byte %d: not JSON; %s", syntax.ByteOffset, expected)
	}
	return errors.New("it is another JSON value or has something after it; " + expected)
}

// readMember reads a value into what target points to, and reports whether the
// value is of that kind.
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
		// By hand, because the library reads a null within as "".
		var entries []jsontext.Value
		if json.Unmarshal(value, &entries) != nil {
			return false
		}
		read := make([]string, len(entries))
		for i, entry := range entries {
			if !readMember(entry, &read[i]) {
				return false
			}
		}
		*list = read
		return true
	}
	return json.Unmarshal(value, target) == nil
}
