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
	if messages.Len() != 1 { // Pub/Sub wants exactly one
		t.Fatalf("%d messages in the schema", messages.Len())
	}
	return messages.Get(0)
}

// takes reports whether Pub/Sub would take a message under the schema. Go's reader of
// JSON stands in for Pub/Sub's, which the emulator does not have.
func takes(message protoreflect.MessageDescriptor, data []byte) bool {
	return protojson.Unmarshal(data, dynamicpb.NewMessage(message)) == nil
}

// TestTheSchemaTakesWhatTheFunctionSettles makes sure that the schema stands in no
// payout's way, with the messages that the function's own decoding is tested with.
func TestTheSchemaTakesWhatTheFunctionSettles(t *testing.T) {
	t.Parallel()
	message := payoutMessage(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "internal", "settle", "testdata", "payout_messages.jsonl"))
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
		taken := takes(message, c.Data)
		switch {
		case c.Verdict == "payout" && !taken:
			t.Errorf("%s: the function settles %s, and the schema does not take it", c.Name, c.Data)
		case c.Verdict == "payout":
			settled++
		case !taken:
			refused++
		}
	}
	if settled == 0 {
		t.Error("no message was settled")
	}
	t.Logf("of %d messages that cannot be payouts Pub/Sub refuses %d; the others go into quarantine", total-settled, refused)
}

// TestWhatTheSchemaRefuses shows that it does enforce something.
func TestWhatTheSchemaRefuses(t *testing.T) {
	t.Parallel()
	message := payoutMessage(t)
	for name, data := range map[string]string{
		"no amount":         `{"settlement_id":"s","account_id":"a"}`,
		"amount in words":   `{"settlement_id":"s","account_id":"a","amount_cents":"ten"}`,
		"half a cent":       `{"settlement_id":"s","account_id":"a","amount_cents":4.5}`,
		"another member":    `{"settlement_id":"s","account_id":"a","amount_cents":4,"fee":1}`,
		"metadata of lists": `{"settlement_id":"s","account_id":"a","amount_cents":4,"metadata":{"a":[]}}`,
		"not JSON":          `settle this`,
		"nothing":           ``,
	} {
		if takes(message, []byte(data)) {
			t.Errorf("%s is taken: %s", name, data)
		}
	}
}

// TestTheSchemasAgree compares the members with those of the function's own decoding.
func TestTheSchemasAgree(t *testing.T) {
	t.Parallel()
	fields := payoutMessage(t).Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		value := map[string]any{"settlement_id": "s", "account_id": "a", "amount_cents": 1}
		switch name := string(field.Name()); name {
		case "settlement_id", "account_id", "amount_cents": // there already
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
			t.Errorf("the function does not know %s: %v", field.Name(), err)
		}
	}
}
