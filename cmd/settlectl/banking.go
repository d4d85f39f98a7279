package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/spanner"
	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"

	"github.com/settleonce/settleonce/internal/bank"
	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/doctor"
	"github.com/settleonce/settleonce/internal/ledger"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// bankHelp says where the bank comes from.
const bankHelp = `The bank is the function's: --function names the deployed function, and
BANK_URL, BANK_KEY_LIFETIME, BANK_VISIBILITY_LAG, BANK_SEND_TIMEOUT and
BANK_STATUS_TIMEOUT are read from it. BANK_TOKEN, and BANK_PROFILE where the
function has one, come from this program's environment; what else is set there
and differs is refused, and so is a function on another database.
--bank-from-environment takes everything from the environment. One of the two is
needed, but with an emulator, where it is the environment without either.

Operators may read the secrets that deploy.sh keeps. This puts the token on no
command line; BANK_PROFILE names a file with what settleonce-bank-profile holds:
  export BANK_TOKEN="$(gcloud secrets versions access latest \
    --secret=settleonce-bank-token)"
`

// changeHelp says what else holds where the bank is asked before a change.
const changeHelp = `What was done with --bank-from-environment says so in the history. The clock of
this machine has to be within 5s of Spanner's.
`

// roleHelp says what a command needs in the database.
const roleHelp = `The database role settleonce_operator is enough.`

// remarkEnvironment stands in the history of what was done with a bank that nobody
// compared with the function's.
const remarkEnvironment = "the bank is the one of the operator's environment (--bank-from-environment)"

// maxClockOff is how far this machine's clock may be from Spanner's: leases, the
// key's lifetime and the visibility lag are counted by it.
const maxClockOff = 5 * time.Second

// banking is the function's bank.
type banking struct {
	bank   transfer.Bank // nil for none
	door   door
	policy transfer.Policy
	// remark is what events are to say about it.
	remark string
	// timed says that the clock has to be Spanner's. An emulator's is not asked for.
	timed bool
}

// bankFlags say where the bank comes from.
type bankFlags struct {
	function, endpoint string
	fromEnvironment    bool
}

func (f *bankFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.function, "function", "", "`name` of SettlePayout, whose bank it is: projects/P/locations/L/functions/F")
	cmd.Flags().StringVar(&f.endpoint, "functions-endpoint", "", "`URL` of the Cloud Functions API, where it is not Google's; no credentials are sent there")
	cmd.Flags().BoolVar(&f.fromEnvironment, "bank-from-environment", false, "take the bank from this program's environment instead")
	cmd.MarkFlagsMutuallyExclusive("function", "bank-from-environment")
}

// check finds flags that are wrong.
func (f bankFlags) check(database databaseFlags) error {
	if f.function == "" && !f.fromEnvironment && database.emulator == "" {
		return wrongf("function", "--function is missing; name the deployed function whose bank it is, or give --bank-from-environment")
	}
	return checkFunctionName(f.function)
}

// functionsVariables are those that have to be the function's.
var functionsVariables = []string{
	config.EnvBankURL, config.EnvBankKeyLifetime, config.EnvBankVisibilityLag, config.EnvBankSendTimeout, config.EnvBankStatusTimeout,
}

// variables returns the environment that the bank is configured by.
func (f bankFlags) variables(ctx context.Context, s streams, database string) (func(string) string, error) {
	if f.function == "" {
		return s.getenv, nil
	}
	var options []option.ClientOption
	if f.endpoint != "" {
		options = []option.ClientOption{option.WithEndpoint(f.endpoint), option.WithoutAuthentication()}
	}
	theirs, err := doctor.Variables(ctx, f.function, options...)
	if err != nil {
		return nil, failf("%w; or give --bank-from-environment", err)
	}
	if theirs[config.EnvDatabase] != database {
		return nil, failf("function %s works on database %q; give its --database, or another --function", f.function, theirs[config.EnvDatabase])
	}
	for _, name := range functionsVariables {
		if ours := s.getenv(name); ours != "" && ours != theirs[name] {
			return nil, failf("%s is %q here and %q in function %s; leave it out here", name, ours, theirs[name], f.function)
		}
	}
	if ours, has := s.getenv(config.EnvBankProfile) != "", theirs[config.EnvBankProfile]; ours != (has != "") {
		return nil, failf("%s is %q in function %s; set it here to the path of the same file, or leave it out as there", config.EnvBankProfile, has, f.function)
	}
	return func(name string) string {
		if slices.Contains(functionsVariables, name) {
			return theirs[name]
		}
		return s.getenv(name)
	}, nil
}

