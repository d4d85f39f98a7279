package linear

import (
	"fmt"
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

// Payloads are all but None.
var Payloads = [...]Payload{A, B, C}

var content = [...]struct {
	accountID   string
	amountCents int64
	reference   string
}{
	A: {accountID: "reserve-claims", amountCents: 4731},
	B: {accountID: "reserve-claims", amountCents: 4732},
	C: {accountID: "reserve-glass", amountCents: 4731, reference: "claim 19-4431"},
}

// String returns the payload's letter, or a dash.
func (p Payload) String() string { return "-ABC"[p : p+1] }

// Message returns the payload as a payout message with the settlement ID.
func (p Payload) Message(settlementID string) string {
	c := content[p]
	reference := ""
	if c.reference != "" {
		reference = fmt.Sprintf(`,"reference":%q`, c.reference)
	}
	return fmt.Sprintf(`{"settlement_id":%q,"account_id":%q,"amount_cents":%d%s}`, settlementID, c.accountID, c.amountCents, reference)
}

// differing lists the members in which p differs from the settled payload, as an answer
// lists them.
func (p Payload) differing(settled Payload) string {
	a, b := content[p], content[settled]
	var names []string
	if a.accountID != b.accountID {
		names = append(names, "account_id")
	}
	if a.amountCents != b.amountCents {
		names = append(names, "amount_cents")
	}
	if a.reference != b.reference {
		names = append(names, "reference")
	}
	return strings.Join(names, ",")
}

// payloadOf returns the payload of a movement; None if no payload has its content.
func payloadOf(m settle.Movement) Payload {
	for _, p := range Payloads {
		c := content[p]
		if m.AccountID == c.accountID && m.AmountCents == c.amountCents && m.Reference == c.reference {
			return p
		}
	}
	return None
}
