package rehearsal

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// defined returns the output of ddl.awk for a DDL.
func defined(t *testing.T, have, ddl string) []string {
	t.Helper()
	args := []string{"-f", "../lib/ddl.awk"}
	if have != "" {
		file := filepath.Join(t.TempDir(), "have")
		if err := os.WriteFile(file, []byte(have), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append([]string{"-v", "have=" + file}, args...)
	}
	cmd := exec.CommandContext(t.Context(), "awk", args...)
	cmd.Stdin = strings.NewReader(ddl)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
}

// TestGrantsAreComparedByColumn: Spanner may print a grant in another form than the file.
func TestGrantsAreComparedByColumn(t *testing.T) {
	t.Parallel()
	const asked = "GRANT SELECT(a, b), INSERT,\n  UPDATE (a) ON TABLE t TO ROLE r; -- why"
	got := defined(t, "", asked)
	want := []string{"grant SELECT(a) t r", "grant SELECT(b) t r", "grant INSERT t r", "grant UPDATE(a) t r"}
	byLine := cmp.Transformer("set", func(lines []string) map[string]bool {
		set := map[string]bool{}
		for _, line := range lines {
			set[line] = true
		}
		return set
	})
	if diff := cmp.Diff(want, got, byLine); diff != "" {
		t.Errorf("defined (-want +got):\n%s", diff)
	}
	all := strings.Join(defined(t, "", "GRANT UPDATE(a) ON TABLE `t` TO ROLE `r`; GRANT INSERT, SELECT(b,a) ON TABLE t TO ROLE r"), "\n")
	if lacking := defined(t, all, asked); len(lacking) != 0 {
		t.Errorf("lacking %q, want none", lacking)
	}
	without := strings.Replace(all, "SELECT(b)", "SELECT(c)", 1)
	if lacking := defined(t, without, asked); len(lacking) != 1 || lacking[0] != "GRANT SELECT(a, b), INSERT, UPDATE (a) ON TABLE t TO ROLE r;" {
		t.Errorf("lacking %q, want the statement", lacking)
	}
}

// TestOperatorRoleUpdatesOnlyColumns: the operator has no update right on a whole table, nor
// on a derived column, a creation time or a message.
func TestOperatorRoleUpdatesOnlyColumns(t *testing.T) {
	t.Parallel()
	ddl, err := os.ReadFile("../database_roles.sql")
	if err != nil {
		t.Fatal(err)
	}
	changes := 0
	column := regexp.MustCompile(`^grant UPDATE\((\w+)\) (bank_instructions|settlement_conflicts|quarantined_messages) `)
	for _, line := range defined(t, "", string(ddl)) {
		if !strings.HasSuffix(line, " settleonce_operator") || !strings.HasPrefix(line, "grant UPDATE") {
			continue
		}
		changes++
		match := column.FindStringSubmatch(line)
		if match == nil || strings.HasSuffix(match[1], "_shard") || match[1] == "created_at" || match[1] == "data" || match[1] == "payload" {
			t.Errorf("%s: settlectl does not write it", line)
		}
	}
	if changes == 0 {
		t.Error("the operator has no update right")
	}
}
