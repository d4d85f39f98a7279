package emulator

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// cliLimit bounds one call of gcloud or docker.
const cliLimit = 15 * time.Second

// find returns a launcher for the emulator, or an error that is ErrNotFound.
func (k kind) find(ctx context.Context) (launcher, error) {
	l := launcher{source: "Google Cloud CLI", limit: programLimit, ports: len(k.containerPorts), answers: k.answers}
	file, errCLI := sdkFile(ctx, k.file, k.component)
	if errCLI == nil {
		if l.program, l.args, errCLI = k.program(file); errCLI == nil {
			return l, nil
		}
	}
	docker, errDocker := dockerEngine(ctx)
	if errDocker == nil {
		return k.inContainer(docker), nil
	}
	if err := context.Cause(ctx); err != nil {
		return launcher{}, err
	}
	host := k.hostEnv + " is not set"
	if os.Getenv(k.hostEnv) != "" {
		host = k.hostEnv + " is ignored, because the options ask for a private emulator"
	}
	return launcher{}, fmt.Errorf("%w: %s; %w; %w; "+
		"install the Google Cloud CLI with its component %[5]s (gcloud components install %[5]s), "+
		"or start a Docker engine, or set %[6]s to the host:port of a running emulator",
		ErrNotFound, host, errCLI, errDocker, k.component, k.hostEnv)
}

// sdkFile returns the path of the newest file that matches pattern, which is
// relative to the Google Cloud CLI's root. The component installs the file.
func sdkFile(ctx context.Context, pattern, component string) (string, error) {
	gcloud, errPath := exec.LookPath("gcloud")
	roots := []func() string{
		func() string { return os.Getenv("CLOUDSDK_ROOT_DIR") },
		func() string { return rootBeside(gcloud) },
		func() string { return askRoot(ctx, gcloud) }, // takes a second of Python, so last
	}
	var searched string
	for _, root := range roots {
		dir := root()
		if dir == "" {
			continue
		}
		searched = dir
		if names, _ := fs.Glob(os.DirFS(dir), pattern); len(names) > 0 {
			return filepath.Join(dir, filepath.FromSlash(names[len(names)-1])), nil
		}
	}
	if searched == "" {
		return "", fmt.Errorf("find the Google Cloud CLI: %w", errPath)
	}
	return "", fmt.Errorf("the Google Cloud CLI in %s lacks the component %s", searched, component)
}

// rootBeside returns the CLI's root from the path of its gcloud command, after
// resolving symbolic links.
func rootBeside(gcloud string) string {
	path, err := filepath.EvalSymlinks(gcloud)
	if err != nil || filepath.Base(filepath.Dir(path)) != "bin" {
		return ""
	}
	return filepath.Dir(filepath.Dir(path))
}

// askRoot asks gcloud for the CLI's root, for the case that gcloud on PATH is a wrapper.
func askRoot(ctx context.Context, gcloud string) string {
	if gcloud == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, cliLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, gcloud, "info", "--format=value(installation.sdk_root)").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// javaCommand returns the java command that runs the Pub/Sub emulator.
func javaCommand() (string, error) {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		if java, err := exec.LookPath(filepath.Join(home, "bin", "java")); err == nil {
			return java, nil
		}
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return "", fmt.Errorf("find the Java runtime for the Google Cloud CLI's emulator: %w", err)
	}
	return java, nil
}

// dockerEngine returns the docker command if its engine answers.
func dockerEngine(ctx context.Context) (string, error) {
	docker, err := exec.LookPath("docker")
	if err != nil {
		return "", fmt.Errorf("find docker: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, cliLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, docker, "version", "--format", "{{.Server.Version}}").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ask the docker engine for its version: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return docker, nil
}

// inContainer returns a launcher that runs the image, removes the container when it
// ends, and publishes its ports on 127.0.0.1 only.
func (k kind) inContainer(docker string) launcher {
	l := launcher{source: "docker image " + k.image, limit: imageLimit, ports: len(k.containerPorts), answers: k.answers, program: docker}
	l.container = "settleonce-emulator-" + strings.ToLower(rand.Text())
	l.args = func(ports []int) []string {
		args := []string{"run", "--rm", "--name", l.container, "--add-host", "host.docker.internal:host-gateway"}
		for i, port := range ports {
			args = append(args, "--publish", fmt.Sprintf("%s:%d", address(port), k.containerPorts[i]))
		}
		return append(append(args, k.image), k.containerCommand...)
	}
	return l
}
