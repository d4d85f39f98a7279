// Command empty serves a function that does nothing, under the same framework as the
// real one: the least that a cold start can take.
package main

import (
	"log"
	"net/http"
	"os"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"
	"github.com/GoogleCloudPlatform/functions-framework-go/functions"
)

func main() {
	functions.HTTP("Nothing", func(http.ResponseWriter, *http.Request) {})
	log.Fatal(funcframework.Start(os.Getenv("PORT")))
}
