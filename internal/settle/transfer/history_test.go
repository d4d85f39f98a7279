package transfer

import "testing"

// TestHistoryOfEveryTransition checks that each row of the state machine is a possible
// event by its own cause only.
func TestHistoryOfEveryTransition(t *testing.T) {
	t.Parallel()
	for _, row := range transitions {
		e := Event{From: row.from, To: row.to, Cause: row.on.cause()}
		if !e.Possible() {
			t.Errorf("%+v is not possible", e)
		}
		if e.Reverses() != (row.from != row.to && (row.to == StateRejected || row.to == StateReturned)) {
			t.Errorf("%+v: reverses %t", e, e.Reverses())
		}
	}
	for _, e := range []Event{
		{From: StateUncertain, To: StateUncertain, Cause: CauseCreated},
		{From: StateNone, To: StateAccepted, Cause: CauseCreated},
		{From: StateAccepted, To: StateAccepted, Cause: CauseSend},
		// The answer to a send never confirms, and a final state is never undone.
		{From: StateUncertain, To: StateConfirmed, Cause: CauseAnswer},
		{From: StateConfirmed, To: StateAccepted, Cause: CauseStatus},
		{From: StateRejected, To: StateConfirmed, Cause: CauseStatus},
		{From: StateUncertain, To: StateAccepted, Cause: ""},
		// Only people leave manual, and they decide about nothing else.
		{From: StateUncertain, To: StateConfirmed, Cause: CauseDecided},
		{From: StateManual, To: StateConfirmed, Cause: CauseStatus},
		{From: StateManual, To: StateUncertain, Cause: CauseDecided},
	} {
		if e.Possible() {
			t.Errorf("%+v is possible", e)
		}
	}
}

func TestSendBounds(t *testing.T) {
	t.Parallel()
	const open = StateUncertain
	created := Event{To: open, Cause: CauseCreated}
	answer := Event{From: open, To: open, Cause: CauseAnswer, Detail: "uncertain; the answer is no JSON"}
	notSent := Event{From: open, To: open, Cause: CauseAnswer, Detail: "not_sent; refused"}
	send := Event{From: open, To: open, Cause: CauseSend}
	check := Event{From: open, To: open, Cause: CauseStatus}
	for _, tt := range []struct {
		name        string
		history     []Event
		least, most int64
	}{
		{"created", []Event{created}, 0, 1},
		{"answered", []Event{created, answer}, 1, 1},
		{"not sent", []Event{created, notSent}, 0, 0},
		{"not sent, then sent", []Event{created, notSent, send, answer}, 1, 1},
		{"perhaps sent again", []Event{created, answer, check}, 1, 2},
		{"no more than allowed", []Event{created, answer, check, check, check, check, check}, 1, MaxSends},
	} {
		if least, most := SendBounds(tt.history); least != tt.least || most != tt.most {
			t.Errorf("%s: %d to %d, want %d to %d", tt.name, least, most, tt.least, tt.most)
		}
	}
}