// open reads the configuration of the bank as the function does.
func (f bankFlags) open(ctx context.Context, s streams, database databaseFlags) (banking, error) {
	variables, err := f.variables(ctx, s, database.name)
	if err != nil {
		return banking{}, err
	}
	cfg, err := config.FromEnv(func(name string) (string, bool) {
		if name == config.EnvDatabase {
			return database.name, true
		}
		return variables(name), true // empty counts as unset
	})
	if err != nil {
		return banking{}, failf("%w", err)
	}
	b := banking{timed: database.emulator == ""}
	if cfg.Bank == nil {
		b.policy = bank.Config{Profile: bank.GenericProfile()}.Policy() // the rules about time hold without a bank too
		return b, nil
	}
	if cfg.Bank.Token == "" {
		return banking{}, errNoToken
	}
	clocked := *cfg.Bank
	clocked.Now = s.now
	client, err := bank.New(clocked)
	if err != nil {
		return banking{}, failf("%w", err)
	}
	b.door, b.policy = newDoor(client), clocked.Policy()
	b.bank = b.door
	if f.fromEnvironment {
		b.bank, b.remark = remarkedBank{b.door}, remarkEnvironment
	}
	return b, nil
}

// remarkedBank lets the events of its answers say whence it is.
type remarkedBank struct{ transfer.Bank }

// Send implements transfer.Bank.
func (b remarkedBank) Send(ctx context.Context, r transfer.SendRequest) transfer.SendResult {
	result := b.Bank.Send(ctx, r)
	result.Answer.Detail = remarked(result.Answer.Detail)
	return result
}

// Status implements transfer.Bank.
func (b remarkedBank) Status(ctx context.Context, r transfer.StatusRequest) transfer.StatusResult {
	result := b.Bank.Status(ctx, r)
	result.Answer.Detail = remarked(result.Answer.Detail)
	return result
}

func remarked(detail string) string {
	if detail == "" {
		return remarkEnvironment
	}
	return detail + "; " + remarkEnvironment
}

// stepper makes steps, and tells standard error of what is unusual. It counts what
// somebody has to look at now.
func (b banking) stepper(s streams, store transfer.Store) (*transfer.Stepper, *atomic.Int64) {
	log := alarmed{slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: slog.LevelWarn}), new(atomic.Int64)}
	return &transfer.Stepper{Store: store, Bank: b.bank, Policy: b.policy, NewID: uuid.NewString, Now: s.now, Log: slog.New(log)}, log.alarms
}

// alarmed counts the critical lines of a log.
type alarmed struct {
	slog.Handler
	alarms *atomic.Int64
}

// Handle implements [slog.Handler].
func (a alarmed) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= transfer.LevelCritical {
		a.alarms.Add(1)
	}
	return a.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (a alarmed) WithAttrs(attrs []slog.Attr) slog.Handler {
	return alarmed{a.Handler.WithAttrs(attrs), a.alarms}
}

// WithGroup implements [slog.Handler].
func (a alarmed) WithGroup(name string) slog.Handler {
	return alarmed{a.Handler.WithGroup(name), a.alarms}
}

// errNoBankHere reports that there is no bank.
var errNoBankHere = errors.New("BANK_URL is not set; name the function that has it by --function")

// errNoToken reports that nobody said how the bank lets us in.
var errNoToken = errors.New("BANK_TOKEN is not set; --help says where the function's own token is read from")

