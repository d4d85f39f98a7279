package rehearsal

import (
	"archive/zip"
	"bytes"
	"debug/buildinfo"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

var requirement = regexp.MustCompile(`(?m)^(?:require )?\s*([^\s/]+\.[^\s]+) (v[^\s]+)`)

// requirements are the modules and versions of a go.mod.
func requirements(t *testing.T, text []byte) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, match := range requirement.FindAllSubmatch(text, -1) {
		found[string(match[1])] = string(match[2])
	}
	if len(found) == 0 {
		t.Fatalf("no requirements in %s", text)
	}
	return found
}

// uploaded checks the files of each upload, and the go.mod that the build left.
func (r *rehearsal) uploaded(t *testing.T) {
	listed := listed(t, filepath.Join("..", ".."))
	for name, archive := range r.cloud.run.uploads {
		files, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, file := range files.File {
			if !strings.HasSuffix(file.Name, "/") {
				got = append(got, file.Name)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(listed, got); diff != "" {
			t.Errorf("%s (-listed +uploaded):\n%s", name, diff)
		}
		before, err := fs.ReadFile(files, "go.mod")
		if err != nil {
			t.Fatal(err)
		}
		after, err := os.ReadFile(filepath.Join(r.cloud.run.dir, name, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		// The buildpack tidies go.mod: it may drop requirements of tests, but change no version.
		for module, version := range requirements(t, after) {
			if was := requirements(t, before)[module]; was != version {
				t.Errorf("go mod tidy made %s %q of %q", module, version, was)
			}
		}
	}
}

// directPath are the packages of DirectPath, which the function never uses.
var directPath = []string{"google.golang.org/grpc/xds", "google.golang.org/grpc/balancer/rls", "github.com/cncf/xds", "github.com/envoyproxy"}

// builtWithoutDirectPath checks the programs that the deployment built from its upload.
func (r *rehearsal) builtWithoutDirectPath(t *testing.T) {
	if len(r.cloud.run.programs) == 0 {
		t.Fatal("nothing was built")
	}
	for _, program := range r.cloud.run.programs {
		text, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		info, err := buildinfo.Read(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(info.Settings, debug.BuildSetting{Key: "-tags", Value: "disable_grpc_modules"}) {
			t.Errorf("built with %v", info.Settings)
		}
		// The linker keeps the path of every package for stack traces.
		if !bytes.Contains(text, []byte("cloud.google.com/go/spanner")) {
			t.Error("the program has no package paths")
		}
		for _, path := range directPath {
			if bytes.Contains(text, []byte(path+"/")) {
				t.Errorf("the program contains %s", path)
			}
		}
		t.Logf("%.1f MB", float64(len(text))/1e6)
	}
}

// TestEverythingIsBuiltAsDeployed: with other tags the tests and the linters would see
// another program. The tag also has to save enough to be worth it.
func TestEverythingIsBuiltAsDeployed(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	tags := regexp.MustCompile(`--set-build-env-vars=GOFLAGS=-tags=(\S+)`).FindAllStringSubmatch(newScripts(t).must(t, "", "deploy.sh", "--dry-run"), -1)
	if len(tags) != 4 { // the first and a later deployment of two functions
		t.Fatalf("build flags of the deployment: %q", tags)
	}
	for name, pattern := range map[string]string{"Makefile": `(?m)^TAGS = (\S+)$`, ".golangci.yaml": `(?m)^  build-tags: \[soak, (\S+)\]$`} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		tags = append(tags, regexp.MustCompile(pattern).FindStringSubmatch(string(text)))
	}
	packages := func(tags string) []string {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags="+tags, ".")
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out))
	}
	for _, tag := range tags {
		if len(tag) != 2 || tag[1] != tags[0][1] {
			t.Fatalf("tags %q, want one", tags)
		}
	}
	with, without := packages(tags[0][1]), packages("")
	t.Logf("%d packages, %d without the tag", len(with), len(without))
	if len(with)*100 > len(without)*85 {
		t.Errorf("the tag leaves %d of %d packages, want at most 85 %%", len(with), len(without))
	}
	for _, path := range with {
		if slices.ContainsFunc(directPath, func(of string) bool { return strings.HasPrefix(path, of) }) {
			t.Errorf("the function imports %s", path)
		}
	}
}
