// Package hostile generates HTTP requests that are costly to read, for the test and the
// benchmark of their cost.
package hostile

import (
	"encoding/base64"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
)

// Request is a request to one of the functions.
type Request struct {
	Name   string
	Header http.Header
	Body   []byte
}

const source = "//pubsub.googleapis.com/projects/p/topics/payouts"

// WorstRequests yields requests with bodies of up to size bytes: each push body alone and
// as the data of a structured event, some of them in every other form, and one beside as
// many headers as net/http accepts.
func WorstRequests(size int) iter.Seq[Request] {
	binary := http.Header{
		"Ce-Id": {"1"}, "Ce-Source": {source}, "Ce-Specversion": {"1.0"}, "Ce-Type": {"google.cloud.pubsub.topic.v1.messagePublished"},
	}
	many := binary.Clone()
	for n := range 1 << 20 / len("Ce-000000: 1\r\n") {
		many[fmt.Sprintf("Ce-%06d", n)] = []string{"1"}
	}
	structured := http.Header{"Content-Type": {"application/cloudevents+json"}}
	unwrapped := http.Header{"X-Goog-Pubsub-Message-Id": {"1"}, "X-Goog-Pubsub-Subscription-Name": {"projects/p/subscriptions/s"}}
	return func(yield func(Request) bool) {
		for i, p := range patterns {
			requests := []Request{
				{p.name, http.Header{}, p.fill("", "", size)},
				{p.name + ", structured event", structured, p.fill(event+`"data":`, "}", size)},
				{p.name + ", structured event in base64", structured, p.encoded(size)},
			}
			if i < inEveryForm {
				requests = append(
					requests,
					Request{p.name + ", binary event", binary, requests[0].Body},
					Request{p.name + ", beside many headers", many, requests[0].Body},
					Request{p.name + ", unwrapped", unwrapped, requests[0].Body},
					Request{p.name + ", extension", structured, p.fill(event+`"x":`, "}", size)},
					Request{p.name + ", structured event as text", structured, p.quoted(size)},
				)
			}
			for _, r := range requests {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// event begins a structured event.
const event = `{"specversion":"1.0","id":"1","type":"google.cloud.pubsub.topic.v1.messagePublished","source":"` + source + `",`

// pattern is a JSON text with a part that is repeated.
type pattern struct {
	name, before, part, after string
}

// fill returns the text between before and after, with as many parts as size bytes hold. A
// # in the part becomes its number.
func (p pattern) fill(before, after string, size int) []byte {
	text := append(make([]byte, 0, size), before+p.before...)
	end := p.after + after
	left, right, numbered := strings.Cut(p.part, "#")
	if !numbered {
		text = append(text, strings.Repeat(p.part, (size-len(text)-len(end))/len(p.part))...)
	}
	for n := int64(0); numbered && len(text)+len(p.part)+len(end)+8 <= size; n++ {
		text = append(text, left...)
		text = append(strconv.AppendInt(text, n, 36), right...)
	}
	return append(text, end...)
}

// encoded returns a structured event with the text as data_base64.
func (p pattern) encoded(size int) []byte {
	text := p.fill("", "", (size-len(event)-len(`"data_base64":""}`))/4*3)
	return []byte(event + `"data_base64":"` + base64.StdEncoding.EncodeToString(text) + `"}`)
}

// quoted returns a structured event with a text as data of which every byte has an escape.
func (p pattern) quoted(size int) []byte {
	text := p.fill("", "", (size-len(event)-64)/6)
	quoted := append(make([]byte, 0, size), event+`"datacontenttype":"text/plain","data":"`...)
	const hex = "0123456789abcdef"
	for _, b := range text {
		quoted = append(quoted, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
	}
	return append(quoted, `"}`...)
}

// inEveryForm is the number of patterns that come in every form of a request.
const inEveryForm = 3

const messageID = `{"message":{"messageId":"`

var patterns = []pattern{
	{"members", `{"message":{"data":"e30="},`, `"#":1,`, `"z":1}`},
	{"data", `{"message":{"messageId":"1","data":"`, "QUJD", `"}}`},
	{"a long message ID with escapes", messageID, `\n`, `"}}`},
	{"members of the message", `{"message":{`, `"#":1,`, `"data":"e30="}}`},
	{"attributes", `{"message":{"data":"e30=","attributes":{`, `"#":"",`, `"z":""}}}`},
	{"a long attribute", `{"message":{"data":"e30=","attributes":{"a":"`, `\u0041`, `"}}}`},
	{"a long name", `{"message":{"`, "x", `":1}}`},
	{"a long name of an attribute", `{"message":{"data":"e30=","attributes":{"`, `\n`, `":""}}}`},
	{"names of a KiB", `{"message":{`, `"` + strings.Repeat("x", 1000) + `#":1,`, `"data":"e30="}}`},
	{"a member again and again", `{"message":{"data":"e30="},`, `"a":1,`, `"a":1}`},
	{"numbers", `{"message":{"data":"e30="},"x":[`, "1,", `1]}`},
	{"empty arrays after a fault", `{"message":{"data":"%","x":[`, "[],", `1]}}`},
	{"strings with escapes", `{"message":{"data":"e30="},"x":[`, `"\n",`, `1]}`},
	{"deep arrays", `{"message":{"data":"e30="},"x":`, "[", ``},
	{"many members of a deep object", `{"message":` + strings.Repeat(`{"a":`, 9990) + `{`, `"#":1,`, ``},
	{"white space", `{"message":{"data":"e30="}`, " \n", `}`},
	{"data with one escape", `{"message":{"messageId":"1","data":"\u0051UJD`, `QUJD`, `"}}`},
	{"data with escapes", `{"message":{"messageId":"1","data":"`, `\/\/\/\/`, `"}}`},
	{"data of a faulty letter", `{"message":{"messageId":"1","data":"`, `é`, `"}}`},
	{"data with a fault at the end", `{"message":{"messageId":"1","data":"`, "QUJD", `%"}}`},
	{"a long message ID", messageID, "7", `"}}`},
	{"a long message ID of wide characters", messageID, "é", `"}}`},
	{"a long message ID of surrogate pairs", messageID, `\ud83d\ude00`, `"}}`},
	{"a long number", `{"message":{"data":"e30="},"deliveryAttempt":`, "1", `}`},
	{"a long fraction", `{"message":{"data":"e30="},"x":0.`, "1", `}`},
	{"values after the body", `{"message":{"data":"e30="}}`, " 1", ``},
	{"no JSON", ``, "x", ``},
	{"invalid UTF-8", messageID, "\xff", `"}}`},
	{"invalid UTF-8 at the end", messageID, "é", "\xff\"}}"},
}
