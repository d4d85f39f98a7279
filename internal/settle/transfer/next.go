package transfer

import "time"

// Next returns the plan of the next step and its earliest time, if nothing changes
// before; [PlanNothing] for none. It is for display: a step plans again.
func (in Instruction) Next() (Plan, time.Time) {
	plan := planFor(in, in.NextCheckAt)
	if plan == PlanNothing {
		return PlanNothing, time.Time{}
	}
	return plan, in.NextCheckAt
}

// WatchedUntil is the end of the status checks of a final instruction; zero for one
// that is not final.
func (in Instruction) WatchedUntil() time.Time {
	if in.FinalAt.IsZero() {
		return time.Time{}
	}
	return in.FinalAt.Add(watchFor)
}
