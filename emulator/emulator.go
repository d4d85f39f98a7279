package emulator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/settleonce/settleonce/internal/config"
)

// ErrNotFound is in the error of [StartSpanner] and [StartPubSub] when there is no
// emulator to use or start. The error's text lists the places searched and the ways
// to install an emulator.
var ErrNotFound = errors.New("no emulator found")

// defaultProject holds the databases without a given name; every emulator accepts
// requests for it.
const defaultProject = "projects/emulator"

const (
	// requestLimit bounds one probe of an emulator.
	requestLimit = 2 * time.Second
	// givenLimit bounds the wait for an emulator that the environment names: another
	// program may be starting it right now.
	givenLimit = 15 * time.Second
)

// An Option changes how [StartSpanner] or [StartPubSub] starts an emulator.
type Option func(*settings)

// settings holds the options. Its zero value is the default.
type settings struct {
	private        bool
	port           int
	faultInjection bool
}

// WithPrivate starts an emulator of the caller's own even if the environment names
// a running one.
func WithPrivate() Option {
	return func(c *settings) { c.private = true }
}

// WithPort makes the emulator serve gRPC on the given port of 127.0.0.1, so that a
// restart keeps the address. The start fails if the port is in use. WithPort implies
// [WithPrivate]. The default, also chosen by 0, is a free port.
func WithPort(port int) Option {
	return func(c *settings) {
		c.port = port
		c.private = c.private || port != 0
	}
}

// WithFaultInjection makes the Spanner emulator abort commits at random, as Spanner
// may. It implies [WithPrivate]. StartPubSub refuses it.
func WithFaultInjection() Option {
	return func(c *settings) {
		c.faultInjection = true
		c.private = true
	}
}

// kind holds the differences between the two emulators.
type kind struct {
	name      string // for errors
	hostEnv   string // variable that names a running one
	component string // of the Google Cloud CLI
	file      string // pattern of its file below the CLI's root
	// program returns the CLI's program for that file, and its arguments.
	program func(file string) (name string, args func(ports []int) []string, err error)
	// image is the container image; its ports, gRPC first; and its command.
	image            string
	containerPorts   []int
	containerCommand []string
	// answers probes the emulator with a real request to each host:port.
	answers func(ctx context.Context, hosts []string) error
}

// start returns an emulator that answers requests.
func (k kind) start(ctx context.Context, opts []Option) (*Process, error) {
	var cfg settings
	for _, opt := range opts {
		opt(&cfg)
	}
	p, err := k.startWith(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("start %s emulator: %w", k.name, err)
	}
	p.name = k.name
	return p, nil
}

func (k kind) startWith(ctx context.Context, cfg settings) (*Process, error) {
	if host := os.Getenv(k.hostEnv); host != "" && !cfg.private {
		if err := config.CheckEmulatorHost(k.hostEnv, host); err != nil {
			return nil, err
		}
		return k.given(ctx, host)
	}
	if cfg.faultInjection && k.name != spannerKind.name {
		return nil, errors.New("only the Spanner emulator can inject faults; leave WithFaultInjection out")
	}
	l, err := k.find(ctx)
	if err != nil {
		return nil, err
	}
	p, err := l.start(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("run it with the %s: %w", l.source, err)
	}
	return p, nil
}

// given returns the running emulator that the environment names, once it answers.
func (k kind) given(ctx context.Context, host string) (*Process, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, givenLimit, fmt.Errorf("no answer within %s", givenLimit))
	defer cancel()
	p := &Process{Source: k.hostEnv, hosts: []string{host}}
	if err := poll(ctx, func(ctx context.Context) error { return k.answers(ctx, p.hosts) }); err != nil {
		return nil, fmt.Errorf("use the one at %s (start it, or unset %s): %w", host, k.hostEnv, err)
	}
	return p, nil
}

// target is a gRPC target that gRPC dials without resolving its name and without a
// proxy from the environment.
func target(hostport string) string { return "passthrough:///" + hostport }

// clientOptions returns the options with which a Google Cloud client connects to an
// emulator, without credentials or encryption.
func clientOptions(hostport string) []option.ClientOption {
	return []option.ClientOption{
		option.WithEndpoint(target(hostport)),
		option.WithoutAuthentication(),
		option.WithTelemetryDisabled(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
	}
}

// probe makes one request over a new connection: a kept connection would back off
// for a second after the first refusal.
func probe(ctx context.Context, hostport string, request func(context.Context, *grpc.ClientConn) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	conn, err := grpc.NewClient(target(hostport), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", hostport, err)
	}
	defer conn.Close()
	return request(ctx, conn)
}
