package rehearsal

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// mainPackage is equivalent to the program that the Go buildpack adds to a function: it
// imports the function and serves its registered handlers.
const mainPackage = `package main

import (
	"log"
	"os"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"

	_ "github.com/settleonce/settleonce"
)

func main() { log.Fatal(funcframework.Start(os.Getenv("PORT"))) }
`

// appDir is the buildpack's directory for it, in the function's module.
const appDir = "functions.local/app"

// buildAsBuildpack builds the function in dir as the Go buildpack does: a main package
// in the function's module, go mod tidy, go build, with GOFLAGS from the deployment's
// build environment. It returns the program. Unlike the buildpack it does not set GOPATH
// and does not fetch modules without a proxy, so that modules come from this machine's
// cache.
func buildAsBuildpack(dir, flags string) (program string, err error) {
	if err := os.MkdirAll(filepath.Join(dir, appDir), 0o700); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, appDir, "main.go"), []byte(mainPackage), 0o600); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "main")
	for _, step := range []string{"go mod tidy", "go build -o " + program + " ./" + appDir} {
		words := strings.Fields(step)
		cmd := exec.Command(words[0], words[1:]...) //nolint:noctx // the build ends by itself
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS="+flags, "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", step, err, out)
		}
	}
	return program, nil
}
