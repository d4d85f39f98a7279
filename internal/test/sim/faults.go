package sim

import (
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// SendFault is a way in which a send goes wrong, and how the adapter has to read
// it. A test makes the fake bank do each, and compares what the real adapter says.
type SendFault struct {
	Name  string
	Class transfer.SendClass
	// Waits says that the bank can ask to wait (Retry-After).
	Waits bool
}

// Unsent are the faults of a send of which nothing was written.
var Unsent = []SendFault{
	{"refuses the connection", transfer.SendNotSent, false},
	{"fails in the TLS handshake", transfer.SendNotSent, false},
	{"finds the breaker open", transfer.SendNotSent, true},
}

// Unlooked are the answers of a bank, or of something before it, that has not
// looked at the transfer and never will.
var Unlooked = []SendFault{
	{"hangs up", transfer.SendUncertain, false},
	{"redirects", transfer.SendUncertain, false},
	{"answers 401", transfer.SendHeld, false},
	{"answers 403 without a listed code", transfer.SendHeld, false},
	{"answers 408", transfer.SendUncertain, false},
	{"answers 425", transfer.SendRetryLater, true},
	{"answers 429", transfer.SendRetryLater, true},
	{"answers 503", transfer.SendUncertain, true},
}

// Damages are what arrives instead of the answer to a send that the bank has
// looked at.
var Damages = []SendFault{
	{"is reset", transfer.SendUncertain, false},
	{"is closed", transfer.SendUncertain, false},
	{"is cut short of its length", transfer.SendUncertain, false},
	{"is cut within a chunk", transfer.SendUncertain, false},
	{"is cut and seems to end", transfer.SendUncertain, false},
	{"is an empty object", transfer.SendUncertain, false},
	{"is null", transfer.SendUncertain, false},
	{"is HTML with 200", transfer.SendUncertain, false},
	{"is 204", transfer.SendUncertain, false},
	{"is an error object with 200", transfer.SendUncertain, false},
	{"has trailing junk", transfer.SendUncertain, false},
	{"has 5 MiB", transfer.SendUncertain, false},
	{"is a 103 and then nothing", transfer.SendUncertain, false},
	{"is a 500", transfer.SendUncertain, true},
	{"has an unknown status word", transfer.SendUncertain, false},
	{"is about another key", transfer.SendUncertain, false},
	{"has another amount", transfer.SendManual, false},
	{"has another currency", transfer.SendManual, false},
	{"has another creditor", transfer.SendManual, false},
}

// Repeats are the answers to a key that the bank remembers, where it does not
// replay.
var Repeats = []SendFault{
	{"says 409: it exists", transfer.SendUncertain, false},
	{"says 409: in progress", transfer.SendUncertain, false},
	{"says 400: duplicate", transfer.SendUncertain, false},
	{"repeats the 500 that it answered first", transfer.SendUncertain, false},
	{"says 409: locked after a 500", transfer.SendUncertain, false},
}

// StatusFault is a way in which a question goes wrong, and how the adapter has to
// read it where the bank has the transfer.
type StatusFault struct {
	Name    string
	Reading transfer.StatusReading
	// Waits says that the bank can ask to wait (Retry-After).
	Waits bool
}

// Unread are the answers to a question that prove nothing.
var Unread = []StatusFault{
	{"is a 404 in HTML", transfer.StatusUnknown, false},
	{"is a 400", transfer.StatusUnknown, false},
	{"is a 401", transfer.StatusUnknown, false},
	{"is a 429", transfer.StatusUnknown, true},
	{"is a 500", transfer.StatusUnknown, false},
	{"is a 503", transfer.StatusUnknown, true},
	{"is a redirect", transfer.StatusUnknown, false},
	{"is reset", transfer.StatusUnknown, false},
	{"is cut short", transfer.StatusUnknown, false},
	{"is null", transfer.StatusUnknown, false},
	{"is HTML with 200", transfer.StatusUnknown, false},
	{"never comes", transfer.StatusUnknown, false},
}

// Forgotten are the answers of a bank that does not know what it has.
var Forgotten = []StatusFault{
	{"is an empty list", transfer.StatusNotFound, false},
	{"is a typed 404", transfer.StatusNotFound, false},
}

// Misread are the answers that tell of something else than the bank has.
var Misread = []StatusFault{
	{"has an unknown status word", transfer.StatusPending, false},
	{"has two matches", transfer.StatusManual, false},
	{"has another amount", transfer.StatusManual, false},
	{"has another currency", transfer.StatusManual, false},
	{"has another creditor", transfer.StatusManual, false},
}
