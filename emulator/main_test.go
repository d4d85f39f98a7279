package emulator

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

// parentRole makes the test binary the parent that TestParentKilled kills.
const parentRole = "EMULATOR_TEST_PARENT"

// children describes the emulators that the parent has started.
type children struct {
	Addresses []string
	Groups    []int
}

func TestMain(m *testing.M) {
	if os.Getenv(parentRole) != "" {
		if err := beParent(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// beParent starts both emulators, prints their addresses, and waits to be killed.
func beParent() error {
	ctx, cancel := context.WithTimeout(context.Background(), testLimit)
	defer cancel()
	s, err := StartSpanner(ctx, WithPrivate())
	if err != nil {
		return err
	}
	p, err := StartPubSub(ctx, WithPrivate())
	if err != nil {
		return err
	}
	err = json.NewEncoder(os.Stdout).Encode(children{
		Addresses: []string{s.GRPC, s.REST[len("http://"):], p.Host},
		Groups:    []int{s.pgid, p.pgid},
	})
	if err != nil {
		return err
	}
	select {}
}
