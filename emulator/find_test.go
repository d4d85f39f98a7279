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

// withoutEmulators clears the environment in which the package searches, and returns
// the directory that is PATH now.
func withoutEmulators(t *testing.T) string {
	t.Helper()
	for _, env := range []string{spannerKind.hostEnv, pubsubKind.hostEnv, "CLOUDSDK_ROOT_DIR", "JAVA_HOME"} {
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

func TestNotFoundTellsHowToInstall(t *testing.T) {
	withoutEmulators(t)
	_, err := StartPubSub(t.Context())
	if !errors.Is(err, ErrNotFound) {
		t.Fatalf("%v is not ErrNotFound", err)
	}
	want := `start pubsub emulator: no emulator found: PUBSUB_EMULATOR_HOST is not set; ` +
		`find the Google Cloud CLI: exec: "gcloud": executable file not found in $PATH; ` +
		`find docker: exec: "docker": executable file not found in $PATH; ` +
		`install the Google Cloud CLI with its component pubsub-emulator ` +
		`(gcloud components install pubsub-emulator), or start a Docker engine, ` +
		`or set PUBSUB_EMULATOR_HOST to the host:port of a running emulator`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

func TestNotFoundNamesMissingPart(t *testing.T) {
	path := withoutEmulators(t)
	root := t.TempDir()
	writeFile(t, filepath.Join(root, "bin", "gcloud"), "#!/bin/sh\n")
	if err := os.Symlink(filepath.Join(root, "bin", "gcloud"), filepath.Join(path, "gcloud")); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(path, "docker"), "#!/bin/sh\necho no daemon >&2; exit 1\n")
	writeFile(t, filepath.Join(root, "platform/pubsub-emulator/lib/cloud-pubsub-emulator-0.8.20-all.jar"), "")

	_, errSpanner := StartSpanner(t.Context())
	_, errPubSub := StartPubSub(t.Context())
	t.Setenv(spannerKind.hostEnv, "127.0.0.1:1")
	_, errPrivate := StartSpanner(t.Context(), WithPrivate())
	for _, tc := range []struct {
		name string
		err  error
		want []string
	}{
		{"component and engine", errSpanner, []string{root + " lacks the component cloud-spanner-emulator", "no daemon"}},
		{"java", errPubSub, []string{"find the Java runtime"}},
		{"private emulator", errPrivate, []string{"SPANNER_EMULATOR_HOST is ignored"}},
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
		"from the target of a link on PATH": func(t *testing.T, path string) {
			writeFile(t, filepath.Join(root, "bin", "gcloud"), "#!/bin/sh\nexit 1\n")
			if err := os.Symlink(filepath.Join(root, "bin", "gcloud"), filepath.Join(path, "gcloud")); err != nil {
				t.Fatal(err)
			}
		},
		"from gcloud info": func(t *testing.T, path string) {
			writeFile(t, filepath.Join(path, "gcloud"), "#!/bin/sh\necho '"+root+"'\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			prepare(t, withoutEmulators(t))
			got, err := sdkFile(t.Context(), file, component)
			if err != nil {
				t.Fatal(err)
			}
			// A temporary directory may itself be a link.
			if !strings.HasSuffix(got, want) {
				t.Errorf("sdkFile = %s, want %s", got, want)
			}
		})
	}
}

func TestContainerArguments(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		kind kind
		want []string
	}{
		"Spanner": {spannerKind, []string{
			"--publish", "127.0.0.1:7001:9010", "--publish", "127.0.0.1:7002:9020",
			"gcr.io/cloud-spanner-emulator/emulator:1.5.28", "./gateway_main", "--hostname", "0.0.0.0",
		}},
		"Pub/Sub": {pubsubKind, []string{
			"--publish", "127.0.0.1:7001:8085", "gcr.io/google.com/cloudsdktool/google-cloud-cli:emulators",
			"gcloud", "beta", "emulators", "pubsub", "start", "--host-port=0.0.0.0:8085",
		}},
	} {
		l := tc.kind.inContainer("docker")
		want := append([]string{"run", "--rm", "--name", l.container, "--add-host", "host.docker.internal:host-gateway"}, tc.want...)
		if diff := cmp.Diff(want, l.args([]int{7001, 7002}[:l.ports])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// fakeDocker answers for an engine, runs the CLI's emulator as the container, and
// records the container that it starts and the one that it removes.
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

func TestDockerRemovesContainer(t *testing.T) {
	server, err := sdkFile(t.Context(), spannerKind.file, spannerKind.component)
	if err != nil {
		t.Fatal(err)
	}
	path, dir := withoutEmulators(t), t.TempDir()
	script := strings.NewReplacer("@BIN@", filepath.Dir(server), "@DIR@", dir).Replace(fakeDocker)
	writeFile(t, filepath.Join(path, "docker"), script)

	s, err := StartSpanner(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := "docker image " + spannerKind.image; s.Source != want {
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
	await(t, func(ctx context.Context) error { return groupGone(ctx, s.pgid) })
}
