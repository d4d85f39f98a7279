package bench

// Report is what a run has found. Its JSON form is what --json prints.
type Report struct {
	Machine    Machine      `json:"machine"`
	Sizes      Sizes        `json:"sizes"`
	Contenders []Entrant    `json:"contenders"`
	Claims     []Claim      `json:"claims"`
	Wire       []Wire       `json:"wire"`
	CPU        []CPU        `json:"cpu"`
	Network    []Network    `json:"network"`
	Latency    []Latency    `json:"latency"`
	Throughput []Throughput `json:"throughput"`
	Growth     []Growth     `json:"growth"`
	Crashes    []Crashes    `json:"crashes"`
	Storm      []Storm      `json:"storm"`
	ColdStart  *ColdStart   `json:"cold_start"`
	Floor      *Floor       `json:"floor"`
	// Seconds is how long the run took.
	Seconds float64 `json:"seconds"`
}

// Machine is where a run took place.
type Machine struct {
	CPUs     int    `json:"cpus"`
	CPU      string `json:"cpu"`
	OS       string `json:"os"`
	Go       string `json:"go"`
	Spanner  string `json:"spanner"`
	Postgres string `json:"postgres"`
	// Load is the load average of the minute before the run; below zero: unknown.
	Load float64 `json:"load"`
	// Date is the day of the run, in UTC.
	Date string `json:"date"`
}

// Entrant is a contender of a run.
type Entrant struct {
	Key   string `json:"key"`
	Name  string `json:"name"`
	About string `json:"about"`
	// Missing says why it did not take part; empty: it did.
	Missing string `json:"missing,omitzero"`
}

// Claim is something that the run has to show.
type Claim struct {
	Text  string `json:"text"`
	Limit string `json:"limit"`
	Found string `json:"found"`
	Holds bool   `json:"holds"`
}

// The kinds of events.
const (
	EventFresh     = "fresh"
	EventDuplicate = "duplicate"
	EventConflict  = "conflict"
)

// Wire is what an event of a kind costs on the wire, with connections that are open
// and statements that are prepared. Each figure is the mean of the events.
type Wire struct {
	Contender string `json:"contender"`
	Event     string `json:"event"`
	// RoundTrips are RPCs for Spanner, questions answered for PostgreSQL. LeastTrips
	// and MostTrips are those of single events.
	RoundTrips float64 `json:"round_trips"`
	LeastTrips int64   `json:"least_round_trips"`
	MostTrips  int64   `json:"most_round_trips"`
	Commits    float64 `json:"commits"`
	Sent       float64 `json:"bytes_sent"`
	Received   float64 `json:"bytes_received"`
}

// CPU is what a fresh event costs this process: user and system time and allocations,
// less what it uses when idle.
type CPU struct {
	Contender   string  `json:"contender"`
	MicrosEvent Summary `json:"us_per_event"`
	Allocations Summary `json:"allocations_per_event"`
	// Ratio is to Settle Once.
	Ratio Summary `json:"ratio"`
}

// Network is what a round trip of the simulated network takes.
type Network struct {
	// RoundTripMillis is what it has to take; 0: loopback without proxy in between.
	RoundTripMillis float64 `json:"round_trip_ms"`
	// Millis is what a byte there and back took, in the rounds of the latencies.
	Millis Summary `json:"ms"`
	// Fresh is Settle Once's fresh event in such round trips.
	Fresh Summary `json:"fresh"`
}

// Latency is how long an event takes, one at a time.
type Latency struct {
	Contender string `json:"contender"`
	Event     string `json:"event"`
	// RoundTripMillis is the network's; 0: loopback without proxy in between.
	RoundTripMillis float64 `json:"round_trip_ms"`
	// Millis is of the rounds' medians.
	Millis Summary `json:"ms"`
	Ratio  Summary `json:"ratio"`
}

// Throughput is how many fresh events a second are settled.
type Throughput struct {
	Contender string  `json:"contender"`
	InFlight  int     `json:"in_flight"`
	PerSecond Summary `json:"per_second"`
	Ratio     Summary `json:"ratio"`
}

