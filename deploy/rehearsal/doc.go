// Package rehearsal tests the deployment scripts without a Google Cloud project and
// without a network.
//
// The tests run the scripts unchanged, with the real gcloud, against a simulated
// project. Spanner and Pub/Sub are the real emulators. For all other APIs a store of
// resources answers like Google's, as far as the scripts can see: it rejects a second
// create and a reference to an absent resource. The tests build the deployed functions
// from gcloud's upload as the Go buildpack does, start them with the deployment's
// settings and subscribe them to their topics.
//
// The tests do not show how Google's own services handle the requests: whether a role
// suffices, how long a deployment takes, the exact output of an API. A comment marks
// each known difference from the real services.
package rehearsal
