// Package emulator finds, starts and stops the Spanner emulator and the Pub/Sub
// emulator, and creates the databases, topics and subscriptions that a test or a
// local run needs in them.
//
// The tests of this module use real emulators and fail without them, so a start is
// one call: the emulator listens on free ports, answers requests when the call
// returns, and stops when the caller stops.
//
// # Search order
//
// [StartSpanner] and [StartPubSub] use the first of:
//
//  1. a running emulator, named by SPANNER_EMULATOR_HOST or PUBSUB_EMULATOR_HOST;
//     this package never stops it;
//  2. the Google Cloud CLI's own programs (for Pub/Sub with java);
//  3. the container image, if a docker engine answers.
//
// If there is none, the error matches [ErrNotFound] and says how to install one.
// [WithPrivate], [WithPort] and [WithFaultInjection] skip the running emulator.
//
// # Cleanup
//
// A deferred Close does not run after SIGKILL, os.Exit or the time-out of go test.
// The Spanner emulator is two processes, and killing the first leaves the second
// running. On Linux a child can end with its parent, but only with the parent's
// thread and only if it is the direct child; on macOS it cannot.
//
// So a shell script of a dozen lines (supervisor in process.go) runs the emulator
// in a process group of its own. The script reads from a pipe whose only write end
// this process holds. The kernel closes that end however this process ends; the
// script then kills its whole group and removes the container, if there is one.
// Close only closes the pipe, so both ends take the same path. Ctrl-C in the
// terminal does not reach the group, so the caller decides the order of a shutdown.
//
// If the emulator ends first, the script prints its exit status and kills the rest
// of the group. [Process.Done] and [Process.Err] report it.
//
// # Start lock
//
// A start finds ports by binding port 0 and releasing it, so another program can
// take a port before the emulator does. Usually the emulator then exits, and the
// start tries other ports. But the Spanner emulator listens with SO_REUSEPORT: two
// emulators can listen on one port, and the kernel distributes the connections over
// both. So each start holds a lock file in the temporary directory, one per user,
// from the choice of its ports until the emulator answers.
//
// # Limits
//
// The package needs Linux or macOS, and /bin/sh. On Linux an emulator in a container
// cannot push to 127.0.0.1 of the host; see [Subscription].
package emulator
