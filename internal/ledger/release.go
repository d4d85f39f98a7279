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
	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// ReleasedAttribute is the attribute of a released message. Its value is the hex
// message_key of the row in quarantine that it comes from.
const ReleasedAttribute = "settleonce-released"

// reservedAttributes begin the names of attributes that Pub/Sub reserves.
const reservedAttributes = "goog"

// markTimeout bounds the marking of a message that was published, which goes on
// after an interruption.
const markTimeout = 20 * time.Second

// Publisher publishes to the payouts topic, and waits for Pub/Sub's acknowledgement.
type Publisher interface {
	Publish(ctx context.Context, m *pubsub.Message) (messageID string, err error)
}

// NotMarked reports a message that was published, but could not be marked as
// released.
type NotMarked struct {
	// PublishedAs is the ID of the new message.
	PublishedAs string
	Err         error
}

// Error gives the new message's ID and the next step.
func (n *NotMarked) Error() string {
	return fmt.Sprintf("published as message %s, but not marked as released: %v; release it again, which is harmless", n.PublishedAs, n.Err)
}

// Unwrap returns the database's error.
func (n *NotMarked) Unwrap() error { return n.Err }

// Message is a message in quarantine. Its JSON never holds the data.
type Message struct {
	spannerstore.QuarantineRow

	Key string // the hex message_key
}

// messageColumns are the columns that [Operator.Find] reads.
var messageColumns = []string{"message_id", "subscription", "reason", "member", "quarantined_at", "released_at", "released_by"}

func (m Message) object() object {
	columns := objectOf(spannerstore.Quarantined.Fields(&m.QuarantineRow, messageColumns...))
	return append(object{{"message_key", m.Key}}, columns.withoutNull("member", "released_at", "released_by")...)
}

// MarshalJSONTo implements json.MarshalerTo.
func (m Message) MarshalJSONTo(enc *jsontext.Encoder) error { return m.object().MarshalJSONTo(enc) }

// Release publishes a message again.
type Release struct {
	// By is the person who releases it, Note the reason. By is required, and Note with
	// Edited.
	By, Note string
	// Edited is published instead of the kept data; nil: the kept data is.
	Edited []byte
	// DefaultCurrency is the function's: with it, a message that lacked a currency may
	// be accepted now.
	DefaultCurrency string
	// DryRun changes nothing.
	DryRun bool
}

// Released is a message that was published again.
type Released struct {
	Message

	// SettlementID and PayloadHash are those of the payout that was published.
	SettlementID string
	PayloadHash  payout.Hash
	// DefaultCurrency is the currency that the hash was computed with. The function
	// uses its own. Empty: the message has a currency.
	DefaultCurrency string
	// PublishedAs is the ID of the new message; empty in a dry run.
	PublishedAs string
	// Edited says that other data was published than the kept data.
	Edited bool
}

// MarshalJSONTo implements json.MarshalerTo.
func (r Released) MarshalJSONTo(enc *jsontext.Encoder) error {
	o := append(r.object(), member{"settlement_id", r.SettlementID}, member{"payload_hash", r.PayloadHash})
	if r.DefaultCurrency != "" {
		o = append(o, member{"default_currency", r.DefaultCurrency})
	}
	if r.PublishedAs != "" {
		o = append(o, member{"published_as", r.PublishedAs})
	}
	if r.Edited {
		o = append(o, member{"edited", true})
	}
	return o.MarshalJSONTo(enc)
}

// maxCandidates bounds the messages that [Operator.Find] returns.
const maxCandidates = 20

