package settle

import "testing"

// TestHistoryOfEveryTransition wants every row of the state machine to be a
// possible event, by its own cause and by no other.
func TestHistoryOfEveryTransition(t *testing.T) {
	t.Parallel()
	for _, row := range transitions {
		e := InstructionEvent{From: row.from, To: row.to, Cause: row.on.cause()}
		if !e.Possible() {
			t.Errorf("%+v is not possible", e)
		}
		if e.Reverses() != (row.from != row.to && (row.to == InstructionRejected || row.to == InstructionReturned)) {
			t.Errorf("%+v: reverses %t", e, e.Reverses())
		}
	}
	for _, e := range []InstructionEvent{
		{From: InstructionUncertain, To: InstructionUncertain, Cause: CauseCreated},
		{From: InstructionNone, To: InstructionAccepted, Cause: CauseCreated},
		{From: InstructionAccepted, To: InstructionAccepted, Cause: CauseSend},
		// Never confirmed by the answer to a send, and never back from a final state.
		{From: InstructionUncertain, To: InstructionConfirmed, Cause: CauseAnswer},
		{From: InstructionConfirmed, To: InstructionAccepted, Cause: CauseStatus},
		{From: InstructionRejected, To: InstructionConfirmed, Cause: CauseStatus},
		{From: InstructionUncertain, To: InstructionAccepted, Cause: ""},
		// People decide about what is manual alone, and a program does not.
		{From: InstructionUncertain, To: InstructionConfirmed, Cause: CauseDecided},
		{From: InstructionManual, To: InstructionConfirmed, Cause: CauseStatus},
	} {
		if e.Possible() {
			t.Errorf("%+v is possible", e)
		}
	}
}

func TestSendBounds(t *testing.T) {
	t.Parallel()
	const open = InstructionUncertain
	created := InstructionEvent{To: open, Cause: CauseCreated}
	answer := InstructionEvent{From: open, To: open, Cause: CauseAnswer, Detail: "uncertain; the answer is no JSON"}
	notSent := InstructionEvent{From: open, To: open, Cause: CauseAnswer, Detail: "not_sent; refused"}
	send := InstructionEvent{From: open, To: open, Cause: CauseSend}
	question := InstructionEvent{From: open, To: open, Cause: CauseStatus}
	for _, tt := range []struct {
		name        string
		history     []InstructionEvent
		least, most int64
	}{
		{"created", []InstructionEvent{created}, 0, 1},
		{"answered", []InstructionEvent{created, answer}, 1, 1},
		{"not sent", []InstructionEvent{created, notSent}, 0, 0},
		{"not sent, then sent", []InstructionEvent{created, notSent, send, answer}, 1, 1},
		{"perhaps sent again", []InstructionEvent{created, answer, question}, 1, 2},
		{"a new key", []InstructionEvent{created, answer, {From: InstructionManual, To: open, Cause: CauseDecided}, question}, 0, 1},
		{"no more than allowed", []InstructionEvent{created, answer, question, question, question, question, question}, 1, MaxSends},
	} {
		if least, most := SendBounds(tt.history); least != tt.least || most != tt.most {
			t.Errorf("%s: %d to %d, want %d to %d", tt.name, least, most, tt.least, tt.most)
		}
	}
}
