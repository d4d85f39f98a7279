package linear

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/settleonce/settleonce/internal/settle"
)

// Payload is a payout message without its settlement ID. The zero value is none.
type Payload int

// The payloads differ from each other in different members, so that the members of a
// conflict identify the settled payload.
const (
	None Payload = iota
	A
	B
	C
)

// Malformed is no payout. It is delivered under settlement IDs of its own, which name the
// message.
const Malformed Payload = C + 1

// Payloads are the payouts.
var Payloads = [...]Payload{A, B, C}

var members = [...]string{"account_id", "amount_cents", "reference"}

// content has the values of the members.
var content = [...][len(members)]string{
	A: {"reserve-claims", "4731", ""},
	B: {"reserve-claims", "4732", ""},
	C: {"reserve-glass", "4731", "claim 19-4431"},
}

// String returns the payload's letter, or a dash.
func (p Payload) String() string { return "-ABCM"[p : p+1] }

// Message returns the payload as a message with the settlement ID.
func (p Payload) Message(settlementID string) string {
	if p == Malformed {
		return "no payout, " + settlementID
	}
	c := content[p]
	reference := ""
	if c[2] != "" {
		reference = fmt.Sprintf(`,"reference":%q`, c[2])
	}
	return fmt.Sprintf(`{"settlement_id":%q,"account_id":%q,"amount_cents":%s%s}`, settlementID, c[0], c[1], reference)
}

// differing lists the members in which p differs from the settled payload, as an answer
// lists them.
func (p Payload) differing(settled Payload) string {
	var names []string
	for i, name := range members {
		if content[p][i] != content[settled][i] {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// payloadOf returns the payload of a movement; None if no payload has its content.
func payloadOf(m settle.Movement) Payload {
	return Payload(max(0, slices.Index(content[:], [...]string{m.AccountID, strconv.FormatInt(m.AmountCents, 10), m.Reference})))
}
