package bank

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// Profile is everything that differs between banks which speak the generic
// contract. The zero value is not valid; [ParseProfile] and [GenericProfile] make
// valid ones. The names of the members in JSON stand in parentheses.
type Profile struct {
	// Name names the bank in logs (name). Required.
	Name string
	// TransferPath is where transfers are made and looked up, below the base URL
	// (transfer_path). Defaults to /v1/credit-transfers.
	TransferPath string
	// KeyHeader is the header that carries the idempotency key (key_header).
	// Defaults to Idempotency-Key.
	KeyHeader string
	// KeyQuoted puts the key in double quotes, as the string of a structured field
	// that the IETF draft asks for (key_quoted). Defaults to false.
	KeyQuoted bool
	// KeyLifetime is how long the bank remembers a key (key_lifetime). Required: a
	// value that is too long makes a resend a second transfer.
	KeyLifetime time.Duration
	// VisibilityLag is how late the look-up may show a transfer (visibility_lag).
	// Required: a value that is too short makes "not found" mean nothing.
	VisibilityLag time.Duration
	// Reject lists the values of a problem's type or code that prove, on a 400,
	// 402, 403 or 422, that the bank will not execute the transfer (reject).
	// Required, and may be empty: then no send is ever rejected. A code of which
	// the bank does not promise that, a duplicate's above all, must not be in it.
	Reject []string
	// ProblemMediaTypes are the content types under which the bank sends problems;
	// a problem under any other proves nothing (problem_media_types). Defaults to
	// application/problem+json alone.
	ProblemMediaTypes []string
	// Statuses says what the bank's status words mean (statuses). Defaults to the
	// table of ISO 20022; where it is given it replaces that as a whole.
	Statuses Statuses
	// NotFound says how the look-up answers for a key that it does not know
	// (not_found). Required; with neither of the two nothing is ever not found, and
	// a lost send ends with a person.
	NotFound NotFound
	// LookupParameter is the query parameter that names the key in a look-up
	// (lookup_parameter). Defaults to client_reference.
	LookupParameter string
}

// Statuses are the status words of a bank, by meaning. Case matters. A word that
// is in no list is pending, with a warning.
type Statuses struct {
	// Pending words: the bank has the transfer, and it is not final (pending).
	Pending []string
	// Confirmed words: executed (confirmed). At least one.
	Confirmed []string
	// Rejected words: the bank will not execute it (rejected).
	Rejected []string
	// Returned words: executed and sent back (returned).
	Returned []string
	// Manual words: a person decides (manual).
	Manual []string
	// ManualReasons are the reasons with which a rejected word is for a person
	// too, since they hint at a transfer that exists already (manual_reasons).
	ManualReasons []string
}

// NotFound is the signal of a look-up that found nothing.
type NotFound struct {
	// EmptyList: 200 with an empty list (empty_list).
	EmptyList bool
	// ProblemCode: 404 with a problem whose type or code is this (problem_code).
	// Empty means that a 404 proves nothing.
	ProblemCode string
}

// GenericProfile returns the profile of the generic bank.
func GenericProfile() Profile {
	return Profile{
		Name:          "generic",
		TransferPath:  "/v1/credit-transfers",
		KeyHeader:     "Idempotency-Key",
		KeyLifetime:   24 * time.Hour,
		VisibilityLag: 15 * time.Second,
		Reject: []string{
			"creditor_account_invalid", "creditor_account_closed", "creditor_account_blocked",
			"insufficient_funds", "limit_exceeded", "currency_not_supported",
		},
		ProblemMediaTypes: []string{"application/problem+json"},
		Statuses: Statuses{
			Pending:   []string{"RCVD", "PDNG", "ACTC", "PATC", "ACCP", "ACFC", "ACSP", "ACWC", "ACWP"},
			Confirmed: []string{"ACSC", "ACCC"},
			Rejected:  []string{"RJCT", "CANC"},
			// ISO 20022 has no such word, a return is a message of its own there.
			Returned:      []string{"RETURNED"},
			Manual:        []string{"BLCK"},
			ManualReasons: []string{"DUPL", "AM05"},
		},
		NotFound:        NotFound{EmptyList: true, ProblemCode: "transfer_not_found"},
		LookupParameter: "client_reference",
	}
}

// Bounds of a profile's values.
const (
	minKeyLifetime   = time.Minute
	maxKeyLifetime   = 10 * 365 * 24 * time.Hour
	maxVisibilityLag = 24 * time.Hour
	maxListEntries   = 200
	// maxFaults bounds what an error lists; a profile has fewer members.
	maxFaults = 50

	// statusGroup is the ISO 20022 word for "some of the group's transfers". It says
	// nothing about one transfer, so no profile may give it a meaning.
	statusGroup = "PART"
	// problemBlank is the problem type that means "see the HTTP status".
	problemBlank = "about:blank"
)

