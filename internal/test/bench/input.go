package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
)

// request is a request of the largest accepted size.
type request struct {
	name   string
	header http.Header
	body   string
}

var structured = http.Header{"Content-Type": {"application/cloudevents+json"}}

// fill returns before, repeated parts and after, of the largest accepted size together.
// part has a number that makes it different from the others.
func fill(before, after string, part func(i int) string) string {
	b := bytes.NewBufferString(before)
	for i := 0; ; i++ {
		next := part(i)
		if b.Len()+len(next)+len(after) > event.MaxBodyBytes {
			return b.String() + after
		}
		b.WriteString(next)
	}
}

func largestRequests() []request {
	const (
		opened     = `{"message":{"messageId":"1","publishTime":"2026-11-29T12:00:00Z"`
		cloudEvent = `{"specversion":"1.0","id":"1","source":"//pubsub.googleapis.com/projects/p/topics/t","type":"` + event.TypeMessagePublished + `"`
	)
	member := func(i int) string { return fmt.Sprintf(`,"a%x":""`, i) }
	constant := func(text string) func(int) string { return func(int) string { return text } }
	return []request{
		{"data", eventarc, fill(opened+`,"data":"`, `"}}`, constant("AAAA"))},
		{"data in escapes", eventarc, fill(opened+`,"data":"`, `"}}`, constant(`\u0041\u0041\u0041\u0041`))},
		{"attributes", eventarc, fill(opened+`,"attributes":{"a":""`, `}}}`, member)},
		{"members of the message", eventarc, fill(opened, `}}`, member)},
		{"nested arrays", eventarc, fill(opened+`,"data":`, ``, constant("["))},
		{"numbers", eventarc, fill(opened+`,"data":[0`, `]}}`, constant(",0"))},
		{"extensions of a structured event", structured, fill(cloudEvent, `}`, member)},
		{"data of a structured event", structured, fill(cloudEvent+`,"data":`+opened+`,"attributes":{"a":""`, `}}}}`, member)},
		{"data_base64 of a structured event", structured, fill(cloudEvent+`,"data_base64":"`, `"}`, constant("e30K"))},
	}
}

// measureInput measures the CPU and the memory of the largest requests, each in a new
// process of the real function.
func (r *run) measureInput(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "settleonce-input-")
	if err != nil {
		return err
	}
	return errors.Join(r.withDatabase(ctx, r.contenders[0], func(database string) error { return r.input(ctx, dir, database) }), os.RemoveAll(dir))
}

func (r *run) input(ctx context.Context, dir, database string) error {
	f := r.settlePayout(database)
	if err := f.build(ctx, dir); err != nil {
		return err
	}
	table := r.report.Table(titleInput)
	for range r.sizes.rounds {
		message := contender.Message(r.number()).Message.Data
		_, ordinary, err := f.cost(ctx, request{"an ordinary request", eventarc, envelope(message)})
		if err != nil {
			return err
		}
		for _, q := range largestRequests() {
			answer, used, err := f.cost(ctx, q)
			if err != nil {
				return err
			}
			table.Add(columnCPU, (used.cpu - ordinary.cpu).Seconds(), q.name)
			table.Add(columnMemory, (used.peak-ordinary.peak)/1e6, q.name)
			table.Text("answer", answer, q.name)
		}
	}
	return nil
}

// cost returns the status of the answer to a request, and the use of a process for it.
func (f *function) cost(ctx context.Context, q request) (answer string, used served, err error) {
	used, err = f.serve(ctx, func(ctx context.Context, url string) (err error) {
		answer, _, err = post(ctx, url, q.header, q.body)
		return err
	})
	return answer, used, err
}

const (
	columnCPU    = "CPU, s"
	columnMemory = "memory, MB"
)
