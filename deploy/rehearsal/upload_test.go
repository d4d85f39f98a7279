package rehearsal

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/schema"
)

// listed returns the files of a directory that gcloud uploads.
func listed(t *testing.T, dir string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "gcloud", "meta", "list-files-for-upload", dir)
	cmd.Env = append(withoutGcloud(os.Environ()), "CLOUDSDK_CONFIG="+t.TempDir(), "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING=true")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Fields(string(out))
	slices.Sort(files)
	return files
}

// sources returns the files that the Go command needs to build the function.
func sources(t *testing.T, root string) []string {
	t.Helper()
	files := []string{"go.mod", "go.sum"}
	const format = `{{if .Module}}{{if .Module.Main}}{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}} {{end}}{{range .EmbedFiles}}{{$dir}}/{{.}} {{end}}{{end}}{{end}}`
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", format, ".")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if root, err = filepath.EvalSymlinks(root); err != nil {
		t.Fatal(err)
	}
	for _, file := range strings.Fields(string(out)) {
		name, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, name)
	}
	slices.Sort(files)
	return files
}

// TestUploadHasOnlyTheFunction compares the upload with the sources of the function, in a
// tree with secrets and unrelated files at every level.
func TestUploadHasOnlyTheFunction(t *testing.T) {
	t.Parallel()
	root := copyTree(t)
	want := sources(t, root)
	if len(want) < 20 || !slices.Contains(want, "function.go") {
		t.Fatalf("sources of the function: %q", want)
	}
	for _, name := range []string{
		".env", "settings.env", "deploy/settings.env", "key.json", "token.txt", "extra.go", "extra_test.go", "vendor/a/a.go",
		"internal/bank/token.txt", "internal/bank/.env", "internal/bank/key.json", "internal/bank/extra_test.go",
		"internal/bank/testdata/a.go", "internal/settle/sub/a.go", "internal/settle/payout/testdata/a.go", "internal/other/a.go", ".git/config", "bin/settlectl",
		"internal/test/a.go", "internal/test/e2e/a.go", "cmd/a.go", "cmd/local/a.go", "deploy/a.go", "docs/a.go", "schema/a.go", "emulator/a.go",
	} {
		addFile(t, root, name, "package a\n")
	}
	if diff := cmp.Diff(want, listed(t, root)); diff != "" {
		t.Errorf("uploaded (-want +got):\n%s", diff)
	}
}

// upload copies the files that gcloud uploads, and returns the directory.
func upload(t *testing.T) string {
	t.Helper()
	root, dir := filepath.Join("..", ".."), t.TempDir()
	for _, name := range listed(t, root) {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		addFile(t, dir, name, string(text))
	}
	return dir
}

var requirement = regexp.MustCompile(`(?m)^(?:require )?\s*([^\s/]+\.[^\s]+) (v[^\s]+)`)

// requirements are the modules and versions of a go.mod.
func requirements(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, match := range requirement.FindAllStringSubmatch(string(text), -1) {
		found[match[1]] = match[2]
	}
	if len(found) == 0 {
		t.Fatalf("no requirements in %s", file)
	}
	return found
}

// TestUploadBuildsAndSettles builds the upload as the Go buildpack does, starts it
// as the platform does, and lets it settle. It prints the program's size and how long
// a cold start takes, from the start of the process to the answer to its first event.
func TestUploadBuildsAndSettles(t *testing.T) {
	t.Parallel()
	dir := upload(t)
	before := requirements(t, filepath.Join(dir, "go.mod"))
	program, err := buildAsBuildpack(dir)
	if err != nil {
		t.Fatal(err)
	}
	// The buildpack tidies go.mod: it may drop requirements of tests, but change no version.
	for module, version := range requirements(t, filepath.Join(dir, "go.mod")) {
		if before[module] != version {
			t.Errorf("go mod tidy made %s %q of %q", module, version, before[module])
		}
	}
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	environment := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "K_SERVICE=settle-payout", "FUNCTION_TARGET=SettlePayout", "DEFAULT_CURRENCY=USD",
		"SPANNER_DATABASE=" + emulatortest.Database(t, statements), "SPANNER_DATABASE_ROLE=settleonce_function",
		"SPANNER_EMULATOR_HOST=" + emulatortest.Spanner(t).GRPC,
	}
	var starts []time.Duration
	for i := range 3 {
		began := time.Now()
		instance, err := launch(t.TempDir(), "settle-payout", program, environment)
		if err != nil {
			t.Fatal(err)
		}
		listening := time.Since(began)
		answer := deliver(t, instance.url, fmt.Sprintf("stl-%d", i))
		starts = append(starts, time.Since(began))
		instance.stop()
		if !strings.Contains(answer, `"outcome":"applied"`) {
			t.Fatalf("answer %s", answer)
		}
		t.Logf("cold start %d: listening after %v, first event settled after %v", i+1, listening.Round(time.Millisecond), starts[i].Round(time.Millisecond))
	}
	fmt.Printf("deployed program: %.1f MB; cold start to the first settled event: %v (best of %d)\n",
		float64(info.Size())/1e6, slices.Min(starts).Round(time.Millisecond), len(starts))
}

// deliver delivers a payout as Eventarc does, and returns the answer.
func deliver(t *testing.T, url, settlement string) string {
	t.Helper()
	body := fmt.Sprintf(`{"message":{"data":%q,"messageId":"1","publishTime":"2026-11-29T12:00:00Z"},"subscription":"projects/p/subscriptions/s"}`,
		base64Of(fmt.Sprintf(`{"settlement_id":%q,"account_id":"reserve-claims","amount_cents":4731}`, settlement)))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = http.Header{
		"Content-Type": {"application/json"}, "Ce-Id": {settlement}, "Ce-Source": {"//pubsub.googleapis.com/projects/p/topics/payouts"},
		"Ce-Specversion": {"1.0"}, "Ce-Type": {"google.cloud.pubsub.topic.v1.messagePublished"}, "Ce-Time": {"2026-11-29T12:00:00.000Z"},
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
