package rehearsal

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/settleonce/settleonce/internal/settle/payout"
)

// payoutMessage is the message of deploy/payout.v1.proto.
func payoutMessage(t *testing.T) protoreflect.MessageDescriptor {
	t.Helper()
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{".."}}}
	files, err := compiler.Compile(t.Context(), "payout.v1.proto")
	if err != nil {
		t.Fatal(err)
	}
	messages := files[0].Messages()
	if messages.Len() != 1 { // Pub/Sub requires exactly one
		t.Fatalf("%d messages in the schema", messages.Len())
	}
	return messages.Get(0)
}

// accepts reports whether Pub/Sub would accept a message with the schema. protojson
// replaces Pub/Sub's parser, which the emulator does not have.
func accepts(message protoreflect.MessageDescriptor, data []byte) bool {
	return protojson.Unmarshal(data, dynamicpb.NewMessage(message)) == nil
}

// TestSchemaAcceptsEveryPayout uses the test cases of the function's decoder.
func TestSchemaAcceptsEveryPayout(t *testing.T) {
	t.Parallel()
	message := payoutMessage(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "internal", "settle", "payout", "testdata", "payout_messages.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var settled, refused, total int
	for line := range bytes.Lines(text) {
		var c struct {
			Name    string `json:"name"`
			Data    []byte `json:"data_base64"`
			Verdict string `json:"verdict"`
		}
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		total++
		accepted := accepts(message, c.Data)
		switch {
		case c.Verdict == "payout" && !accepted:
			t.Errorf("%s: the function settles %s, and the schema rejects it", c.Name, c.Data)
		case c.Verdict == "payout":
			settled++
		case !accepted:
			refused++
		}
	}
	if settled == 0 {
		t.Error("no message was settled")
	}
	t.Logf("Pub/Sub rejects %[2]d of %[1]d malformed messages; the function quarantines the others", total-settled, refused)
}

func TestSchemaRejectsMalformedMessages(t *testing.T) {
	t.Parallel()
	message := payoutMessage(t)
	for name, data := range map[string]string{
		"no amount":         `{"settlement_id":"s","account_id":"a"}`,
		"amount in words":   `{"settlement_id":"s","account_id":"a","amount_cents":"ten"}`,
		"half a cent":       `{"settlement_id":"s","account_id":"a","amount_cents":4.5}`,
		"another member":    `{"settlement_id":"s","account_id":"a","amount_cents":4,"fee":1}`,
		"metadata of lists": `{"settlement_id":"s","account_id":"a","amount_cents":4,"metadata":{"a":[]}}`,
		"not JSON":          `settle this`,
		"empty":             ``,
	} {
		if accepts(message, []byte(data)) {
			t.Errorf("%s is accepted: %s", name, data)
		}
	}
}

func TestDecoderKnowsEverySchemaMember(t *testing.T) {
	t.Parallel()
	fields := payoutMessage(t).Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		value := map[string]any{"settlement_id": "s", "account_id": "a", "amount_cents": 1}
		switch name := string(field.Name()); name {
		case "settlement_id", "account_id", "amount_cents": // in the message already
			if field.Cardinality() != protoreflect.Required {
				t.Errorf("%s is not required", name)
			}
		case "metadata":
			value[name] = map[string]string{"k": "v"}
		case "currency":
			value[name] = "EUR"
		default:
			value[name] = "x"
		}
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := payout.Decode(data, "USD"); err != nil {
			t.Errorf("the function rejects %s: %v", field.Name(), err)
		}
	}
}
