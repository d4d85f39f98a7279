package schema_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/schema"
)

func TestApplyTwiceChangesNothing(t *testing.T) {
	t.Parallel()
	name := emulatortest.Database(t, nil)
	admin, err := database.NewDatabaseAdminClient(t.Context(), emulatortest.Spanner(t).ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	var ddl [2][]string
	for run := range ddl {
		if err := schema.Apply(t.Context(), admin, name); err != nil {
			t.Fatalf("run %d: %v", run+1, err)
		}
		response, err := admin.GetDatabaseDdl(t.Context(), &databasepb.GetDatabaseDdlRequest{Database: name})
		if err != nil {
			t.Fatal(err)
		}
		ddl[run] = response.Statements
	}
	if diff := cmp.Diff(ddl[0], ddl[1]); diff != "" {
		t.Errorf("the second run changed (-first +second):\n%s", diff)
	}
	if len(ddl[0]) != 12 { // seven tables, five indexes
		t.Errorf("%d statements, want 12:\n%s", len(ddl[0]), strings.Join(ddl[0], "\n"))
	}
}

func TestApplyCompletesInterruptedRun(t *testing.T) {
	t.Parallel()
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	name := emulatortest.Database(t, statements[:3])
	admin, err := database.NewDatabaseAdminClient(t.Context(), emulatortest.Spanner(t).ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if err := schema.Apply(t.Context(), admin, name); err != nil {
		t.Fatal(err)
	}
}

// TestCommentsOfTablesAndColumns also keeps semicolons and double dashes out of
// literals, because split would cut there.
func TestCommentsOfTablesAndColumns(t *testing.T) {
	t.Parallel()
	column := regexp.MustCompile(`^  [a-z_]+ [A-Z]`)
	files, err := filepath.Glob("*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		previous := ""
		for i, line := range strings.Split(string(text), "\n") {
			code, comment, commented := strings.Cut(line, "--")
			where := fmt.Sprintf("%s:%d", file, i+1)
			if column.MatchString(code) && strings.TrimSpace(comment) == "" {
				t.Errorf("%s: column without a comment: %s", where, code)
			}
			if strings.HasPrefix(code, "CREATE") || strings.HasPrefix(code, "ALTER") {
				if !strings.HasPrefix(previous, "--") {
					t.Errorf("%s: statement without a comment: %s", where, code)
				}
				if !strings.Contains(code, "IF NOT EXISTS") {
					t.Errorf("%s: cannot run twice: %s", where, code)
				}
			}
			if commented && strings.Count(code, "'")%2 != 0 || strings.Contains(strings.TrimSuffix(strings.TrimSpace(code), ";"), ";") {
				t.Errorf("%s: a semicolon or two dashes inside a statement: %s", where, line)
			}
			previous = line
		}
	}
}

// TestJSONSchemaAgreesWithDecoder validates and decodes every case. The exceptions are
// properties of the text that a JSON decoder does not pass on to the validator.
func TestJSONSchemaAgreesWithDecoder(t *testing.T) {
	t.Parallel()
	exceptions := map[string]string{
		"amount twice":               "a decoded object has each member once",
		"member twice, once escaped": "a decoded object has each member once",
		"twice inside metadata":      "a decoded object has each member once",
		"lone surrogate":             "the test's JSON decoder replaces it with U+FFFD",
		"amount whole with a point":  "1.0 is an integer to JSON Schema",
		"amount with an exponent":    "1e3 is an integer to JSON Schema",
		`currency "ZZZ"`:             "the list of currencies changes more often than a schema should",
	}
	compiled := compile(t)
	for _, c := range cases(t) {
		instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(c.Data))
		if err != nil {
			continue // not JSON
		}
		_, decodeErr := payout.Decode(c.Data, "USD")
		schemaErr := compiled.Validate(instance)
		if reason := exceptions[c.Name]; reason != "" {
			if decodeErr == nil || schemaErr != nil {
				t.Errorf("%s: decoder %v, schema %v: want a difference (%s)", c.Name, decodeErr, schemaErr, reason)
			}
			continue
		}
		if refusal, _ := errors.AsType[*payout.Refusal](decodeErr); refusal != nil && refusal.Reason == payout.ReasonTooLarge {
			continue // JSON Schema does not limit the size
		}
		if (decodeErr == nil) != (schemaErr == nil) {
			t.Errorf("%s: decoder %v, schema %v", c.Name, decodeErr, schemaErr)
		}
	}
}

func compile(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema.PayoutV1))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("payout.v1.schema.json", document); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("payout.v1.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

type messageCase struct {
	Name string `json:"name"`
	Data []byte `json:"data_base64"`
}

func cases(t *testing.T) []messageCase {
	t.Helper()
	file, err := os.ReadFile("../internal/settle/payout/testdata/payout_messages.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var all []messageCase
	for line := range bytes.Lines(file) {
		var c messageCase
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}
