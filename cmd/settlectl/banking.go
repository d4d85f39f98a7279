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
	"github.com/settleonce/settleonce/internal/term"
)

// bankHelp is the part of the help of commands that ask the bank.
const bankHelp = `It asks the bank of --function with the token in BANK_TOKEN. Give also
BANK_PROFILE if the function has one. It refuses to run if a value in the
environment differs from the function's, or if the function uses another
database. To keep the token off the command line:
  export BANK_TOKEN="$(gcloud secrets versions access latest \
    --secret=settleonce-bank-token)"`

// remarkEnvironment marks events of a bank that was not compared with the function's.
const remarkEnvironment = "the bank is the one of the operator's environment (--bank-from-environment)"

// maxClockOff bounds the difference of this machine's clock to Spanner's, because leases,
// the key's lifetime and the visibility lag use this machine's clock.
const maxClockOff = 5 * time.Second

// banking is the function's bank.
type banking struct {
	bank   transfer.Bank // nil: no bank
	auth   authObserver
	policy transfer.Policy
	// compareClock is false for an emulator, whose clock does not matter.
	compareClock bool
}

// bankFlags select the bank.
type bankFlags struct {
	function, endpoint string
	fromEnvironment    bool
}

func (f *bankFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.function, "function", "", "`name` of SettlePayout: projects/P/locations/L/functions/F")
	cmd.Flags().StringVar(&f.endpoint, "functions-endpoint", "", "`URL` of another Cloud Functions API than Google's; it gets no credentials")
	cmd.Flags().BoolVar(&f.fromEnvironment, "bank-from-environment", false, "take the bank from this program's environment")
	cmd.MarkFlagsMutuallyExclusive("function", "bank-from-environment")
}

func (f bankFlags) check(database databaseFlags) error {
	if f.function == "" && !f.fromEnvironment && database.emulator == "" {
		return errors.New("--function is missing; name the deployed function, or give --bank-from-environment")
	}
	return checkFunctionName(f.function)
}

// functionVariables have to have the function's values.
var functionVariables = []string{
	config.EnvBankURL, config.EnvBankKeyLifetime, config.EnvBankVisibilityLag, config.EnvBankSendTimeout, config.EnvBankStatusTimeout,
}

// functionsOptions connect to another Cloud Functions API; empty: Google's.
func functionsOptions(endpoint string) []option.ClientOption {
	if endpoint == "" {
		return nil
	}
	return []option.ClientOption{option.WithEndpoint(endpoint), option.WithoutAuthentication()}
}

// variables returns the environment that configures the bank.
func (f bankFlags) variables(ctx context.Context, s streams, database string) (func(string) string, error) {
	if f.function == "" {
		return s.getenv, nil
	}
	theirs, err := doctor.Variables(ctx, f.function, functionsOptions(f.endpoint)...)
	if err != nil {
		return nil, term.Failf("%w; try again, or give --bank-from-environment", err)
	}
	if theirs[config.EnvDatabase] != database {
		return nil, term.Failf("function %s uses database %q; give that --database, or another --function", f.function, theirs[config.EnvDatabase])
	}
	for _, name := range functionVariables {
		if ours := s.getenv(name); ours != "" && ours != theirs[name] {
			return nil, term.Failf("%s is %q here and %q in function %s; unset it here", name, ours, theirs[name], f.function)
		}
	}
	if ours, has := s.getenv(config.EnvBankProfile) != "", theirs[config.EnvBankProfile]; ours != (has != "") {
		return nil, term.Failf("%s is %q in function %s; set it here to the path of the same file, or unset it if the function has none", config.EnvBankProfile, has, f.function)
	}
	return func(name string) string {
		if slices.Contains(functionVariables, name) {
			return theirs[name]
		}
		return s.getenv(name)
	}, nil
}

// open configures the bank like the function does.
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
		return banking{}, term.Failf("%w", err)
	}
	b := banking{compareClock: database.emulator == ""}
	if cfg.Bank == nil {
		b.policy = bank.Config{Profile: bank.GenericProfile()}.Policy() // also without a bank, the rules about time hold
		return b, nil
	}
	if cfg.Bank.Token == "" {
		return banking{}, errNoToken
	}
	clocked := *cfg.Bank
	clocked.Now = s.now
	client, err := bank.New(clocked)
	if err != nil {
		return banking{}, term.Failf("%w", err)
	}
	b.auth, b.policy = authObserver{Bank: client, failures: new(atomic.Int64)}, clocked.Policy()
	if f.fromEnvironment {
		b.auth.remark = remarkEnvironment
	}
	b.bank = b.auth
	return b, nil
}

