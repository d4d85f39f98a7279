// Package faultproxy is a gRPC proxy between a program and an emulator, at which a test
// can hold or drop each RPC.
//
// With it a test can kill an unmodified program just before its Commit reaches Spanner,
// or just before Spanner's answer reaches the program. A fault inside the test's own
// process is simpler with a client interceptor.
package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Stage is how far an RPC has come.
type Stage int

const (
	// Requested means that the proxy has the request and has not forwarded it.
	Requested Stage = iota
	// Answered means that the proxy has the answer and has not forwarded it.
	Answered
)

// Hook is called for each RPC at each stage, from many goroutines, with the method's
// name, such as Commit. The RPC waits for it. On false the proxy does not forward the
// request or the answer, and ends the RPC with UNAVAILABLE.
type Hook func(method string, at Stage) (pass bool)

// Proxy is a running proxy.
type Proxy struct {
	// Addr is the host:port that a program uses as SPANNER_EMULATOR_HOST.
	Addr string

	hook     Hook
	dies     func(method string, at Stage) bool
	server   *grpc.Server
	accepted *mortalListener
	upstream *grpc.ClientConn
}

// Start starts a proxy in front of the emulator at upstream, a host:port. The proxy runs
// until Close.
func Start(ctx context.Context, upstream string, hook Hook) (*Proxy, error) {
	return StartDeadly(ctx, upstream, hook, func(string, Stage) bool { return false })
}

// StartDeadly starts a proxy whose connections can die. After hook has let an RPC pass,
// the proxy calls dies. On true the RPC's connection is dead: it stays open and carries
// nothing more, as where a network drops all packets without a reset.
func StartDeadly(ctx context.Context, upstream string, hook Hook, dies func(method string, at Stage) bool) (*Proxy, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start fault proxy: %w", err)
	}
	conn, err := grpc.NewClient("passthrough:///"+upstream, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start fault proxy: %w", err), listener.Close())
	}
	p := &Proxy{Addr: listener.Addr().String(), upstream: conn, hook: hook, dies: dies}
	p.server = grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage),
		grpc.UnknownServiceHandler(func(_ any, down grpc.ServerStream) error { return p.relay(down) })) //nolint:contextcheck // the stream has its own
	p.accepted = &mortalListener{Listener: listener, conns: map[string]*mortalConn{}}
	go func() { _ = p.server.Serve(p.accepted) }() // ends with Close
	return p, nil
}

// Close ends the proxy and all RPCs through it.
func (p *Proxy) Close() error {
	p.server.Stop()
	return p.upstream.Close()
}

const maxMessage = 100 << 20

// message is any message of any RPC: an Empty keeps all fields of the message that it is
// decoded from as unknown fields, and encodes them again.
type message = emptypb.Empty

var errCut = status.Error(codes.Unavailable, "cut off by the fault proxy")

// relay forwards one RPC, unary or streaming.
func (p *Proxy) relay(down grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(down)
	at := func(stage Stage) (pass bool) {
		if !p.hook(path.Base(method), stage) {
			return false
		}
		if p.dies(path.Base(method), stage) {
			p.accepted.kill(down.Context())
			<-down.Context().Done()
		}
		return true
	}
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md.Copy())
	}
	var request message
	if err := down.RecvMsg(&request); err != nil {
		return err
	}
	if !at(Requested) {
		return errCut
	}
	up, err := p.upstream.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	if err := up.SendMsg(&request); err != nil {
		return err
	}
	if err := up.CloseSend(); err != nil { // no RPC of Spanner or of a publisher has a second request
		return err
	}
	return relayAnswers(down, up, func() bool { return at(Answered) })
}

func relayAnswers(down grpc.ServerStream, up grpc.ClientStream, answered func() bool) error {
	defer func() { down.SetTrailer(up.Trailer()) }()
	for first := true; ; first = false {
		var answer message
		err := up.RecvMsg(&answer)
		if first && !answered() {
			return errCut
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := down.SendMsg(&answer); err != nil {
			return err
		}
	}
}
