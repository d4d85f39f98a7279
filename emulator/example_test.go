package emulator_test

import (
	"context"
	"fmt"
	"log"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/emulator"
)

func ExampleStartSpanner() {
	ctx := context.Background()
	emu, err := emulator.StartSpanner(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer emu.Close()
	database, err := emu.CreateDatabase(ctx, "", []string{
		`CREATE TABLE accounts (id STRING(36) NOT NULL) PRIMARY KEY (id)`,
	})
	if err != nil {
		log.Fatal(err)
	}
	client, err := spanner.NewClientWithConfig(ctx, database,
		spanner.ClientConfig{DisableNativeMetrics: true}, emu.ClientOptions()...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	row, err := client.Single().Query(ctx, spanner.NewStatement("SELECT COUNT(*) FROM accounts")).Next()
	if err != nil {
		log.Fatal(err)
	}
	var accounts int64
	if err := row.Columns(&accounts); err != nil {
		log.Fatal(err)
	}
	fmt.Println(accounts, "accounts")
	// Output: 0 accounts
}
