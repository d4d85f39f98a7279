package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/spanner"
	"github.com/go-json-experiment/json"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// ReleasedAttribute is the attribute of a released message. Its value is the hex
// message_key of the row in quarantine that it comes from.
const ReleasedAttribute = "settleonce-released"

// reservedAttributes begin the names of attributes that Pub/Sub writes itself and
// takes from nobody.
const reservedAttributes = "goog"

// markTimeout bounds the marking of a message that was published. It does not
// depend on who waits.
const markTimeout = 20 * time.Second

// Publisher publishes to the payouts topic, and waits until the message is kept.
type Publisher interface {
	Publish(ctx context.Context, m *pubsub.Message) (messageID string, err error)
}

// ErrNoMessage reports that no such message is in quarantine.
var ErrNoMessage = errors.New("there is no such message in quarantine")

// NotMarked reports a message that was published and could not be marked: it is
// still open.
type NotMarked struct {
	// PublishedAs is the ID of the new message.
	PublishedAs string
	Err         error
}

// Error says what was done, and what to do.
func (n *NotMarked) Error() string {
	return fmt.Sprintf("published as message %s, but not marked as released: %v; release the same again, which is harmless", n.PublishedAs, n.Err)
}

// Unwrap returns the database's error.
func (n *NotMarked) Unwrap() error { return n.Err }

// Kept is a message in quarantine as far as it is shown; never its data.
type Kept struct {
	Key           string        `json:"message_key"` // hex
	MessageID     string        `json:"message_id"`
	Subscription  string        `json:"subscription"`
	Reason        payout.Reason `json:"reason"`
	Member        string        `json:"member,omitzero"`
	QuarantinedAt time.Time     `json:"quarantined_at"`
	// ReleasedAt is zero while the message was not released.
	ReleasedAt time.Time `json:"released_at,omitzero"`
	ReleasedBy string    `json:"released_by,omitzero"`
}

// Release publishes a message again.
type Release struct {
	// By is who releases it, Note why. By is required, and Note with Edited.
	By, Note string
	// Edited is what is published in the place of the kept data; nil: the kept data.
	Edited []byte
	// DefaultCurrency is the function's: a message that was refused for want of one
	// may be accepted now.
	DefaultCurrency string
	// DryRun changes nothing.
	DryRun bool
}

// Released is a message that was published again.
type Released struct {
	Kept
	// SettlementID and PayloadHash are those of the payout that was published.
	SettlementID string      `json:"settlement_id"`
	PayloadHash  payout.Hash `json:"payload_hash"`
	// DefaultCurrency is the currency that both were worked out with, where the message
	// has none. The function works them out with its own. Empty: it has one.
	DefaultCurrency string `json:"default_currency,omitzero"`
	// PublishedAs is the ID of the new message; empty in a dry run.
	PublishedAs string `json:"published_as,omitzero"`
	// Edited says that it was not what was kept.
	Edited bool `json:"edited,omitzero"`
}

// maxCandidates bounds the messages that one message ID is looked up for.
const maxCandidates = 20

// keptColumns are the columns of [Kept].
const keptColumns = `TO_HEX(message_key) AS key_hex, message_id, subscription, reason, member, quarantined_at, released_at, released_by`

func scanKept(row *spanner.Row) (k Kept, err error) {
	var (
		reason     string
		member, by spanner.NullString
		at         spanner.NullTime
	)
	err = row.Columns(&k.Key, &k.MessageID, &k.Subscription, &reason, &member, &k.QuarantinedAt, &at, &by)
	k.Reason, k.Member, k.ReleasedAt, k.ReleasedBy = payout.Reason(reason), member.StringVal, at.Time, by.StringVal
	return k, err
}

