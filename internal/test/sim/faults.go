package sim

import "github.com/settleonce/settleonce/internal/settle"

// SendFault is a way in which a send goes wrong, and how the adapter has to read
// it. A test makes the fake bank do each, and compares what the real adapter says.
type SendFault struct {
	Name  string
	Class settle.SendClass
	// Waits says that the bank can ask to wait (Retry-After).
	Waits bool
}

// Unsent are the faults of a send of which nothing was written.
var Unsent = []SendFault{
	{"refuses the connection", settle.SendNotSent, false},
	{"fails in the TLS handshake", settle.SendNotSent, false},
	{"finds the breaker open", settle.SendNotSent, true},
}

// Unlooked are the answers of a bank, or of something before it, that has not
// looked at the transfer and never will.
var Unlooked = []SendFault{
	{"hangs up", settle.SendUncertain, false},
	{"redirects", settle.SendUncertain, false},
	{"answers 401", settle.SendHeld, false},
	{"answers 403 without a listed code", settle.SendHeld, false},
	{"answers 408", settle.SendUncertain, false},
	{"answers 425", settle.SendRetryLater, true},
	{"answers 429", settle.SendRetryLater, true},
	{"answers 503", settle.SendUncertain, true},
}

// Damages are what arrives instead of the answer to a send that the bank has
// looked at.
var Damages = []SendFault{
	{"is reset", settle.SendUncertain, false},
	{"is closed", settle.SendUncertain, false},
	{"is cut short of its length", settle.SendUncertain, false},
	{"is cut within a chunk", settle.SendUncertain, false},
	{"is cut and seems to end", settle.SendUncertain, false},
	{"is an empty object", settle.SendUncertain, false},
	{"is null", settle.SendUncertain, false},
	{"is HTML with 200", settle.SendUncertain, false},
	{"is 204", settle.SendUncertain, false},
	{"is an error object with 200", settle.SendUncertain, false},
	{"has trailing junk", settle.SendUncertain, false},
	{"has 5 MiB", settle.SendUncertain, false},
	{"is a 103 and then nothing", settle.SendUncertain, false},
	{"is a 500", settle.SendUncertain, true},
	{"has an unknown status word", settle.SendUncertain, false},
	{"is about another key", settle.SendUncertain, false},
	{"has another amount", settle.SendManual, false},
	{"has another currency", settle.SendManual, false},
	{"has another creditor", settle.SendManual, false},
}

// Repeats are the answers to a key that the bank remembers, where it does not
// replay.
var Repeats = []SendFault{
	{"says 409: it exists", settle.SendUncertain, false},
	{"says 409: in progress", settle.SendUncertain, false},
	{"says 400: duplicate", settle.SendUncertain, false},
	{"repeats the 500 that it answered first", settle.SendUncertain, false},
	{"says 409: locked after a 500", settle.SendUncertain, false},
}

// StatusFault is a way in which a question goes wrong, and how the adapter has to
// read it where the bank has the transfer.
type StatusFault struct {
	Name    string
	Reading settle.StatusReading
	// Waits says that the bank can ask to wait (Retry-After).
	Waits bool
}

// Unread are the answers to a question that prove nothing.
var Unread = []StatusFault{
	{"is a 404 in HTML", settle.StatusUnknown, false},
	{"is a 400", settle.StatusUnknown, false},
	{"is a 401", settle.StatusUnknown, false},
	{"is a 429", settle.StatusUnknown, true},
	{"is a 500", settle.StatusUnknown, false},
	{"is a 503", settle.StatusUnknown, true},
	{"is a redirect", settle.StatusUnknown, false},
	{"is reset", settle.StatusUnknown, false},
	{"is cut short", settle.StatusUnknown, false},
	{"is null", settle.StatusUnknown, false},
	{"is HTML with 200", settle.StatusUnknown, false},
	{"never comes", settle.StatusUnknown, false},
}

// Forgotten are the answers of a bank that does not know what it has.
var Forgotten = []StatusFault{
	{"is an empty list", settle.StatusNotFound, false},
	{"is a typed 404", settle.StatusNotFound, false},
}

// Misread are the answers that tell of something else than the bank has.
var Misread = []StatusFault{
	{"has an unknown status word", settle.StatusPending, false},
	{"has two matches", settle.StatusManual, false},
	{"has another amount", settle.StatusManual, false},
	{"has another currency", settle.StatusManual, false},
	{"has another creditor", settle.StatusManual, false},
}
