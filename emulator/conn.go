package emulator

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// requestLimit bounds one request that asks whether an emulator answers.
const requestLimit = 2 * time.Second

// givenLimit bounds the wait for an emulator that the environment names: long
// enough for one that is being started beside us.
const givenLimit = 15 * time.Second

// target is a gRPC target that is dialled as it stands, without name resolution by
// gRPC and without a proxy from the environment.
func target(hostport string) string {
	return "passthrough:///" + hostport
}

// clientOptions lead a Google Cloud client to the emulator at hostport, whatever
// the environment says.
func clientOptions(hostport string) []option.ClientOption {
	return []option.ClientOption{
		option.WithEndpoint(target(hostport)),
		option.WithoutAuthentication(),
		option.WithTelemetryDisabled(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
	}
}

// ask makes one request to the emulator at hostport, over a connection of its own:
// a kept one would back off for a second after the first refusal.
func ask(ctx context.Context, hostport string, request func(context.Context, *grpc.ClientConn) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	conn, err := grpc.NewClient(target(hostport), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", hostport, err)
	}
	defer conn.Close()
	return request(ctx, conn)
}

// givenHost returns the host:port in the value of an emulator variable; the clients
// allow a scheme there.
func givenHost(value string) string {
	for _, scheme := range []string{"http://", "https://", "passthrough:///"} {
		value = strings.TrimPrefix(value, scheme)
	}
	return strings.TrimSuffix(value, "/")
}

// awaitGiven returns when the emulator that env names answers.
func awaitGiven(ctx context.Context, env, hostport string, answers func(context.Context, string) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, givenLimit, fmt.Errorf("no answer within %s", givenLimit))
	defer cancel()
	err := poll(ctx, func(ctx context.Context) error { return answers(ctx, hostport) })
	if err != nil {
		return fmt.Errorf("use the one at %s (start it, or unset %s): %w", hostport, env, err)
	}
	return nil
}
