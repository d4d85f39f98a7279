package emulator

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// barren takes away every way to find an emulator, and returns the directory that
// is PATH now.
func barren(t *testing.T) string {
	t.Helper()
	for _, env := range []string{spannerEnv, pubsubEnv, "CLOUDSDK_ROOT_DIR", "JAVA_HOME"} {
		t.Setenv(env, "")
	}
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	return dir
}

// writeFile writes an executable file and the directories above it.
func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o700); err != nil { //nolint:gosec // some are run
		t.Fatal(err)
	}
}

func TestNotFound(t *testing.T) {
	barren(t)
	_, errSpanner := StartSpanner(t.Context())
	_, errPubSub := StartPubSub(t.Context())
	got := map[string]error{"spanner": errSpanner, "pubsub": errPubSub}
	want := map[string]string{
		"spanner": `start spanner emulator: no emulator found: SPANNER_EMULATOR_HOST is not set; ` +
			`find the Google Cloud CLI: exec: "gcloud": executable file not found in $PATH; ` +
			`find docker: exec: "docker": executable file not found in $PATH; ` +
			`to get one, install the Google Cloud CLI with its component cloud-spanner-emulator ` +
			`(gcloud components install cloud-spanner-emulator), or start a Docker engine, ` +
			`or set SPANNER_EMULATOR_HOST to the host:port of a running one`,
		"pubsub": `start pubsub emulator: no emulator found: PUBSUB_EMULATOR_HOST is not set; ` +
			`find the Google Cloud CLI: exec: "gcloud": executable file not found in $PATH; ` +
			`find docker: exec: "docker": executable file not found in $PATH; ` +
			`to get one, install the Google Cloud CLI with its component pubsub-emulator ` +
			`(gcloud components install pubsub-emulator), or start a Docker engine, ` +
			`or set PUBSUB_EMULATOR_HOST to the host:port of a running one`,
	}
	for name, err := range got {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v is not ErrNotFound", name, err)
		}
		if diff := cmp.Diff(want[name], err.Error()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestNotFoundNamesWhatIsMissing(t *testing.T) {
	path := barren(t)
	root := t.TempDir()
	writeFile(t, filepath.Join(root, "bin", "gcloud"), "#!/bin/sh\n")
	if err := os.Symlink(filepath.Join(root, "bin", "gcloud"), filepath.Join(path, "gcloud")); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(path, "docker"), "#!/bin/sh\necho no daemon >&2; exit 1\n")
	writeFile(t, filepath.Join(root, "platform/pubsub-emulator/lib/cloud-pubsub-emulator-0.8.20-all.jar"), "")

	_, errSpanner := StartSpanner(t.Context())
	_, errPubSub := StartPubSub(t.Context())
	t.Setenv(spannerEnv, "127.0.0.1:1")
	_, errPrivate := StartSpanner(t.Context(), WithPrivate())
	for _, tc := range []struct {
		name string
		err  error
		want []string
	}{
		{"component and engine", errSpanner, []string{root + " lacks the component cloud-spanner-emulator", "no daemon"}},
		{"java", errPubSub, []string{"find the Java runtime"}},
		{"the running one is not wanted", errPrivate, []string{"SPANNER_EMULATOR_HOST is passed by"}},
	} {
		if !errors.Is(tc.err, ErrNotFound) {
			t.Errorf("%s: %v is not ErrNotFound", tc.name, tc.err)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(tc.err.Error(), want) {
				t.Errorf("%s: %q, want %q in it", tc.name, tc.err, want)
			}
		}
	}
}

func TestSDKRoot(t *testing.T) {
	const file, component = "lib/emulator-*.jar", "the-component"
	root := t.TempDir()
	for _, version := range []string{"0.8", "0.9"} {
		writeFile(t, filepath.Join(root, "lib", "emulator-"+version+".jar"), "")
	}
	want := filepath.Join(root, "lib", "emulator-0.9.jar")

	for name, prepare := range map[string]func(t *testing.T, path string){
		"from CLOUDSDK_ROOT_DIR": func(t *testing.T, _ string) {
			t.Setenv("CLOUDSDK_ROOT_DIR", root)
		},
		"beside the gcloud that a link on PATH leads to": func(t *testing.T, path string) {
			writeFile(t, filepath.Join(root, "bin", "gcloud"), "#!/bin/sh\nexit 1\n")
			if err := os.Symlink(filepath.Join(root, "bin", "gcloud"), filepath.Join(path, "gcloud")); err != nil {
				t.Fatal(err)
			}
		},
		"as a wrapper on PATH says": func(t *testing.T, path string) {
			writeFile(t, filepath.Join(path, "gcloud"), "#!/bin/sh\necho '"+root+"'\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			prepare(t, barren(t))
			got, err := sdkFile(t.Context(), file, component)
			if err != nil {
				t.Fatal(err)
			}
			gotInfo, err := os.Stat(got)
			if err != nil {
				t.Fatal(err)
			}
			wantInfo, err := os.Stat(want)
			if err != nil {
				t.Fatal(err)
			}
			if !os.SameFile(gotInfo, wantInfo) {
				t.Errorf("sdkFile = %s, want %s", got, want)
			}
		})
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	ports, faults := []int{7001, 7002}, config{faultInjection: true}
	for name, tc := range map[string]struct{ got, want []string }{
		"gateway": {
			gatewayArgs(faults, "/sdk/emulator_main", ports),
			[]string{"--hostname", "127.0.0.1", "--grpc_port", "7001", "--http_port", "7002", "--grpc_binary", "/sdk/emulator_main", "--enable_fault_injection"},
		},
		"server alone": {
			serverArgs(config{}, ports),
			[]string{"--host_port", "127.0.0.1:7001"},
		},
		"Spanner container": {
			spannerContainer("docker", faults).args(ports, "name"),
			[]string{
				"run", "--rm", "--name", "name", "--add-host", "host.docker.internal:host-gateway",
				"--publish", "127.0.0.1:7001:9010", "--publish", "127.0.0.1:7002:9020",
				"gcr.io/cloud-spanner-emulator/emulator:1.5.28",
				"./gateway_main", "--hostname", "0.0.0.0", "--enable_fault_injection",
			},
		},
		"Pub/Sub container": {
			pubsubContainer("docker", config{}).args(ports, "name"),
			[]string{
				"run", "--rm", "--name", "name", "--add-host", "host.docker.internal:host-gateway",
				"--publish", "127.0.0.1:7001:8085",
				"gcr.io/google.com/cloudsdktool/google-cloud-cli:emulators",
				"gcloud", "beta", "emulators", "pubsub", "start", "--host-port=0.0.0.0:8085",
			},
		},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A stand-in for docker that answers for an engine, runs the CLI's emulator as the
// container, and notes which container it starts and removes.
const fakeDocker = `#!/bin/sh
PATH=/usr/local/bin:/usr/bin:/bin
case $1 in
version) echo 28.0.0 ;;
run)
	for a; do
		case $a in
		127.0.0.1:*:9010) grpc=${a#127.0.0.1:} grpc=${grpc%:9010} ;;
		127.0.0.1:*:9020) http=${a#127.0.0.1:} http=${http%:9020} ;;
		esac
	done
	echo "$4" >'@DIR@/started'
	'@BIN@/gateway_main' --hostname 127.0.0.1 --grpc_port $grpc --http_port $http --grpc_binary '@BIN@/emulator_main' ;;
rm) echo "$3" >'@DIR@/removed' ;;
esac
`

func TestDocker(t *testing.T) {
	server, err := sdkFile(t.Context(), "bin/cloud_spanner_emulator/emulator_main", spannerComponent)
	if err != nil {
		t.Fatal(err)
	}
	path, dir := barren(t), t.TempDir()
	script := strings.NewReplacer("@BIN@", filepath.Dir(server), "@DIR@", dir).Replace(fakeDocker)
	writeFile(t, filepath.Join(path, "docker"), script)

	s, err := StartSpanner(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := "docker image " + spannerImage; s.Source != want {
		t.Errorf("Source = %q, want %q", s.Source, want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	started, err := os.ReadFile(filepath.Join(dir, "started"))
	if err != nil {
		t.Fatal(err)
	}
	removed, err := os.ReadFile(filepath.Join(dir, "removed"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(started), string(removed)); diff != "" {
		t.Errorf("container (-started +removed):\n%s", diff)
	}
	await(t, func(ctx context.Context) error { return groupGone(ctx, s.process.pgid) })
}
