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

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
)

// measureBaseline measures the client's own work for an event, and the minimum: SHA-256
// of the message and a scan of its JSON tokens.
func (r *run) measureBaseline(ctx context.Context) error {
	return r.withDatabase(ctx, r.contenders[0], func(database string) error { return r.baseline(ctx, database) })
}

func (r *run) baseline(ctx context.Context, database string) error {
	place := r.place(database, &network{}, option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(answerCommits)))
	client, err := r.contenders[0].Open(ctx, place)
	if err != nil {
		return err
	}
	defer client.Close()
	delivery := contender.Message(1)
	message := delivery.Message.Data
	deliver := func() error {
		_, err := client.Settle(ctx, delivery)
		return err
	}
	loops := []func() error{func() error { return sumSHA256(message) }, scanner(message), func() error { return decodeAndHash(message) }, deliver}
	for _, work := range loops {
		if err := work(); err != nil { // warms up; the client opens its session
			return err
		}
	}
	table := r.report.Table(titleBaseline)
	for range r.sizes.rounds {
		least := 0.0
		for i, work := range loops {
			took, allocations, err := repeat(work, r.sizes.loop)
			if err != nil {
				return err
			}
			switch name := []string{workSum, workScan, workDecode, workAll}[i]; name {
			case workSum, workScan:
				table.Add("µs", took, name)
				least += took
			case workDecode:
				table.AddCompared("µs", took, least, name)
				table.Add("allocations", allocations, name)
			default:
				table.Add("µs", took, name)
				table.Add("allocations", allocations, name)
			}
		}
	}
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

// The rows of the baseline.
const (
	workDecode = "decode, validate, hash"
	workAll    = "all up to the network"
	workSum    = "SHA-256 of the bytes"
	workScan   = "scan of the JSON tokens"
)

// loopBatch is the number of repetitions between two readings of the clock.
const loopBatch = 16

// repeat repeats work for some time, and returns the microseconds and allocations of one
// repetition.
func repeat(work func() error, limit time.Duration) (took, allocations float64, err error) {
	before, n := readUsage(), 0.0
	for time.Since(before.at) < limit {
		for range loopBatch {
			if err := work(); err != nil {
				return 0, 0, err
			}
		}
		n += loopBatch
	}
	took = micros(time.Since(before.at)) / n
	return took, math.Round(float64(readUsage().mallocs-before.mallocs) / n), nil
}
