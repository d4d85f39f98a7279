// Command tour serves the functions as the Go buildpack does. The test of this package
// builds it with an overlay in which every function of the deployed packages prints
// its name, and compares the names with the tour in docs/ARCHITECTURE.md.
package main

import (
	"log"
	"os"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"

	_ "github.com/settleonce/settleonce"
)

func main() { log.Fatal(funcframework.StartHostPort("127.0.0.1", os.Getenv("PORT"))) }
