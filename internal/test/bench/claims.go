package bench

import "fmt"

// The limits that a run is held to. They are those of a quiet machine and the usual
// sizes; a quick run can miss them by noise.
const (
	maxFreshTrips   = 1
	maxConflict     = 3
	maxDuplicate    = 2
	claimRoundTrip  = 5.0 // ms
	maxLatencyTrips = 1.2
	minLatencyRatio = 3.0
	claimInFlight   = 64
	minThroughput   = 3.0
	maxDecodeMicros = 6.0
	maxDecodeAllocs = 20
	maxColdStart    = 1.5
	maxGrowth       = 1.3
	claimedAgainst  = "textbook"
	claimedName     = "SELECT, two INSERTs"
)

// claims holds a report to the limits, as far as it has the figures.
func claims(r Report) []Claim {
	var found []Claim
	add := func(text, limit, figure string, holds bool) {
		found = append(found, Claim{Text: text, Limit: limit, Found: figure, Holds: holds})
	}
	for _, w := range r.Wire {
		if w.Contender != Baseline {
			continue
		}
		limit := map[string]int64{EventFresh: maxFreshTrips, EventDuplicate: maxDuplicate, EventConflict: maxConflict}[w.Event]
		add("RPCs of a "+w.Event+" event", fmt.Sprintf("≤ %d", limit), fmt.Sprint(w.MostTrips), w.MostTrips <= limit)
	}
	latencyClaims(r, add)
	for _, t := range r.Throughput {
		if t.Contender == claimedAgainst && t.InFlight == claimInFlight && t.Ratio.Median > 0 {
			times := 1 / t.Ratio.Median
			add(fmt.Sprintf("throughput with %d in flight, times that of %s", claimInFlight, claimedName),
				fmt.Sprintf("≥ %g", minThroughput), fmt.Sprintf("%.1f", times), times >= minThroughput)
		}
	}
	if f := r.Floor; f != nil {
		add("decode, validate and hash, µs", fmt.Sprintf("≤ %g", maxDecodeMicros), fmt.Sprintf("%.1f", f.Decode.Median), f.Decode.Median <= maxDecodeMicros)
		add("decode, validate and hash, allocations", fmt.Sprintf("≤ %d", maxDecodeAllocs),
			fmt.Sprintf("%.0f", f.DecodeAllocations), f.DecodeAllocations <= maxDecodeAllocs+0.5)
	}
	if c := r.ColdStart; c != nil {
		add("cold start, times that of an empty function", fmt.Sprintf("≤ %g", maxColdStart), fmt.Sprintf("%.2f", c.Ratio.Median), c.Ratio.Median <= maxColdStart)
	}
	growthClaims(r, add)
	for _, c := range r.Crashes {
		if c.Contender == Baseline {
			add(fmt.Sprintf("correct after %d kills", c.Kills), fmt.Sprint(c.Kills), fmt.Sprint(c.Correct), c.Correct == c.Kills)
		}
	}
	return found
}

func latencyClaims(r Report, add func(text, limit, figure string, holds bool)) {
	for _, n := range r.Network {
		if n.RoundTripMillis == claimRoundTrip {
			add(fmt.Sprintf("fresh event at %g ms, in round trips as measured beside it", claimRoundTrip), fmt.Sprintf("≤ %g", maxLatencyTrips),
				fmt.Sprintf("%.2f", n.Fresh.Median), n.Fresh.Median <= maxLatencyTrips)
		}
	}
	for _, l := range r.Latency {
		if l.Event == EventFresh && l.RoundTripMillis == claimRoundTrip && l.Contender == claimedAgainst {
			add(fmt.Sprintf("fresh event at %g ms, times faster than %s", claimRoundTrip, claimedName), fmt.Sprintf("≥ %g", minLatencyRatio),
				fmt.Sprintf("%.1f", l.Ratio.Median), l.Ratio.Median >= minLatencyRatio)
		}
	}
}

func growthClaims(r Report, add func(text, limit, figure string, holds bool)) {
	var least, most *Growth
	for i, g := range r.Growth {
		if g.Contender != Baseline {
			continue
		}
		if least == nil {
			least = &r.Growth[i]
		}
		most = &r.Growth[i]
	}
	if least == nil || most == least {
		return
	}
	add(fmt.Sprintf("fresh event with %d rows, times that with %d", most.Rows, least.Rows), fmt.Sprintf("≤ %g", maxGrowth),
		fmt.Sprintf("%.2f", most.Ratio.Median), most.Ratio.Median <= maxGrowth)
}
