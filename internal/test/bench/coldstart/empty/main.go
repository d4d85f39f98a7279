// Command empty serves an empty function under the same framework as the real one, for
// the minimum time of a cold start.
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
