package emulator

import "io"

// An Option changes how [StartSpanner] or [StartPubSub] starts an emulator.
type Option func(*config)

// config is what the options say. Its zero value is the default.
type config struct {
	private        bool
	port           int
	faultInjection bool
	output         io.Writer
}

func newConfig(opts []Option) config {
	var c config
	for _, opt := range opts {
		opt(&c)
	}
	return c
}

// WithPrivate starts an emulator of the caller's own even where the environment
// names a running one.
func WithPrivate() Option {
	return func(c *config) { c.private = true }
}

// WithPort makes the emulator serve gRPC on the given port of 127.0.0.1, so that it
// can be ended and started again under the same address. It is an error if the port
// is in use. WithPort implies [WithPrivate]. The default, also chosen by 0, is a
// free port.
func WithPort(port int) Option {
	return func(c *config) {
		c.port = port
		c.private = c.private || port != 0
	}
}

// WithFaultInjection makes the Spanner emulator abort commits at random, as Spanner
// may. It implies [WithPrivate]. StartPubSub refuses it.
func WithFaultInjection() Option {
	return func(c *config) {
		c.faultInjection = true
		c.private = true
	}
}

// WithOutput copies what the emulator prints to w. Writes to w come from another
// goroutine, one at a time, and their errors are ignored. By default the output is
// dropped; its last few KiB are kept either way, for the errors of a failed start
// and of Err. A running emulator that was found in the environment has no output
// here.
func WithOutput(w io.Writer) Option {
	return func(c *config) { c.output = w }
}
