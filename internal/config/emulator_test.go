package config

import (
	"strings"
	"testing"
)

func TestCheckEmulatorHost(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"": "", "127.0.0.1:9010": "", "localhost:1": "", "host.docker.internal:65535": "", "spanner_emulator:9010": "", "[::1]:9010": "",

		"http://localhost:9010":      "remove the scheme http://",
		"https://localhost:9010":     "remove the scheme https://",
		"passthrough:///localhost:1": "remove the scheme passthrough://",
		"localhost":                  "missing port in address",
		"::1:9010":                   "too many colons in address",
		":9010":                      `"" is no host`,
		"local/host:9010":            `"local/host" is no host`,
		"user@localhost:9010":        `"user@localhost" is no host`,
		"[fe80::g]:9010":             `"fe80::g" is no host`,
		"localhost:":                 `"" is no port`,
		"localhost:0":                `"0" is no port`,
		"localhost:65536":            `"65536" is no port`,
		"localhost:+9010":            `"+9010" is no port`,
		"localhost:9010/":            `"9010/" is no port`,
		"localhost:grpc":             `"grpc" is no port`,
		"localhost:9010\n":           "has the character U+000A at byte 15 of 15",
		" localhost:9010":            "has the character U+0020 at byte 1 of 15",
		"local host:9010":            `"local host" is no host`,
		"localhost:9010\u200b":       "has the character U+200B at byte 15 of 17",
	} {
		err := CheckEmulatorHost(EnvPubSubEmulatorHost, value)
		if want == "" && err != nil {
			t.Errorf("%q: %v", value, err)
		}
		if want != "" && (err == nil || !strings.HasPrefix(err.Error(), "PUBSUB_EMULATOR_HOST ") || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want PUBSUB_EMULATOR_HOST and %q", value, err, want)
		}
	}
}

func TestDeployedInstanceRejectsEmulators(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"10.0.0.5:9010", "not an address"} {
		emulators := map[string]string{EnvEmulatorHost: value, EnvPubSubEmulatorHost: value, "K_SERVICE": "settle-payout"}
		_, err := fromMap(emulators)
		if err == nil || strings.Count(err.Error(), "\n") != 2 {
			t.Fatalf("%s: %v, want one fault for each variable", value, err)
		}
		for _, want := range []string{
			`SPANNER_EMULATOR_HOST is "` + value + `" and K_SERVICE is "settle-payout"`, "remove SPANNER_EMULATOR_HOST", "remove PUBSUB_EMULATOR_HOST",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("no %q in\n%v", want, err)
			}
		}
	}
	local, err := fromMap(map[string]string{EnvEmulatorHost: "10.0.0.5:9010", EnvPubSubEmulatorHost: "10.0.0.5:8085", "K_SERVICE": ""})
	if err != nil || local.EmulatorHost != "10.0.0.5:9010" {
		t.Errorf("outside the platform: %q, %v", local.EmulatorHost, err)
	}
}
