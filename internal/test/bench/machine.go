package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/settleonce/settleonce/internal/test/bench/report"
)

func describeMachine() report.Machine {
	cpu, load := "unknown CPU", "unknown"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if model := regexp.MustCompile(`model name\s*: (.+)`).FindSubmatch(info); model != nil {
			cpu = string(model[1])
		}
	}
	if loads, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ = strings.Cut(string(loads), " ")
	}
	return report.Machine{
		CPU: fmt.Sprintf("%d × %s", runtime.NumCPU(), cpu), Go: fmt.Sprintf("%s/%s, %s", runtime.GOOS, runtime.GOARCH, runtime.Version()),
		Load: load, Date: time.Now().UTC().Format(time.DateOnly),
	}
}

// spannerVersion returns the emulator's name, with its version if gcloud knows it.
func spannerVersion(ctx context.Context, source string) string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, _ := exec.CommandContext(ctx, "gcloud", "version").Output() // an error leaves the version out
	if version := regexp.MustCompile(`cloud-spanner-emulator (\S+)`).FindSubmatch(out); version != nil {
		return fmt.Sprintf("Spanner emulator %s (%s)", version[1], source)
	}
	return "Spanner emulator (" + source + ")"
}
