package emulator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// ErrNotFound is in the error of [StartSpanner] and [StartPubSub] when there is no
// emulator to use or start. The error's text says what was looked for and how to
// get one.
var ErrNotFound = errors.New("no emulator found")

// askLimit bounds the questions to gcloud and docker.
const askLimit = 15 * time.Second

// kind is what differs in the search for the two emulators.
type kind struct {
	hostEnv   string // the variable that names a running one
	component string // of the Google Cloud CLI
	cli       func(context.Context, config) (launcher, error)
	image     func(docker string, cfg config) launcher
}

// find returns the way to start an emulator, or an error that is ErrNotFound.
func (k kind) find(ctx context.Context, cfg config) (launcher, error) {
	l, errCLI := k.cli(ctx, cfg)
	if errCLI == nil {
		return l, nil
	}
	docker, errDocker := dockerEngine(ctx)
	if errDocker == nil {
		return k.image(docker, cfg), nil
	}
	if err := context.Cause(ctx); err != nil {
		return launcher{}, err
	}
	host := k.hostEnv + " is not set"
	if os.Getenv(k.hostEnv) != "" {
		host = k.hostEnv + " is passed by, since the options ask for a private one"
	}
	return launcher{}, fmt.Errorf("%w: %s; %w; %w; to get one, "+
		"install the Google Cloud CLI with its component %[5]s (gcloud components install %[5]s), "+
		"or start a Docker engine, or set %[6]s to the host:port of a running one",
		ErrNotFound, host, errCLI, errDocker, k.component, k.hostEnv)
}

// sdkFile returns the path of the first file that matches pattern, which is
// relative to the Google Cloud CLI's root. component is what brings the file.
func sdkFile(ctx context.Context, pattern, component string) (string, error) {
	gcloud, errPath := exec.LookPath("gcloud")
	roots := []func() string{
		func() string { return os.Getenv("CLOUDSDK_ROOT_DIR") },
		func() string { return rootBeside(gcloud) },
		func() string { return askRoot(ctx, gcloud) }, // a second of Python, so last
	}
	var searched string
	for _, root := range roots {
		dir := root()
		if dir == "" {
			continue
		}
		searched = dir
		if names, _ := fs.Glob(os.DirFS(dir), pattern); len(names) > 0 {
			// Several versions of a file: the last is the newest.
			return filepath.Join(dir, filepath.FromSlash(names[len(names)-1])), nil
		}
	}
	if searched == "" {
		return "", fmt.Errorf("find the Google Cloud CLI: %w", errPath)
	}
	return "", fmt.Errorf("the Google Cloud CLI in %s lacks the component %s", searched, component)
}

// rootBeside returns the CLI's root from the place of its gcloud command, which is
// often reached through symbolic links.
func rootBeside(gcloud string) string {
	path, err := filepath.EvalSymlinks(gcloud)
	if err != nil || filepath.Base(filepath.Dir(path)) != "bin" {
		return ""
	}
	return filepath.Dir(filepath.Dir(path))
}

// askRoot returns the CLI's root from gcloud itself, which also works where gcloud
// on PATH is a wrapper.
func askRoot(ctx context.Context, gcloud string) string {
	if gcloud == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, gcloud, "info", "--format=value(installation.sdk_root)").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// javaCommand returns the java to run the Pub/Sub emulator with.
func javaCommand() (string, error) {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		if java, err := exec.LookPath(filepath.Join(home, "bin", "java")); err == nil {
			return java, nil
		}
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return "", fmt.Errorf("find the Java runtime that the Google Cloud CLI's emulator needs: %w", err)
	}
	return java, nil
}

// dockerEngine returns the docker command if its engine answers; the command alone
// is often installed without one.
func dockerEngine(ctx context.Context) (string, error) {
	docker, err := exec.LookPath("docker")
	if err != nil {
		return "", fmt.Errorf("find docker: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, docker, "version", "--format", "{{.Server.Version}}").Output()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return "", fmt.Errorf("ask the docker engine for its version: %w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	case err != nil:
		return "", fmt.Errorf("ask the docker engine for its version: %w", err)
	case strings.TrimSpace(string(out)) == "":
		return "", errors.New("ask the docker engine for its version: it has none")
	}
	return docker, nil
}

// dockerRun returns the arguments with which docker runs image as container,
// removed when it ends, and publishes the container's ports on 127.0.0.1 only.
func dockerRun(container, image string, publish []published, command ...string) []string {
	args := []string{"run", "--rm", "--name", container, "--add-host", "host.docker.internal:host-gateway"}
	for _, p := range publish {
		args = append(args, "--publish", fmt.Sprintf("%s:%d", address(p.host), p.container))
	}
	args = append(args, image)
	return append(args, command...)
}

// published is a container's port and the one of the host that leads to it.
type published struct{ host, container int }
