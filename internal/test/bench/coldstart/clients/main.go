// Command clients serves a function that opens the Spanner client and reads one row,
// under the same framework as the real one, for the minimum time of a cold start with
// Spanner.
package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"os"

	"cloud.google.com/go/spanner"
	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"
	"github.com/GoogleCloudPlatform/functions-framework-go/functions"
)

func main() {
	functions.HTTP("OpenClients", func(w http.ResponseWriter, r *http.Request) {
		if err := readOneRow(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	log.Fatal(funcframework.Start(os.Getenv("PORT")))
}

// readOneRow reads a missing row. The process serves one request, so the client stays
// open.
func readOneRow(ctx context.Context) error {
	client, err := spanner.NewClientWithConfig(ctx, os.Getenv("SPANNER_DATABASE"), spanner.ClientConfig{DisableNativeMetrics: true})
	if err != nil {
		return err
	}
	_, err = client.Single().ReadRow(ctx, "ledger_movements", spanner.Key{[]byte("none")}, []string{"payload_hash"})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return nil
	}
	return err
}