// Find returns the messages in quarantine with a Pub/Sub message ID or a hex
// message_key, at most 20, without their data. A message ID scans the table; a key
// does not. It fails with [ErrNoMessage].
func (o *Operator) Find(ctx context.Context, message string) ([]Message, error) {
	condition, params := `q.message_id = @id`, map[string]any{"id": message, "page": int64(maxCandidates)}
	if key, err := hex.DecodeString(message); err == nil && len(key) == sha256.Size {
		condition, params["key"] = `q.message_key = @key`, key
	}
	found, err := o.queryMessages(ctx, `quarantined_messages AS q WHERE `+condition+` ORDER BY q.message_key LIMIT @page`, params)
	if err != nil {
		return nil, fmt.Errorf("find message %q in quarantine: %w", message, err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("message %q: %w", message, ErrNoMessage)
	}
	return found, nil
}

// queryMessages reads messages without their data.
func (o *Operator) queryMessages(ctx context.Context, from string, params map[string]any) (found []Message, err error) {
	fields := func(m *Message) []spannerstore.Field {
		key := spannerstore.Computed("message_key", "TO_HEX(q.message_key)", &m.Key)
		return append(spannerstore.Quarantined.As("q", &m.QuarantineRow, messageColumns...), key)
	}
	statement := spanner.Statement{SQL: `SELECT ` + spannerstore.Select(fields(new(Message))) + ` FROM ` + from, Params: params}
	err = o.Client.Single().Query(ctx, statement).Do(func(row *spanner.Row) error {
		var m Message
		err := spannerstore.Scan(row, fields(&m))
		found = append(found, m)
		return err
	})
	return found, err
}

// Release publishes a message again, and marks it as released. It fails with a
// *[transfer.Refused].
//
// It publishes first. A crash before the mark leaves the message open, and a second
// release publishes a second copy: the payout is settled once all the same, and a copy
// that is refused again is one more row in quarantine. In the other order, a crash
// would leave a message that is marked as released, but was never published: a payout
// that is never paid.
func (o *Operator) Release(ctx context.Context, m Message, r Release) (Released, error) {
	if !transfer.ValidName(r.By) || r.Note != "" && !transfer.ValidNote(r.Note) || r.Edited != nil && r.Note == "" {
		return Released{}, &transfer.Refused{
			Why: "the name, or the note that an edited message needs, is missing, too long or has invisible characters",
			Do:  "give the name of the person who releases it and, for an edited message, the name of the producer's person who agreed",
		}
	}
	kept, err := o.load(ctx, m.Key)
	if err != nil {
		return Released{}, err
	}
	p, err := kept.check(r)
	if err != nil {
		return Released{}, err
	}
	released := Released{Message: kept.Message, SettlementID: p.SettlementID, PayloadHash: p.Hash(), Edited: r.Edited != nil}
	if _, err := payout.Decode(kept.published(r), ""); err != nil { // it has no currency of its own
		released.DefaultCurrency = p.Currency
	}
	if r.DryRun {
		return released, nil
	}
	released.PublishedAs, err = o.Topic.Publish(ctx, kept.message(r))
	if refusedByPubSub(err) {
		return Released{}, &transfer.Refused{Why: fmt.Sprintf("Pub/Sub refuses it: %v", err), Do: "have the producer publish it again in a form that Pub/Sub accepts"}
	}
	if err != nil {
		return Released{}, fmt.Errorf("publish message %q again: %w", kept.MessageID, err)
	}
	if released.Message, err = o.mark(ctx, kept, r, released.PublishedAs); err != nil {
		return Released{}, &NotMarked{PublishedAs: released.PublishedAs, Err: err}
	}
	return released, nil
}

// refusedByPubSub reports whether Pub/Sub refuses the message on every attempt, for
// example because it has 100 attributes and the release adds one.
func refusedByPubSub(err error) bool {
	return err != nil && (status.Code(err) == codes.InvalidArgument || errors.Is(err, pubsub.ErrOversizedMessage))
}

// keptMessage is a message with its data.
type keptMessage struct {
	Message
	attributes map[string]string
}

func (o *Operator) load(ctx context.Context, key string) (m keptMessage, err error) {
	raw, err := hex.DecodeString(key)
	if err != nil {
		return m, fmt.Errorf("message key %q: %w", key, ErrNoMessage)
	}
	rows, err := spannerstore.Quarantined.Rows(ctx, o.Client.Single(), spanner.Key{raw}, nil)
	switch {
	case err != nil:
		return m, fmt.Errorf("message %s: %w", key, err)
	case len(rows) == 0:
		return m, fmt.Errorf("message %s: %w", key, ErrNoMessage)
	}
	m.Message = Message{QuarantineRow: rows[0], Key: key}
	if m.Attributes != "" {
		if err := json.Unmarshal([]byte(m.Attributes), &m.attributes); err != nil {
			return m, fmt.Errorf("message %s: attributes: %w", key, err)
		}
	}
	return m, nil
}

// check returns the payout that would be published.
func (m keptMessage) check(r Release) (payout.Payout, error) {
	if m.ReleasedBy != "" {
		return payout.Payout{}, alreadyReleased(m.Message)
	}
	if r.Edited == nil && m.Reason == payout.ReasonUnsupportedEvent {
		return payout.Payout{}, &transfer.Refused{
			Why: "the kept data is a whole HTTP request that is no Pub/Sub message",
			Do:  "find its sender; it does not belong on the topic",
		}
	}
	p, err := payout.Decode(m.published(r), r.DefaultCurrency)
	if refusal, refused := errors.AsType[*payout.Refusal](err); refused {
		return payout.Payout{}, wouldBeRefused(refusal, r)
	}
	return p, err
}

func wouldBeRefused(refusal *payout.Refusal, r Release) *transfer.Refused {
	if r.Edited != nil {
		return &transfer.Refused{
			Why: "the edited message is no payout: " + refusal.Detail, Do: "correct it with the producer; settlectl check validates it too",
		}
	}
	do := "have the producer publish a corrected message or, if it agrees, release this one edited"
	if refusal.Member == "currency" && refusal.Reason == payout.ReasonMissingField {
		do = "if the function has a DEFAULT_CURRENCY now, give it here too"
	}
	return &transfer.Refused{Why: strings.TrimSpace(fmt.Sprintf("it would be refused again: %s %s", refusal.Reason, refusal.Member)), Do: do}
}

func alreadyReleased(m Message) *transfer.Refused {
	return &transfer.Refused{Why: fmt.Sprintf("it was released by %q at %s", m.ReleasedBy, formatTime(m.ReleasedAt)), Do: "nothing was published again"}
}

func (m keptMessage) published(r Release) []byte {
	if r.Edited != nil {
		return r.Edited
	}
	return m.Data
}

// message is the message to publish, with the kept attributes and ordering key.
func (m keptMessage) message(r Release) *pubsub.Message {
	attributes := maps.Clone(m.attributes)
	maps.DeleteFunc(attributes, func(name, _ string) bool { return strings.HasPrefix(name, reservedAttributes) })
	if attributes == nil {
		attributes = map[string]string{}
	}
	attributes[ReleasedAttribute] = m.Key
	return &pubsub.Message{Data: m.published(r), Attributes: attributes, OrderingKey: m.OrderingKey}
}

// mark marks the message as released. Its row then expires by the table's row
// deletion policy.
func (o *Operator) mark(ctx context.Context, m keptMessage, r Release, publishedAs string) (Message, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), markTimeout)
	defer cancel()
	marked := m.Message
	key := sha256.Sum256([]byte(m.Identity))
	response, err := o.Client.ReadWriteTransactionWithOptions(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		marked = m.Message
		rows, err := spannerstore.Quarantined.Rows(ctx, tx, spanner.Key{key[:]}, nil, "released_at", "released_by")
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return ErrNoMessage
		}
		if rows[0].ReleasedBy != "" { // by another release at the same time, or by this one, whose answer was lost
			marked.ReleasedAt, marked.ReleasedBy = rows[0].ReleasedAt, rows[0].ReleasedBy
			return nil
		}
		row := spannerstore.QuarantineRow{
			Identity: m.Identity, ReleasedAt: &spanner.CommitTimestamp, ReleasedBy: r.By, Note: releaseNote(r, publishedAs), ExpireFrom: &spanner.CommitTimestamp,
		}
		return tx.BufferWrite([]*spanner.Mutation{
			spannerstore.Quarantined.Update(row, "identity", "released_at", "released_by", "note", "expire_from"),
		})
	}, spanner.TransactionOptions{TransactionTag: tagRelease})
	if err == nil && marked.ReleasedBy == "" {
		marked.ReleasedAt, marked.ReleasedBy = &response.CommitTs, r.By
	}
	return marked, err
}

// releaseNote is the note of a released message.
func releaseNote(r Release, publishedAs string) string {
	parts := []string{"published as message " + publishedAs}
	if r.Edited != nil {
		parts = append(parts, fmt.Sprintf("edited, SHA-256 %x", sha256.Sum256(r.Edited)))
	}
	if r.Note != "" {
		parts = append(parts, r.Note)
	}
	return strings.Join(parts, "; ")
}