var (
	shapeName      = newShape(`^[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}$`)
	shapePath      = newShape(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$`)
	shapeHeader    = newShape(`^[A-Za-z][A-Za-z0-9-]{0,63}$`)
	shapeParameter = newShape(`^[A-Za-z][A-Za-z0-9._\[\]-]{0,63}$`)
	shapeMediaType = newShape(`^[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,63}$`)
	// shapeWord bounds what is stored and logged of an answer's status word.
	shapeWord = newShape(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
	// shapeCode is that of a problem's type or code: a word or a URI.
	shapeCode = newShape(`^[!-~]{1,256}$`)
)

// shape is a pattern that is compiled when it is first needed: a function without a
// bank starts without.
type shape func() *regexp.Regexp

func newShape(pattern string) shape {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// MatchString reports whether text has the shape.
func (s shape) MatchString(text string) bool { return s().MatchString(text) }

// ownHeaders are the headers that a request has for other purposes.
var ownHeaders = []string{
	"accept", "accept-encoding", "authorization", "connection", "content-encoding", "content-length", "content-type",
	"cookie", "expect", "host", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer",
	"transfer-encoding", "upgrade", "user-agent",
}

// Validate reports the faults of the profile in one error, a line each: what is
// wrong and what is expected. After fifty it only counts them.
func (p Profile) Validate() error {
	if faults := p.faults(); len(faults) > 0 {
		return fmt.Errorf("check bank profile:\n%w", joinFaults(faults))
	}
	return nil
}

// joinFaults makes one error of the faults. There are more than maxFaults only
// where a file is something else than a profile, and the error becomes a line of
// the log.
func joinFaults(faults []error) error {
	if more := len(faults) - maxFaults; more > 0 {
		faults = append(slices.Clone(faults[:maxFaults]), fmt.Errorf("and %d more", more))
	}
	return errors.Join(faults...)
}

// faults returns what is wrong with the values, in the order of profileMembers.
func (p Profile) faults() []error {
	var faults []error
	for _, m := range profileMembers {
		if wrong := m.wrong(p); wrong != "" {
			faults = append(faults, fmt.Errorf("%s %s; expected %s", m.name, wrong, m.expected))
		}
	}
	return append(faults, p.ambiguousWords()...)
}

// ambiguousWords finds the status words that have more than one meaning.
func (p Profile) ambiguousWords() []error {
	var faults []error
	meaning := make(map[string]string)
	for _, group := range p.Statuses.groups() {
		for _, word := range group.words {
			if other, twice := meaning[word]; twice {
				faults = append(faults, fmt.Errorf("statuses.%s has %q, which statuses.%s has too; expected every word once",
					group.name, word, other))
				continue
			}
			meaning[word] = group.name
		}
	}
	return faults
}

// statusGroupOf is one list of status words with its meaning.
type statusGroupOf struct {
	name    string
	reading transfer.StatusReading
	words   []string
}

func (s Statuses) groups() []statusGroupOf {
	return []statusGroupOf{
		{"pending", transfer.StatusPending, s.Pending},
		{"confirmed", transfer.StatusConfirmed, s.Confirmed},
		{"rejected", transfer.StatusRejected, s.Rejected},
		{"returned", transfer.StatusReturned, s.Returned},
		{"manual", transfer.StatusAttention, s.Manual},
	}
}

// readings returns what every known word means.
func (s Statuses) readings() map[string]transfer.StatusReading {
	readings := make(map[string]transfer.StatusReading)
	for _, group := range s.groups() {
		for _, word := range group.words {
			readings[word] = group.reading
		}
	}
	return readings
}

// The checks that profileMembers uses return what is wrong with a value, or "".

func wrongShape(value string, want shape) string {
	switch {
	case value == "":
		return "is empty"
	case !want.MatchString(value):
		return fmt.Sprintf("is %q", shorten(value))
	}
	return ""
}

func wrongHeader(value string) string {
	if wrong := wrongShape(value, shapeHeader); wrong != "" {
		return wrong
	}
	if slices.Contains(ownHeaders, strings.ToLower(value)) {
		return fmt.Sprintf("is %q, which the request has for another purpose", value)
	}
	return ""
}

func wrongDuration(d, least, most time.Duration) string {
	if d < least || d > most {
		return fmt.Sprintf("is %v", d)
	}
	return ""
}

func wrongList(list []string, want shape, forbidden ...string) string {
	if len(list) > maxListEntries {
		return fmt.Sprintf("has %d entries", len(list))
	}
	for i, entry := range list {
		switch {
		case !want.MatchString(entry), slices.Contains(forbidden, entry):
			return fmt.Sprintf("has %q", shorten(entry))
		case slices.Contains(list[:i], entry):
			return fmt.Sprintf("has %q twice", entry)
		}
	}
	return ""
}

// shorten keeps a fault readable whatever stands in the file.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
