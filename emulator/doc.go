// Package emulator finds, starts and ends the Spanner emulator and the Pub/Sub
// emulator, and sets up what a test or a local run needs in them.
//
// It exists so that nobody has to start an emulator by hand. The tests of this
// module talk to a real emulator and do not skip without one, so getting one has
// to be as dependable as a function call: on free ports, ready when the call
// returns, gone when the caller is gone.
//
// # Where an emulator comes from
//
// [StartSpanner] and [StartPubSub] take the first of these that is there:
//
//  1. one that is already running, named by SPANNER_EMULATOR_HOST or
//     PUBSUB_EMULATOR_HOST. It is used and never ended;
//  2. the Google Cloud CLI's own programs (for Pub/Sub with java);
//  3. the container image, when a docker engine answers.
//
// With none of them the error matches [ErrNotFound] and says how to get one.
// [WithPrivate], [WithPort] and [WithFaultInjection] pass the first by, since they
// ask for what a running one cannot give.
//
// # How a process is never left behind
//
// A deferred Close does not run after SIGKILL, an os.Exit, or the time-out of go
// test, and the Spanner emulator is two processes: killing the one that was
// started leaves the other. Linux could tie a child to its parent's death, but only
// to that of the parent's thread, only for the direct child, and macOS not at all.
//
// So the emulator's parent is a shell script of a dozen lines (supervisor in
// process.go) in a process group of its own. It reads from a pipe whose only write
// end this process holds. The kernel closes that end however this process ends;
// the script then kills its whole group and, for a container, removes that. Close
// does nothing else than closing the pipe, so the normal end and the sudden one are
// the same code. In its own group the emulator is also out of reach of Ctrl-C at
// the terminal, and its user decides in which order things stop.
//
// When the emulator ends first, the script says with which status and kills what is
// left of the group. Done and Err of [Spanner] and [PubSub] report it.
//
// # Why starts queue up
//
// Ports are chosen by binding port 0 and letting go again, so another program can
// take one before the emulator does. Usually the emulator then ends, which is
// noticed, and it is started again on other ports. But the Spanner emulator
// listens with SO_REUSEPORT: two of them on one port both succeed, and the kernel
// deals connections out among them. A lock file in the temporary directory, one a
// user, is therefore held from the choice of ports until the emulator answers, so
// that of all processes that use this package only one chooses at a time.
//
// # Limits
//
// The package needs Linux or macOS, and /bin/sh. An emulator in a container on Linux cannot
// push to a server on 127.0.0.1 of the host; see [Subscription].
package emulator
