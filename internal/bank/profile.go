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

// Profile holds the differences between banks that implement the generic contract.
// The zero value is not valid; [ParseProfile] and [GenericProfile] return valid ones.
// The names of the JSON members stand in parentheses.
type Profile struct {
	// Name names the bank in logs (name). Required.
	Name string
	// TransferPath is the path of sends and status checks below the base URL
	// (transfer_path). Defaults to /v1/credit-transfers.
	TransferPath string
	// KeyHeader is the header that carries the idempotency key (key_header).
	// Defaults to Idempotency-Key.
	KeyHeader string
	// KeyQuoted puts the key in double quotes, as the IETF draft requires
	// (key_quoted). Defaults to false.
	KeyQuoted bool
	// KeyLifetime is the time for which the bank remembers a key (key_lifetime).
	// Required: with too long a value a resend becomes a second transfer.
	KeyLifetime time.Duration
	// VisibilityLag is the longest delay until the status API shows a transfer
	// (visibility_lag). Required: with too short a value a not-found proves nothing.
	VisibilityLag time.Duration
	// Reject lists the problem types and codes that prove, on a 400, 402, 403 or 422,
	// that the bank will not execute the transfer (reject). Required. Empty: no send
	// is ever rejected. Leave out every code without that promise, above all the code
	// of a duplicate.
	Reject []string
	// ProblemMediaTypes are the content types of the bank's problem documents
	// (problem_media_types). A problem of another type proves nothing. Defaults to
	// application/problem+json.
	ProblemMediaTypes []string
	// Statuses maps the bank's status words (statuses). Defaults to the ISO 20022
	// table, which a given value replaces as a whole.
	Statuses Statuses
	// NotFound describes the status API's answer for an unknown key (not_found).
	// Required. The zero value: no answer means not found, and each lost send needs a
	// manual decision.
	NotFound NotFound
	// LookupParameter is the query parameter for the key in a status check
	// (lookup_parameter). Defaults to client_reference.
	LookupParameter string
}

// Statuses are the status words of a bank by meaning. Words are case-sensitive. A word
// that no list has is pending, with a warning.
type Statuses struct {
	// Pending words: the bank has the transfer, and it is not final (pending).
	Pending []string
	// Confirmed words: executed (confirmed). At least one.
	Confirmed []string
	// Rejected words: the bank will not execute it (rejected).
	Rejected []string
	// Returned words: executed and returned (returned).
	Returned []string
	// Manual words: the instruction needs a manual decision (manual).
	Manual []string
	// ManualReasons are the reasons that make a rejected word manual, because they
	// hint at an earlier transfer (manual_reasons).
	ManualReasons []string
}

// NotFound describes the answer of the status API without a transfer.
type NotFound struct {
	// EmptyList: 200 with an empty list means not found (empty_list).
	EmptyList bool
	// ProblemCode: 404 with a problem of this type or code means not found
	// (problem_code). Empty: a 404 proves nothing.
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
			// In ISO 20022 a return is a message, not a status.
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
	// maxFaults bounds the faults in an error; a profile has fewer members.
	maxFaults = 50

	// statusGroup is the ISO 20022 status of a group of which some transfers are
	// accepted. It says nothing about one transfer, so no profile may list it.
	statusGroup = "PART"
	// problemBlank is the problem type for "see the HTTP status".
	problemBlank = "about:blank"
)

var (
	shapeName      = newShape(`^[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}$`)
	shapePath      = newShape(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$`)
	shapeHeader    = newShape(`^[A-Za-z][A-Za-z0-9-]{0,63}$`)
	shapeParameter = newShape(`^[A-Za-z][A-Za-z0-9._\[\]-]{0,63}$`)
	shapeMediaType = newShape(`^[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,63}$`)
	// shapeWord bounds the status words that are stored and logged.
	shapeWord = newShape(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
	// shapeCode is the shape of a problem's type or code: a word or a URI.
	shapeCode = newShape(`^[!-~]{1,256}$`)
)

// shape compiles its pattern at the first use, which saves the time in a function
// without a bank.
type shape func() *regexp.Regexp

func newShape(pattern string) shape {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// MatchString reports whether text has the shape.
func (s shape) MatchString(text string) bool { return s().MatchString(text) }

// ownHeaders are the headers that cannot carry the key.
var ownHeaders = []string{
	"accept", "accept-encoding", "authorization", "connection", "content-encoding", "content-length", "content-type",
	"cookie", "expect", "host", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer",
	"transfer-encoding", "upgrade", "user-agent",
}

// Validate returns an error with the faults of the profile, one a line, each with the
// expected value. It lists at most fifty faults and counts the others.
func (p Profile) Validate() error {
	if faults := p.faults(); len(faults) > 0 {
		return fmt.Errorf("check bank profile:\n%w", joinFaults(faults))
	}
	return nil
}

// joinFaults joins the faults, at most maxFaults of them: only a file that is not a
// profile has more, and the error becomes a log line.
func joinFaults(faults []error) error {
	if more := len(faults) - maxFaults; more > 0 {
		faults = append(slices.Clone(faults[:maxFaults]), fmt.Errorf("and %d more", more))
	}
	return errors.Join(faults...)
}

// faults returns the faults of the values, in the order of members.
func (p Profile) faults() []error {
	var faults []error
	for _, m := range p.members() {
		if m.fault != "" {
			faults = append(faults, fmt.Errorf("%s %s; expected %s", m.name, m.fault, m.expected))
		}
	}
	return append(faults, p.ambiguousWords()...)
}

// ambiguousWords returns a fault for each status word with more than one meaning.
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

// statusGroupOf is a list of status words with its meaning.
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

// readings returns the meaning of every listed word.
func (s Statuses) readings() map[string]transfer.StatusReading {
	readings := make(map[string]transfer.StatusReading)
	for _, group := range s.groups() {
		for _, word := range group.words {
			readings[word] = group.reading
		}
	}
	return readings
}

// The functions below return the fault of a value, or "".

func shapeFault(value string, want shape) string {
	switch {
	case value == "":
		return "is empty"
	case !want.MatchString(value):
		return fmt.Sprintf("is %q", shorten(value))
	}
	return ""
}

func headerFault(value string) string {
	if fault := shapeFault(value, shapeHeader); fault != "" {
		return fault
	}
	if slices.Contains(ownHeaders, strings.ToLower(value)) {
		return fmt.Sprintf("is %q, which the request has for another purpose", value)
	}
	return ""
}

func durationFault(d, least, most time.Duration) string {
	if d < least || d > most {
		return fmt.Sprintf("is %v", d)
	}
	return ""
}

func listFault(list []string, want shape, forbidden string) string {
	if len(list) > maxListEntries {
		return fmt.Sprintf("has %d entries", len(list))
	}
	for i, entry := range list {
		switch {
		case !want.MatchString(entry), entry == forbidden:
			return fmt.Sprintf("has %q", shorten(entry))
		case slices.Contains(list[:i], entry):
			return fmt.Sprintf("has %q twice", entry)
		}
	}
	return ""
}

// shorten bounds a text of the file in a fault.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
