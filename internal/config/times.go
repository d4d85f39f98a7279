package config

import (
	"strconv"
	"time"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// Set by the platform.
const (
	envService  = "K_SERVICE"
	envRevision = "K_REVISION"
	// envTarget names the function that this instance serves; without it, the instance
	// serves both.
	envTarget = "FUNCTION_TARGET"
	// envPlatformTimeout is the platform's limit of one request, in whole seconds.
	envPlatformTimeout = "CLOUD_RUN_TIMEOUT_SECONDS"
)

// The functions' names, by which the platform selects one.
const (
	SettlePayout  = "SettlePayout"
	ReconcileBank = "ReconcileBank"
)

// Deployed reports whether the platform runs this program. Lookup has the signature of
// os.LookupEnv.
func Deployed(lookup func(string) (string, bool)) bool {
	return (&environment{lookup: lookup}).service() != ""
}

// service is the platform's name of a deployed instance; empty elsewhere.
func (e *environment) service() string {
	name, _ := e.get(envService)
	return name
}

// reconcileTimeout is the least time limit of a run of ReconcileBank. Runs that overlap
// are harmless.
const reconcileTimeout = 2 * time.Minute

// LongestDelivery is the longest duration of a delivery: settling, the send of a new bank
// instruction and its recording. The function's timeout and the subscription's ack
// deadline have to be above it. Without a bank a delivery takes settleTimeout alone.
func LongestDelivery(settleTimeout, sendTimeout time.Duration) time.Duration {
	return settleTimeout + transfer.Policy{SendTimeout: sendTimeout}.LongestSend()
}

// ReconcileTimeout is the time limit of a run of ReconcileBank: 2 minutes, or two of the
// bank's longest steps if they take longer.
func (c Config) ReconcileTimeout() time.Duration {
	if c.Bank == nil {
		return reconcileTimeout
	}
	return max(reconcileTimeout, 2*c.Bank.Policy().LongestStep())
}

// maxAckDeadline is the longest ack deadline of a Pub/Sub subscription.
const maxAckDeadline = 10 * time.Minute

// checkTimes rejects time limits with which a delivery can outlast every ack deadline,
// or the platform's timeout: Pub/Sub would redeliver its message while it still runs, or
// the platform would stop it.
func (e *environment) checkTimes(c Config) {
	delivery, sum := c.SettleTimeout, EnvSettleTimeout
	if c.Bank != nil {
		delivery = LongestDelivery(c.SettleTimeout, c.Bank.SendTimeout)
		sum += " + " + EnvBankSendTimeout + " + " + transfer.RecordTimeout.String()
	}
	if delivery >= maxAckDeadline {
		e.fault("a delivery takes up to %v (%s); expected less than %v, the longest ack deadline", delivery, sum, maxAckDeadline)
	}
	target, _ := e.get(envTarget)
	limit := e.platformTimeout()
	if limit == 0 || e.service() == "" {
		return
	}
	if target != ReconcileBank && delivery >= limit {
		e.tooLong("a delivery", sum, delivery, limit)
	}
	if run := c.ReconcileTimeout(); target != SettlePayout && run >= limit {
		e.tooLong("a run of "+ReconcileBank, "2m, or 2 × ("+EnvBankStatusTimeout+" + "+EnvBankSendTimeout+" + "+(2*transfer.RecordTimeout).String()+")", run, limit)
	}
}

func (e *environment) tooLong(work, sum string, takes, limit time.Duration) {
	e.fault("%s takes up to %v (%s) and %s is %.0f: the platform would stop it; deploy the function with --timeout above %.0fs, or lower the sum",
		work, takes, sum, envPlatformTimeout, limit.Seconds(), takes.Seconds())
}

// platformTimeout is the platform's limit of one request; zero if it is unknown.
func (e *environment) platformTimeout() time.Duration {
	value, set := e.get(envPlatformTimeout)
	if !set {
		return 0
	}
	seconds, err := strconv.ParseUint(value, 10, 31)
	if err != nil || seconds == 0 {
		e.fault("%s is %q; expected a whole number of seconds", envPlatformTimeout, value)
	}
	return time.Duration(seconds) * time.Second
}
