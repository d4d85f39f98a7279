package roletest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"cloud.google.com/go/spanner/apiv1/spannerpb"
)

func TestLackingComparesColumns(t *testing.T) {
	t.Parallel()
	var a Access
	a.record("SELECT", "t")
	a.update(&spannerpb.Mutation_Write{Table: "t", Columns: []string{"id", "note"}})
	for grants, want := range map[string][]string{
		"GRANT SELECT, UPDATE ON TABLE t TO ROLE r;":                                             nil,
		"GRANT SELECT ON TABLE t TO ROLE r;\nGRANT UPDATE(id,\n  note) ON TABLE t TO ROLE r;":    nil,
		"GRANT SELECT, UPDATE(id) ON TABLE t TO ROLE r;":                                         {"UPDATE(note) t"},
		"GRANT SELECT(id), UPDATE ON TABLE t TO ROLE r;":                                         {"SELECT t"},
		"GRANT SELECT, UPDATE(id, note) ON TABLE u TO ROLE r;":                                   {"SELECT t", "UPDATE(id) t", "UPDATE(note) t"},
		"GRANT SELECT, UPDATE ON TABLE t TO ROLE other;\nGRANT UPDATE(id) ON TABLE t TO ROLE r;": {"SELECT t", "UPDATE(note) t"},
	} {
		file := filepath.Join(t.TempDir(), "roles.sql")
		if err := os.WriteFile(file, []byte(grants), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := a.Lacking(file, "r"); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", grants, got, err, want)
		}
	}
}
