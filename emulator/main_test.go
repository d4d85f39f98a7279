package emulator

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

// parentRole makes the test binary the parent that TestKilledParent kills.
const parentRole = "EMULATOR_TEST_PARENT"

// children is what that parent prints about the emulators it has started.
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

// beParent starts both emulators, prints where they are, and waits to be killed.
func beParent() error {
	ctx, cancel := testContext()
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
		Groups:    []int{s.process.pgid, p.process.pgid},
	})
	if err != nil {
		return err
	}
	select {}
}