// operating opens the database for a command that changes something, and hands the
// operator to f. id is the settlement that it is about; empty: none.
func operating(ctx context.Context, s streams, flags databaseFlags, id string, f func(context.Context, *ledger.Operator) error) error {
	return interruptible(ctx, func(ctx context.Context) error {
		client, err := flags.open(ctx)
		if err != nil {
			return err
		}
		defer client.Close()
		return explainRefusal(flags, id, f(ctx, &ledger.Operator{Client: client, NewID: uuid.NewString, Now: s.now}))
	})
}

// banked is operating for a command about bank instructions.
func banked(ctx context.Context, s streams, flags databaseFlags, id string, b banking, f func(context.Context, *ledger.Operator) error) error {
	return operating(ctx, s, flags, id, func(ctx context.Context, o *ledger.Operator) error {
		store, err := spannerstore.Open(ctx, flags.storeConfig())
		if err != nil {
			return flags.explain(err)
		}
		defer store.Close()
		o.Store, o.Bank, o.Policy = store, b.bank, b.policy
		if b.timed {
			if err := inTime(ctx, o); err != nil {
				return err
			}
		}
		return f(ctx, o)
	})
}

// inTime refuses a clock that is not Spanner's.
func inTime(ctx context.Context, o *ledger.Operator) error {
	off, err := o.ClockOff(ctx)
	if err != nil {
		return err
	}
	if off.Abs() > maxClockOff {
		return failf("this machine's clock is off from Spanner's by %v, at most %v is allowed; set it, or use another machine", off.Round(time.Second/10), maxClockOff)
	}
	return nil
}

// explainRefusal gives an error of package operate the program's exit code.
func explainRefusal(flags databaseFlags, id string, err error) error {
	if err == nil {
		return nil
	}
	if _, is := errors.AsType[*codedError](err); is {
		return err
	}
	refused, isRefused := errors.AsType[*transfer.Refused](err)
	switch {
	case isRefused:
		return &codedError{code: exitNo, err: fmt.Errorf("refused: %s", visible(refused.Error()))}
	case errors.Is(err, ledger.ErrNoSettlement):
		return noSettlement(id, flags)
	case errors.Is(err, ledger.ErrNoMessage):
		return &codedError{code: exitAbsent, err: errors.New(visible(err.Error()))}
	case errors.Is(err, transfer.ErrNoInstruction):
		return &codedError{code: exitNo, err: errors.New(visible(err.Error()))}
	}
	_, unmarked := errors.AsType[*ledger.NotMarked](err)
	if unmarked || spanner.ErrCode(err) == codes.Unknown { // what was done matters more, or it is not Spanner's
		return failf("%w", err)
	}
	return flags.explain(err)
}

// requireText finds flags that have to say something.
func requireText(cmd *cobra.Command, names ...string) error {
	var faults []error
	for _, name := range names {
		value, err := cmd.Flags().GetString(name)
		valid := transfer.ValidNote
		if slices.Contains([]string{"by", "second"}, name) {
			valid = transfer.ValidName
		}
		if err != nil || !valid(value) {
			faults = append(faults, wrongf(name, "--%s is %q; give one line of text", name, value))
		}
	}
	return errors.Join(faults...)
}

// topicPublisher publishes to one topic, a message at a time.
type topicPublisher struct {
	publisher *pubsub.Publisher
	topic     string
}

func newTopicPublisher(client *pubsub.Client, topic string) topicPublisher {
	p := client.Publisher(topic)
	p.EnableMessageOrdering = true // a message keeps its ordering key
	p.PublishSettings.CountThreshold = 1
	return topicPublisher{p, topic}
}

// Publish implements ledger.Publisher.
func (t topicPublisher) Publish(ctx context.Context, m *pubsub.Message) (string, error) {
	id, err := t.publisher.Publish(ctx, m).Get(ctx)
	if err == nil {
		return id, nil
	}
	if m.OrderingKey != "" {
		t.publisher.ResumePublish(m.OrderingKey) // the next one is tried again
	}
	return "", failf("publish to %s: %w; the message stays in quarantine", t.topic, err)
}
