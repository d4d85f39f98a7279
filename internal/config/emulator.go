package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// The variables that select emulators, in every program of this module. Google's clients
// read them too.
const (
	EnvEmulatorHost       = "SPANNER_EMULATOR_HOST"
	EnvPubSubEmulatorHost = "PUBSUB_EMULATOR_HOST"
)

// CheckEmulatorHost checks the value of [EnvEmulatorHost] or [EnvPubSubEmulatorHost],
// which name gives for the error. It accepts host:port, and the empty value, which
// selects the real service. Google's clients remove some schemes and pass others on, so
// it rejects every scheme.
func CheckEmulatorHost(name, value string) error {
	if value == "" {
		return nil
	}
	if err := checkVisible(value); err != nil {
		return fmt.Errorf("%s %w", name, err)
	}
	const form = "expected host:port such as 127.0.0.1:9010, or empty for the real service"
	if scheme, _, found := strings.Cut(value, "://"); found {
		return fmt.Errorf("%s is %q; remove the scheme %s://; %s", name, value, scheme, form)
	}
	if err := checkHostPort(value); err != nil {
		return fmt.Errorf("%s is %q: %w; %s", name, value, err, form)
	}
	return nil
}

func checkHostPort(value string) error {
	host, port, err := net.SplitHostPort(value)
	if err != nil {
		if address, ok := errors.AsType[*net.AddrError](err); ok {
			return errors.New(address.Err)
		}
		return err
	}
	notInName := func(r rune) bool {
		return r != '.' && r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}
	if _, err := netip.ParseAddr(host); err != nil && (host == "" || strings.ContainsFunc(host, notInName)) {
		return fmt.Errorf("%q is no host", host)
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return fmt.Errorf("%q is no port", port)
	}
	return nil
}

// emulator reads the address of an emulator. A deployed function in an emulator would
// acknowledge payouts that the emulator forgets.
func (e *environment) emulator(name string) string {
	value, set := e.get(name)
	switch service := e.service(); {
	case !set:
	case service != "":
		e.fault("%s is %q and %s is %q: a deployed function must not use an emulator, which forgets every payout; remove %s", name, value, envService, service, name)
	default:
		if err := CheckEmulatorHost(name, value); err != nil {
			e.faults = append(e.faults, err)
		}
	}
	return value
}
