package settleonce_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestCIInstallsWhatIsMissing runs .ci/run on machines that lack something. Every
// program there is a stub; what stubs cannot show is whether the packages exist.
func TestCIInstallsWhatIsMissing(t *testing.T) {
	t.Parallel()
	const (
		surfaces     = "lib/surface/alpha lib/surface/beta"
		components   = surfaces + " bin/cloud_spanner_emulator/emulator_main platform/pubsub-emulator"
		addAlpha     = "gcloud components install alpha --quiet"
		addBeta      = "gcloud components install beta --quiet"
		addSpanner   = "gcloud components install cloud-spanner-emulator --quiet"
		addPubSub    = "gcloud components install pubsub-emulator --quiet"
		update       = "apt-get --quiet update"
		install      = "apt-get --quiet install --yes --no-install-recommends "
		sudo         = "sudo -n env DEBIAN_FRONTEND=noninteractive "
		gcloudDebs   = "google-cloud-cli"
		spannerDebs  = "google-cloud-cli-spanner-emulator"
		pubsubDebs   = "google-cloud-cli-pubsub-emulator"
		javaDebs     = "default-jre-headless"
		spannerEnv   = "SPANNER_EMULATOR_HOST=127.0.0.1:9010"
		pubsubEnv    = "PUBSUB_EMULATOR_HOST=127.0.0.1:8085"
		root, nobody = "0", "1000"
	)
	for _, c := range []struct {
		name    string
		machine ciMachine
		want    []string // calls before those of make
		lacks   []string // in the end, by what the run prints
	}{
		{
			name:    "nothing is missing",
			machine: ciMachine{programs: "make shellcheck pg_createcluster java gcloud apt-get", components: components, user: root},
		},
		{
			name:    "components",
			machine: ciMachine{programs: "make shellcheck pg_createcluster java gcloud apt-get", user: root},
			want:    []string{addAlpha, addBeta, addSpanner, addPubSub},
		},
		{
			name:    "components of a CLI that a package manager installed",
			machine: ciMachine{programs: "make shellcheck pg_createcluster java gcloud apt-get", user: root, fail: "gcloud?components*"},
			want: []string{
				addAlpha, update, install + gcloudDebs, addBeta, update, install + gcloudDebs,
				addSpanner, update, install + spannerDebs, addPubSub, update, install + pubsubDebs,
			},
		},
		{
			name:    "emulators, with others running",
			machine: ciMachine{programs: "make shellcheck initdb gcloud apt-get", components: surfaces, user: root, env: []string{spannerEnv, pubsubEnv}},
		},
		{
			name:    "programs",
			machine: ciMachine{programs: "make gcloud apt-get", components: components, user: root},
			want:    []string{update, install + "shellcheck", update, install + "postgresql", update, install + javaDebs},
		},
		{
			name:    "a program, and the user is not root",
			machine: ciMachine{programs: "make pg_createcluster java gcloud apt-get sudo", components: components, user: nobody},
			want:    []string{sudo + update, sudo + install + "shellcheck"},
		},
		{
			name:    "everything, and sudo would ask",
			machine: ciMachine{programs: "make gcloud apt-get sudo", user: nobody, fail: "*?-n?*"},
			want:    []string{sudo + update, sudo + update, addAlpha, addBeta, addSpanner, addPubSub, sudo + update},
			lacks:   []string{"shellcheck", "pg_createcluster", "java"},
		},
		{
			name:    "everything, and nothing can be installed",
			machine: ciMachine{programs: "make", user: root},
			lacks:   []string{"shellcheck", "pg_createcluster", "alpha", "beta", "cloud-spanner-emulator", "pubsub-emulator", "java"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			calls, output := c.machine.run(t)
			first := slices.Index(calls, "make lint")
			if first < 0 || calls[len(calls)-1] != "make test" {
				t.Fatalf("the linter was not run, or the tests not last: %q\n%s", calls, output)
			}
			if diff := cmp.Diff(c.want, calls[:first], cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("calls before make (-want +got):\n%s", diff)
			}
			for _, what := range []string{"shellcheck", "pg_createcluster", "alpha", "beta", "cloud-spanner-emulator", "pubsub-emulator", "java"} {
				said := strings.Contains(output, "ci: "+what+" is missing and cannot be installed here")
				if said != slices.Contains(c.lacks, what) {
					t.Errorf("says that %s is missing: %t, want %t\n%s", what, said, !said, output)
				}
			}
		})
	}
}

// ciMachine is a machine to run .ci/run on.
type ciMachine struct {
	programs   string // on PATH, beside go
	components string // files below the Google Cloud CLI's root
	user       string // ID
	fail       string // shell pattern of the calls that fail
	env        []string
}

// ciStub stands for every program that .ci/run calls, and records the calls that
// are not questions.
const ciStub = `#!/bin/sh
call="${0##*/} $*"
case $call in
"go env GOVERSION") echo go1.26.8 ;;
"gcloud info "*) echo "$SDK" ;;
"id -u") echo "$ID" ;;
*) echo "$call" >>"$RECORD" ;;
esac
case $call in
$FAIL) exit 1 ;;
esac
`

// run returns the calls that .ci/run made, and what it printed.
func (m ciMachine) run(t *testing.T) (calls []string, output string) {
	t.Helper()
	bin, sdk, record := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "record")
	for _, name := range strings.Fields("go id " + m.programs) {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(ciStub), 0o700); err != nil { //nolint:gosec // G306: a program
			t.Fatal(err)
		}
	}
	for _, name := range []string{"dirname", "env"} {
		if err := os.Symlink(lookPath(t, name), filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range strings.Fields(m.components) {
		if err := os.MkdirAll(filepath.Join(sdk, file), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), lookPath(t, "bash"), ".ci/run")
	cmd.Env = append(m.env, "PATH="+bin, "RECORD="+record, "SDK="+sdk, "ID="+m.user, "FAIL="+m.fail)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	recorded, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(recorded)), "\n"), string(out)
}

func lookPath(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