// stepper returns a stepper that logs warnings on standard error, and the number of its
// critical log lines.
func (b banking) stepper(s streams, store transfer.Store) (*transfer.Stepper, *atomic.Int64) {
	critical := new(atomic.Int64)
	count := func(_ []string, a slog.Attr) slog.Attr { // called for the level of each line
		if level, is := a.Value.Any().(slog.Level); is && level >= transfer.LevelCritical {
			critical.Add(1)
		}
		return a
	}
	log := slog.New(slog.NewTextHandler(s.Err, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: count}))
	return &transfer.Stepper{Store: store, Bank: b.bank, Policy: b.policy, NewID: uuid.NewString, Now: s.now, Log: log}, critical
}

var (
	errNoBank  = errors.New("BANK_URL is not set; name the function that has it by --function")
	errNoToken = errors.New("BANK_TOKEN is not set; --help shows how to read the function's token")
)

// change opens the database for a command that changes rows, and calls f with the
// operator. id is the settlement for error messages; empty: none.
func (o *operation) change(ctx context.Context, id string, faults error, f func(context.Context, *ledger.Operator) error) error {
	return o.read(ctx, faults, func(ctx context.Context, r ledger.Reader) error {
		return explainRefusal(o.database, id, f(ctx, &ledger.Operator{Client: r.Client, NewID: uuid.NewString, Now: o.now}))
	})
}

// changeWithBank is change for a command about bank instructions.
func (o *operation) changeWithBank(ctx context.Context, id string, b banking, f func(context.Context, *ledger.Operator) error) error {
	return o.change(ctx, id, nil, func(ctx context.Context, by *ledger.Operator) error {
		store, err := spannerstore.Open(ctx, o.database.storeConfig())
		if err != nil {
			return o.database.explain(err)
		}
		defer store.Close()
		by.Store, by.Bank, by.Policy = store, b.bank, b.policy
		if b.compareClock {
			if err := checkClock(ctx, by); err != nil {
				return err
			}
		}
		return f(ctx, by)
	})
}

// checkClock compares this machine's clock with Spanner's.
func checkClock(ctx context.Context, o *ledger.Operator) error {
	off, err := o.ClockOff(ctx)
	if err != nil {
		return err
	}
	if off.Abs() > maxClockOff {
		return term.Failf("this machine's clock differs from Spanner's by %v, more than %v; set the clock, or use another machine", off.Round(time.Second/10), maxClockOff)
	}
	return nil
}

// explainRefusal gives errors of package ledger their exit code.
func explainRefusal(flags databaseFlags, id string, err error) error {
	if err == nil {
		return nil
	}
	if _, is := errors.AsType[*term.CodedError](err); is {
		return err
	}
	refused, isRefused := errors.AsType[*transfer.Refused](err)
	switch {
	case isRefused:
		return noWith("refused: %s", visible(refused.Error()))
	case errors.Is(err, ledger.ErrNoSettlement):
		return noSettlement(id, flags)
	case errors.Is(err, ledger.ErrNoMessage):
		return &term.CodedError{Code: term.ExitNotFound, Err: errors.New(visible(err.Error()))}
	case errors.Is(err, transfer.ErrNoInstruction):
		return noWith("%s", visible(err.Error()))
	}
	_, unmarked := errors.AsType[*ledger.NotMarked](err)
	if unmarked || spanner.ErrCode(err) == codes.Unknown { // its own text says more, or it is not Spanner's
		return term.Failf("%w", err)
	}
	return flags.explain(err)
}

// oneOf requires either an argument or a flag.
func oneOf(args []string, name string, given bool, flag string) error {
	if (len(args) == 1) == given {
		return fmt.Errorf("give either %s or %s", name, flag)
	}
	return nil
}

// checkText requires flags to have a line of text.
func checkText(cmd *cobra.Command, names ...string) error {
	var faults []error
	for _, name := range names {
		value, err := cmd.Flags().GetString(name)
		valid := transfer.ValidNote
		if slices.Contains([]string{"by", "second"}, name) {
			valid = transfer.ValidName
		}
		if err != nil || !valid(value) {
			faults = append(faults, fmt.Errorf("--%s is %q; give one line of text", name, value))
		}
	}
	return errors.Join(faults...)
}

// topicPublisher publishes to one topic, one message at a time.
type topicPublisher struct {
	publisher *pubsub.Publisher
	topic     string
}

func newTopicPublisher(client *pubsub.Client, topic string) topicPublisher {
	p := client.Publisher(topic)
	p.EnableMessageOrdering = true // messages keep their ordering keys
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
		t.publisher.ResumePublish(m.OrderingKey) // otherwise the client refuses the next message of the key
	}
	return "", term.Failf("publish to %s: %w; the message stays in quarantine", t.topic, err)
}