// Growth is what a fresh event takes where so many settlements are stored already.
type Growth struct {
	Contender  string  `json:"contender"`
	Rows       int     `json:"rows"`
	RoundTrips float64 `json:"round_trips"`
	Millis     Summary `json:"ms"`
	// MicrosCPU is of this process, with its idle connections to all sizes.
	MicrosCPU Summary `json:"client_us_per_event"`
	// DuplicateMillis is the median of a duplicate.
	DuplicateMillis Summary `json:"duplicate_ms"`
	// Ratio is the fresh event's to that at the least number of rows.
	Ratio Summary `json:"ratio"`
}

// Crashes is what is left when a process that settles is killed and the message is
// delivered again.
type Crashes struct {
	Contender string `json:"contender"`
	Kills     int    `json:"kills"`
	Correct   int    `json:"correct"`
	Lost      int    `json:"lost"`
	Doubled   int    `json:"doubled"`
	// Waited counts those that could be settled only after the record in progress
	// had expired.
	Waited int `json:"waited"`
	// Points counts the kills at each step that was met, such as "before Commit".
	Points map[string]int `json:"points"`
}

// Storm is how long other events take while one settlement is delivered many times
// at once, in waves.
type Storm struct {
	Contender string `json:"contender"`
	// Name is the contender's on paper: some of them meet storms only.
	Name string `json:"name"`
	// AtOnce is how many deliveries a wave has.
	AtOnce int `json:"at_once"`
	// Wave is how long it takes until all of them are answered, in milliseconds.
	Wave Summary `json:"wave_ms"`
	// RPCs are those of the storm and of the others during it.
	RPCs int64 `json:"rpcs"`
	// Calm and During are milliseconds of the others without a wave and within one.
	Calm   Quantiles `json:"calm_ms"`
	During Quantiles `json:"during_ms"`
	// Outcomes counts the answers to the one settlement.
	Outcomes map[string]int `json:"outcomes"`
}

// Waves is how often the settlement was delivered so many times at once.
func (s Storm) Waves() int {
	deliveries := 0
	for _, n := range s.Outcomes {
		deliveries += n
	}
	return deliveries / s.AtOnce
}

// Quantiles are of single events.
type Quantiles struct {
	Events int     `json:"events"`
	P50    float64 `json:"p50"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

// ColdStart compares the function with one that reads a row of Spanner, and with one
// that does nothing.
type ColdStart struct {
	// Programs are function, spanner and empty.
	Programs []Program `json:"programs"`
	// Ratio is the function's first answer to that of the empty one, RatioSpanner to
	// that of the one that reads a row.
	Ratio        Summary `json:"ratio"`
	RatioSpanner Summary `json:"ratio_spanner"`
	// Inits are what initialising the function's packages takes, in one start.
	Inits []Init `json:"inits"`
}

// Program is a function's program.
type Program struct {
	Name string `json:"name"`
	// Listening is from the start of the process to the open port, Answered to the
	// answer to the first event.
	Listening Summary `json:"listening_ms"`
	Answered  Summary `json:"answered_ms"`
	Megabytes float64 `json:"mb"`
	// Packages counts those that are linked, the standard library's included.
	Packages int `json:"packages"`
}

// Init is the initialisation of a package or of several.
type Init struct {
	Package     string  `json:"package"`
	Millis      float64 `json:"ms"`
	Allocations int     `json:"allocations"`
}

// Floor is what settling does on the client before and beside the network, and the
// least that it could be. Microseconds an event, and allocations.
type Floor struct {
	MessageBytes int `json:"message_bytes"`
	// Decode is decoding, validating and hashing.
	Decode            Summary `json:"decode_hash_us"`
	DecodeAllocations float64 `json:"decode_hash_allocations"`
	// Client is all that an event costs up to the network: Decode, the mutations and
	// the Spanner client with its interceptors, a Commit being answered at once.
	Client            Summary `json:"client_us"`
	ClientAllocations float64 `json:"client_allocations"`
	// SHA256 and Scan are the floor: hashing the message's bytes, and reading its
	// JSON tokens.
	SHA256 Summary `json:"sha256_us"`
	Scan   Summary `json:"json_scan_us"`
	// Ratio is Decode to SHA256 and Scan together.
	Ratio Summary `json:"ratio"`
}
