package rehearsal

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// mainPackage is what the Go buildpack puts beside a function: a program that
// imports it, and serves what it has registered. This is an equivalent of ours.
const mainPackage = `package main

import (
	"log"
	"os"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"

	_ "github.com/settleonce/settleonce"
)

func main() { log.Fatal(funcframework.Start(os.Getenv("PORT"))) }
`

// appDir is where the buildpack puts it: in the function's own module.
const appDir = "functions.local/app"

// buildAsBuildpack builds the function whose source is in dir, as the Go buildpack
// does: a main package in the function's module, go mod tidy, go build. It returns the
// program. The buildpack also sets GOPATH and falls back to fetching modules without a
// proxy; both are left out, so that modules come from this machine's cache.
func buildAsBuildpack(dir string) (program string, err error) {
	if err := os.MkdirAll(filepath.Join(dir, appDir), 0o700); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, appDir, "main.go"), []byte(mainPackage), 0o600); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "main")
	for _, step := range []string{"go mod tidy", "go build -o " + program + " ./" + appDir} {
		words := strings.Fields(step)
		cmd := exec.Command(words[0], words[1:]...) //nolint:noctx // it is waited for, whatever becomes of the test
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", step, err, out)
		}
	}
	return program, nil
}
