// Package rehearsal holds the tests of the deployment scripts, which need neither
// a Google Cloud project nor a network.
//
// The scripts run as they are, with the real gcloud. What they talk to is a project
// made up of the real Spanner and Pub/Sub emulators and, for what has no emulator, a
// store of resources that behaves as Google's APIs do as far as the scripts can see:
// creating twice is refused, and so is what names something that is not there. The
// functions that they deploy are really built from what gcloud uploads, the way the
// Go buildpack builds them, started with what the deployment says, and put behind
// their topics.
//
// What this cannot show is what Google's own services do with the requests: whether a
// role suffices, how long a deployment takes, what an API really prints. Where the
// project departs from the real one the file that does it says so.
package rehearsal
