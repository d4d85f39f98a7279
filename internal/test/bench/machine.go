package main

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/settleonce/settleonce/internal/test/bench/report"
)

func describeMachine(ctx context.Context) report.Machine {
	return report.Machine{
		CPUs: runtime.NumCPU(), CPU: cpuModel(ctx), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
		Load: loadAverage(), Date: time.Now().UTC().Format(time.DateOnly),
	}
}

func cpuModel(ctx context.Context) string {
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	if out, err := exec.CommandContext(ctx, "sysctl", "-n", "machdep.cpu.brand_string").Output(); err == nil {
		return strings.TrimSpace(string(out))
	}
	return "unknown"
}

// loadAverage returns the load average of the last minute; below zero means unknown.
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return -1
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return -1
	}
	return load
}

// spannerVersion returns the emulator's name, with its version if gcloud knows it.
func spannerVersion(ctx context.Context, source string) string {
	name := "Spanner emulator (" + source + ")"
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "gcloud", "version").Output()
	if err != nil {
		return name
	}
	for line := range strings.Lines(string(out)) {
		if version, ok := strings.CutPrefix(line, "cloud-spanner-emulator "); ok {
			return "Spanner emulator " + strings.TrimSpace(version) + " (" + source + ")"
		}
	}
	return name
}
