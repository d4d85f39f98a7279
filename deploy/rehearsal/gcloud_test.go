package rehearsal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// socketVariable has the socket of the gcloud server, for the gcloud on PATH, which is
// this test binary under another name.
const socketVariable = "REHEARSAL_GCLOUD"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "gcloud" {
		code, err := forward(os.Args[1:])
		if err != nil {
			fmt.Fprintln(os.Stderr, "gcloud of the rehearsal:", err)
			code = 70
		}
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// forward makes the server run a gcloud command with this process's streams, and
// returns the exit code.
func forward(args []string) (int, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	environment := map[string]string{}
	for _, variable := range os.Environ() {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "CLOUDSDK_") {
			environment[name] = value
		}
	}
	return ask(os.Getenv(socketVariable), map[string]any{"args": args, "cwd": cwd, "env": environment}, os.Stderr)
}

// ask sends the server a request, and returns the exit code.
func ask(socket string, request map[string]any, stderr *os.File) (int, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	text, err := json.Marshal(request)
	if err != nil {
		return 0, err
	}
	streams := syscall.UnixRights(int(os.Stdin.Fd()), int(os.Stdout.Fd()), int(stderr.Fd()))
	sent, _, err := conn.WriteMsgUnix(append(text, '\n'), streams, nil)
	if err == nil { // WriteMsgUnix may write less than all
		_, err = conn.Write(append(text, '\n')[sent:])
	}
	if err != nil {
		return 0, err
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(answer))
}

// parse makes gcloud parse commands, and returns its errors.
func (g *gcloud) parse(t *testing.T, commands [][]string) string {
	t.Helper()
	said, err := os.Create(filepath.Join(t.TempDir(), "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	code, err := ask(g.socket, map[string]any{"args": []string{}, "cwd": root, "env": map[string]string{}, "parse": commands}, said)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(said.Name())
	if err != nil || (code != 0) != (len(text) > 0) {
		t.Fatalf("exit code %d, %v\n%s", code, err, text)
	}
	return string(text)
}

// sdk is the installed Google Cloud CLI, and its Python.
type sdk struct{ root, python string }

var findSDK = sync.OnceValues(func() (sdk, error) {
	out, err := exec.Command("gcloud", "info", "--format=value(installation.sdk_root,basic.python_location)").Output()
	root, python, _ := strings.Cut(strings.TrimSpace(string(out)), "\t")
	if err != nil || python == "" {
		return sdk{}, fmt.Errorf("the rehearsal needs the Google Cloud CLI with its components alpha, beta, "+
			"cloud-spanner-emulator and pubsub-emulator: %w", err)
	}
	return sdk{root, python}, nil
})

// gcloud is the real gcloud, loaded once by testdata/gcloud_server.py, with a cloud as its
// project.
type gcloud struct {
	bin    string   // directory with the command, for PATH
	socket string   // of the server
	log    string   // file with all commands
	env    []string // for programs that call the command
}

// apis are the APIs of the scripts, by gcloud's names.
var apis = []string{
	"artifactregistry", "cloudbuild", "cloudfunctions", "cloudresourcemanager", "cloudscheduler", "eventarc", "iam", "logging",
	"monitoring", "pubsub", "run", "secretmanager", "serviceusage", "spanner", "storage",
}

// startGcloud starts a gcloud whose requests go to http://API.localhost:PORT. The server
// resolves that name to this machine.
func startGcloud(t *testing.T, port string) *gcloud {
	t.Helper()
	installed, err := findSDK()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "gcloud") //nolint:usetesting // t.TempDir is often too long for the name of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	g := &gcloud{bin: filepath.Join(dir, "bin"), socket: filepath.Join(dir, "socket"), log: filepath.Join(dir, "commands")}
	program, err := os.Executable()
	if err == nil {
		err = os.Mkdir(g.bin, 0o700)
	}
	if err == nil {
		err = os.Symlink(program, filepath.Join(g.bin, "gcloud"))
	}
	if err != nil {
		t.Fatal(err)
	}
	g.env = append(withoutGcloud(os.Environ()), "PATH="+g.bin+string(filepath.ListSeparator)+os.Getenv("PATH"), socketVariable+"="+g.socket)

	settings := []string{
		"CLOUDSDK_CONFIG=" + filepath.Join(dir, "config"), "CLOUDSDK_AUTH_DISABLE_CREDENTIALS=true",
		"CLOUDSDK_CORE_DISABLE_USAGE_REPORTING=true", "CLOUDSDK_CORE_DISABLE_FILE_LOGGING=true",
		"CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK=true", "CLOUDSDK_SURVEY_DISABLE_PROMPTS=true",
	}
	for _, api := range apis {
		settings = append(settings, fmt.Sprintf("CLOUDSDK_API_ENDPOINT_OVERRIDES_%s=http://%s.localhost:%s/", strings.ToUpper(api), api, port))
	}
	//nolint:noctx // the cleanup closes its standard input
	server := exec.Command(installed.python, "-S", filepath.Join("testdata", "gcloud_server.py"), installed.root, g.socket, g.log)
	server.Env = append(withoutGcloud(os.Environ()), settings...)
	server.Stderr = os.Stderr
	stdin, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = server.Wait()
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the gcloud server said %q: %v", line, err)
	}
	return g
}

// withoutGcloud removes the variables that would configure gcloud or bash.
func withoutGcloud(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(variable string) bool {
		return strings.HasPrefix(variable, "CLOUDSDK_") || strings.HasPrefix(variable, "BASH_ENV=")
	})
}

// command is an executed command.
type command struct {
	Args []string `json:"args"`
	Code int      `json:"code"`
}

// commands returns the executed commands.
func (g *gcloud) commands(t *testing.T) []command {
	t.Helper()
	text, err := os.ReadFile(g.log)
	if err != nil {
		t.Fatal(err)
	}
	var all []command
	for line := range bytes.Lines(text) {
		var c command
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}
