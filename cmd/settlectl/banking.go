package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/spanner"
	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/settleonce/settleonce/internal/bank"
	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/operate"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// bankHelp says where the bank comes from.
const bankHelp = `The bank is the function's: BANK_URL, BANK_TOKEN, BANK_PROFILE, BANK_KEY_LIFETIME,
BANK_VISIBILITY_LAG, BANK_SEND_TIMEOUT and BANK_STATUS_TIMEOUT in this program's
environment have to say what they say in the function's.`

// roleHelp says what a command needs in the database.
const roleHelp = `The database role settleonce_operator is enough.`

// banking is the bank of the environment; the zero value is none.
type banking struct {
	bank   settle.Bank
	policy settle.Policy
}

// openBanking reads the environment as the function does.
func openBanking(s streams, database string) (banking, error) {
	cfg, err := config.FromEnv(func(name string) (string, bool) {
		if name == config.EnvDatabase {
			return database, true
		}
		return s.getenv(name), true // empty counts as unset
	})
	if err != nil {
		return banking{}, failf("%w", err)
	}
	if cfg.Bank == nil {
		return banking{}, nil
	}
	clocked := *cfg.Bank
	clocked.Now = s.now
	client, err := bank.New(clocked)
	if err != nil {
		return banking{}, failf("%w", err)
	}
	return banking{bank: client, policy: settle.Policy{
		KeyLifetime: clocked.Profile.KeyLifetime, VisibilityLag: clocked.Profile.VisibilityLag,
		SendTimeout: clocked.SendTimeout, StatusTimeout: clocked.StatusTimeout,
	}}, nil
}

// stepper makes steps, and tells standard error of what is unusual.
func (b banking) stepper(s streams, store settle.Store) *settle.Stepper {
	log := slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return &settle.Stepper{Store: store, Bank: b.bank, Policy: b.policy, NewID: uuid.NewString, Now: s.now, Log: log}
}

// errNoBankHere reports that the environment names no bank.
var errNoBankHere = errors.New("BANK_URL is not set; set it and the other BANK_ variables as the function has them")

// operating opens the database for a command that changes something, and hands
// the operator to f.
func operating(ctx context.Context, s streams, flags databaseFlags, b banking, f func(context.Context, *operate.Operator) error) error {
	return interruptible(ctx, func(ctx context.Context) error {
		client, err := flags.open(ctx)
		if err != nil {
			return err
		}
		defer client.Close()
		store, err := spannerstore.Open(ctx, flags.storeConfig())
		if err != nil {
			return flags.explain(err)
		}
		defer store.Close()
		err = f(ctx, &operate.Operator{Client: client, Store: store, Bank: b.bank, Policy: b.policy, NewID: uuid.NewString, Now: s.now})
		return explainRefusal(flags, err)
	})
}

// explainRefusal gives an error of package operate the program's exit code.
func explainRefusal(flags databaseFlags, err error) error {
	if err == nil {
		return nil
	}
	if _, is := errors.AsType[*codedError](err); is {
		return err
	}
	refused, isRefused := errors.AsType[*operate.Refused](err)
	objection, isObjection := errors.AsType[*settle.Objection](err)
	switch {
	case isRefused:
		return &codedError{code: exitNo, err: fmt.Errorf("refused: %s", visible(refused.Error()))}
	case isObjection:
		return &codedError{code: exitNo, err: fmt.Errorf("refused: %s", visible(objection.Error()))}
	case errors.Is(err, operate.ErrNoSettlement), errors.Is(err, operate.ErrNoMessage):
		return &codedError{code: exitAbsent, err: errors.New(visible(err.Error()))}
	case errors.Is(err, settle.ErrNoInstruction):
		return &codedError{code: exitNo, err: errors.New(visible(err.Error()))}
	}
	_, unmarked := errors.AsType[*operate.NotMarked](err)
	if unmarked || spanner.ErrCode(err) == codes.Unknown { // what was done matters more, or it is not Spanner's
		return failf("%w", err)
	}
	return flags.explain(err)
}

// requireText finds flags that have to say something.
func requireText(cmd *cobra.Command, names ...string) error {
	for _, name := range names {
		value, err := cmd.Flags().GetString(name)
		valid := settle.Notes
		if slices.Contains([]string{"by", "second"}, name) {
			valid = settle.Signs
		}
		if err != nil || !valid(value) {
			return fmt.Errorf("--%s is %q; give one line of text", name, value)
		}
	}
	return nil
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

// Publish implements operate.Publisher.
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
