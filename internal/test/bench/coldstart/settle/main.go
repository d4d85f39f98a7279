// Command settle serves the functions of this module as the Go buildpack does.
package main

import (
	"log"
	"os"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"

	_ "github.com/settleonce/settleonce"
)

func main() { log.Fatal(funcframework.Start(os.Getenv("PORT"))) }
