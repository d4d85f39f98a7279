package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
	"github.com/settleonce/settleonce/internal/test/bench/report"
)

// measureBaseline measures the client's own work for an event, and the minimum: SHA-256
// of the message and a scan of its JSON tokens.
func (r *run) measureBaseline(ctx context.Context) error {
	return r.withDatabase(ctx, r.contenders[0], func(f *fixture) error { return f.baseline(ctx) })
}

func (f *fixture) baseline(ctx context.Context) (err error) {
	place, r := f.place(""), f.run
	place.Options = append(place.Options, option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(answerCommits)))
	if f.client, err = f.Open(ctx, place); err != nil {
		return err
	}
	message := contender.Message(1)
	decode := &loop{work: func() error { return decodeAndHash(message) }}
	client := &loop{work: func() error { return f.settle(ctx, message, settle.OutcomeApplied) }}
	sum := &loop{work: func() error { return sumSHA256(message) }}
	scan := &loop{work: scanner(message)}
	loops := []*loop{decode, client, sum, scan}
	for _, l := range loops {
		if err := l.work(); err != nil { // warms up; the client opens its session
			return err
		}
	}
	for range r.sizes.rounds {
		for _, l := range loops {
			if err := l.run(r.sizes.loop); err != nil {
				return err
			}
		}
	}
	least := make([]float64, r.sizes.rounds)
	for i := range least {
		least[i] = sum.times[i] + scan.times[i]
	}
	set := func(work, column string, c report.Cell) { r.report.Table(titleBaseline).Set(column, c, work) }
	set("decode, validate, hash", "µs", report.Cell{Figure: report.Summarise(decode.times), Ratio: report.Ratios(decode.times, least)})
	set("decode, validate, hash", "allocations", report.Figure(decode.allocations...))
	set("all up to the network", "µs", report.Figure(client.times...))
	set("all up to the network", "allocations", report.Figure(client.allocations...))
	set("SHA-256 of the bytes", "µs", report.Figure(sum.times...))
	set("scan of the JSON tokens", "µs", report.Figure(scan.times...))
	return nil
}

func decodeAndHash(message []byte) error {
	p, err := payout.Decode(message, "USD")
	if err == nil && p.Hash() == "" {
		err = errors.New("no payload hash")
	}
	return err
}

func sumSHA256(message []byte) error {
	if sha256.Sum256(message) == [sha256.Size]byte{} { // uses the sum, so that the compiler keeps it
		return errors.New("no digest")
	}
	return nil
}

// scanner reads the tokens of a message. It reuses its decoder, as the product does.
func scanner(message []byte) func() error {
	reader := bytes.NewBuffer(nil)
	decoder := jsontext.NewDecoder(reader)
	return func() error {
		*reader = *bytes.NewBuffer(message)
		decoder.Reset(reader)
		for {
			if _, err := decoder.ReadToken(); err != nil {
				if errors.Is(err, io.EOF) {
					return nil
				}
				return fmt.Errorf("scan the message: %w", err)
			}
		}
	}
}

// answerCommits answers a Commit without encoding or sending it.
func answerCommits(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if answer, ok := reply.(*spannerpb.CommitResponse); ok {
		answer.CommitTimestamp = timestamppb.New(time.Unix(1, 0))
		return nil
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// loop repeats work for some time in each round.
type loop struct {
	work        func() error
	times       []float64 // microseconds
	allocations []float64
}

// loopBatch is the number of repetitions between two readings of the clock.
const loopBatch = 16

func (l *loop) run(limit time.Duration) error {
	before, n := readUsage(), 0
	for time.Since(before.at) < limit {
		for range loopBatch {
			if err := l.work(); err != nil {
				return err
			}
		}
		n += loopBatch
	}
	took := time.Since(before.at)
	l.times = append(l.times, micros(took)/float64(n))
	l.allocations = append(l.allocations, math.Round(float64(readUsage().mallocs-before.mallocs)/float64(n)))
	return nil
}
