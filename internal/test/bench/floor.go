package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
)

func (l *lab) floorSteps() int { return l.Sizes.Rounds }

// measureFloor times what an event costs on the client, and the least of it.
func (l *lab) measureFloor(ctx context.Context) (err error) {
	c, err := contender.Find(Baseline)
	if err != nil {
		return err
	}
	a, err := l.arena(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.drop(ctx)) }()
	place, err := a.place("", nil)
	if err != nil {
		return err
	}
	place.Options = append(place.Options, option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(answerCommits)))
	settler, err := c.Open(ctx, place)
	if err != nil {
		return err
	}
	defer settler.Close()
	message := contender.Message(1)
	loops := []*loop{
		{work: func() error { return decodeAndHash(message) }},
		{work: func() error {
			_, err := settler.Settle(ctx, message)
			return err
		}},
		{work: func() error {
			if sha256.Sum256(message) == [sha256.Size]byte{} { // looked at, so that it is not left out
				return errors.New("no digest")
			}
			return nil
		}},
		{work: scanner(message)},
	}
	for _, one := range loops {
		if err := one.work(); err != nil { // warms up; the client opens its session
			return err
		}
	}
	for range l.Sizes.Rounds {
		for _, one := range loops {
			if err := one.run(l.Sizes.Loop); err != nil {
				return err
			}
		}
		l.Progress.Step()
	}
	decode, client, sum, scan := loops[0], loops[1], loops[2], loops[3]
	least := make([]float64, len(sum.times))
	for i := range least {
		least[i] = sum.times[i] + scan.times[i]
	}
	l.report.Floor = &Floor{
		MessageBytes: len(message),
		Decode:       summarise(decode.times), DecodeAllocations: median(decode.allocations),
		Client: summarise(client.times), ClientAllocations: median(client.allocations),
		SHA256: summarise(sum.times), Scan: summarise(scan.times), Ratio: ratios(decode.times, least),
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

// scanner reads the tokens of a message with a decoder that is kept, as the product
// keeps its own.
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

// answerCommits answers every Commit itself, before anything is encoded or sent.
func answerCommits(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if answer, ok := reply.(*spannerpb.CommitResponse); ok {
		answer.CommitTimestamp = timestamppb.New(time.Unix(1, 0))
		return nil
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// loop is work that is repeated for a while in each round.
type loop struct {
	work        func() error
	times       []float64 // microseconds each
	allocations []float64
}

// loopBatch is how often the work is done between two looks at the clock.
const loopBatch = 16

func (o *loop) run(while time.Duration) error {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began, n := time.Now(), 0
	for time.Since(began) < while {
		for range loopBatch {
			if err := o.work(); err != nil {
				return err
			}
		}
		n += loopBatch
	}
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	o.times = append(o.times, micros(took)/float64(n))
	o.allocations = append(o.allocations, float64(after.Mallocs-before.Mallocs)/float64(n))
	return nil
}