// Find returns the messages in quarantine with a Pub/Sub message ID or a hex
// message_key, at most 20. A message ID is looked for in the whole table; a key is
// not. It fails with [ErrNoMessage].
func (o *Operator) Find(ctx context.Context, message string) (found []Kept, err error) {
	statement := spanner.Statement{
		SQL:    `SELECT ` + keptColumns + ` FROM quarantined_messages WHERE message_id = @id ORDER BY message_key LIMIT @most`,
		Params: map[string]any{"id": message, "most": maxCandidates},
	}
	if key, err := hex.DecodeString(message); err == nil && len(key) == sha256.Size {
		statement.SQL = `SELECT ` + keptColumns + ` FROM quarantined_messages WHERE message_key = @key`
		statement.Params = map[string]any{"key": key}
	}
	err = o.Client.Single().Query(ctx, statement).Do(func(row *spanner.Row) error {
		k, err := scanKept(row)
		found = append(found, k)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find message %q in quarantine: %w", message, err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("message %q: %w", message, ErrNoMessage)
	}
	return found, nil
}

// Release publishes a kept message again, and marks it. It fails with a *[Refused].
//
// It publishes first. A crash before the mark leaves the message open, and
// releasing it again publishes a second copy: the same payout is settled once however
// often it is published, and a copy that is refused again would be one more row in
// quarantine. The other way round a crash would leave a message that says released
// and was not: a payout that nobody pays.
func (o *Operator) Release(ctx context.Context, k Kept, r Release) (Released, error) {
	if !transfer.ValidName(r.By) || r.Note != "" && !transfer.ValidNote(r.Note) || r.Edited != nil && r.Note == "" {
		return Released{}, &Refused{
			"a name is missing, or a note that an edited message needs, or one of them is too long or has characters that cannot be seen",
			"say who releases it and, of an edited one, who of the producer agreed",
		}
	}
	kept, err := o.load(ctx, k.Key)
	if err != nil {
		return Released{}, err
	}
	p, err := kept.check(r)
	if err != nil {
		return Released{}, err
	}
	released := Released{Kept: kept.Kept, SettlementID: p.SettlementID, PayloadHash: p.Hash(), Edited: r.Edited != nil}
	if _, err := payout.Decode(kept.published(r), ""); err != nil { // what it lacks is what r gave it
		released.DefaultCurrency = p.Currency
	}
	if r.DryRun {
		return released, nil
	}
	released.PublishedAs, err = o.Topic.Publish(ctx, kept.message(r))
	if takenFromNobody(err) {
		return Released{}, &Refused{fmt.Sprintf("Pub/Sub refuses it: %v", err), "have the producer publish it again in a form that Pub/Sub takes"}
	}
	if err != nil {
		return Released{}, fmt.Errorf("publish message %q again: %w", kept.MessageID, err)
	}
	if released.Kept, err = o.mark(ctx, kept, r, released.PublishedAs); err != nil {
		return Released{}, &NotMarked{PublishedAs: released.PublishedAs, Err: err}
	}
	return released, nil
}

// takenFromNobody reports that Pub/Sub refused a message for what it is, such as one
// that has a hundred attributes before it gets another: it will always do so.
func takenFromNobody(err error) bool {
	return err != nil && (status.Code(err) == codes.InvalidArgument || errors.Is(err, pubsub.ErrOversizedMessage))
}

// keptMessage is a whole message.
type keptMessage struct {
	Kept
	identity    string
	data        []byte
	attributes  map[string]string
	orderingKey string
}

func (o *Operator) load(ctx context.Context, key string) (m keptMessage, err error) {
	raw, err := hex.DecodeString(key)
	if err != nil {
		return m, fmt.Errorf("message key %q: %w", key, ErrNoMessage)
	}
	found := false
	var attributes, ordering spanner.NullString
	err = o.Client.Single().Query(ctx, spanner.Statement{
		SQL:    `SELECT ` + keptColumns + `, identity, data, attributes, ordering_key FROM quarantined_messages WHERE message_key = @key`,
		Params: map[string]any{"key": raw},
	}).Do(func(row *spanner.Row) error {
		found = true
		var (
			reason     string
			member, by spanner.NullString
			at         spanner.NullTime
		)
		err := row.Columns(&m.Key, &m.MessageID, &m.Subscription, &reason, &member, &m.QuarantinedAt, &at, &by, &m.identity, &m.data, &attributes, &ordering)
		m.Reason, m.Member, m.ReleasedAt, m.ReleasedBy = payout.Reason(reason), member.StringVal, at.Time, by.StringVal
		return err
	})
	switch {
	case err != nil:
		return m, fmt.Errorf("read message %s in quarantine: %w", key, err)
	case !found:
		return m, fmt.Errorf("message %s: %w", key, ErrNoMessage)
	}
	m.orderingKey = ordering.StringVal
	if attributes.StringVal != "" {
		if err := json.Unmarshal([]byte(attributes.StringVal), &m.attributes); err != nil {
			return m, fmt.Errorf("message %s: attributes: %w", key, err)
		}
	}
	return m, nil
}

// check returns the payout that would be published.
func (m keptMessage) check(r Release) (payout.Payout, error) {
	if m.ReleasedBy != "" {
		return payout.Payout{}, alreadyReleased(m.Kept)
	}
	if r.Edited == nil && m.Reason == payout.ReasonUnsupportedEvent {
		return payout.Payout{}, &Refused{
			"what was kept is the whole request of something that is no Pub/Sub message",
			"find out who sends it; it is not for the topic",
		}
	}
	p, err := payout.Decode(m.published(r), r.DefaultCurrency)
	if refusal, refused := errors.AsType[*payout.Refusal](err); refused {
		return payout.Payout{}, wouldBeRefused(refusal, r)
	}
	return p, err
}

func wouldBeRefused(refusal *payout.Refusal, r Release) *Refused {
	if r.Edited != nil {
		return &Refused{"the edited message is no payout: " + refusal.Detail, "correct it with the producer; settlectl check judges it too"}
	}
	do := "have the producer publish a corrected one, or, if it agrees, release this one edited"
	if refusal.Member == "currency" && refusal.Reason == payout.ReasonMissingField {
		do = "if the function has a DEFAULT_CURRENCY now, give it here too"
	}
	return &Refused{strings.TrimSpace(fmt.Sprintf("it would be refused again: %s %s", refusal.Reason, refusal.Member)), do}
}

func alreadyReleased(k Kept) *Refused {
	return &Refused{fmt.Sprintf("it was released by %q at %s", k.ReleasedBy, k.ReleasedAt.UTC().Format(time.RFC3339)), "nothing was published again"}
}

// published is the data that is published.
func (m keptMessage) published(r Release) []byte {
	if r.Edited != nil {
		return r.Edited
	}
	return m.data
}

// message is what is published: the kept message with its attributes and its
// ordering key.
func (m keptMessage) message(r Release) *pubsub.Message {
	attributes := maps.Clone(m.attributes)
	maps.DeleteFunc(attributes, func(name, _ string) bool { return strings.HasPrefix(name, reservedAttributes) })
	if attributes == nil {
		attributes = map[string]string{}
	}
	attributes[ReleasedAttribute] = m.Key
	return &pubsub.Message{Data: m.published(r), Attributes: attributes, OrderingKey: m.orderingKey}
}

// mark records that the message was published again. From then on its row is kept
// as long as the table's row deletion policy says.
func (o *Operator) mark(ctx context.Context, m keptMessage, r Release, publishedAs string) (Kept, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), markTimeout)
	defer cancel()
	marked, note := m.Kept, recordOf(r, publishedAs)
	response, err := o.Client.ReadWriteTransactionWithOptions(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		marked = m.Kept
		raw := sha256.Sum256([]byte(m.identity))
		row, err := tx.ReadRow(ctx, "quarantined_messages", spanner.Key{raw[:]}, []string{"released_at", "released_by"})
		if err != nil {
			return err
		}
		var (
			at spanner.NullTime
			by spanner.NullString
		)
		if err := row.Columns(&at, &by); err != nil {
			return err
		}
		if by.Valid { // by somebody else at the same time, or by this release, whose answer was lost
			marked.ReleasedAt, marked.ReleasedBy = at.Time, by.StringVal
			return nil
		}
		return tx.BufferWrite([]*spanner.Mutation{spanner.UpdateMap("quarantined_messages", map[string]any{
			"identity": m.identity, "released_at": spanner.CommitTimestamp, "released_by": r.By, "note": note, "expire_from": spanner.CommitTimestamp,
		})})
	}, spanner.TransactionOptions{TransactionTag: tagRelease})
	if err == nil && marked.ReleasedBy == "" {
		marked.ReleasedAt, marked.ReleasedBy = response.CommitTs, r.By
	}
	return marked, err
}

// recordOf is the note that is kept with a released message.
func recordOf(r Release, publishedAs string) string {
	parts := []string{"published as message " + publishedAs}
	if r.Edited != nil {
		parts = append(parts, fmt.Sprintf("edited, SHA-256 %x", sha256.Sum256(r.Edited)))
	}
	if r.Note != "" {
		parts = append(parts, r.Note)
	}
	return strings.Join(parts, "; ")
}
