package transfer

import "time"

// Next tells what the next step of the instruction does and when it may begin, as
// far as nothing happens before; [PlanNothing] where none comes. It is for people:
// a step looks for itself.
func (in Instruction) Next() (Plan, time.Time) {
	plan := planFor(in, in.NextCheckAt)
	if plan == PlanNothing {
		return PlanNothing, time.Time{}
	}
	return plan, in.NextCheckAt
}

// WatchedUntil is when the bank is no longer asked about an instruction whose
// outcome is final; zero while it is not.
func (in Instruction) WatchedUntil() time.Time {
	if in.FinalAt.IsZero() {
		return time.Time{}
	}
	return in.FinalAt.Add(watchFor)
}
