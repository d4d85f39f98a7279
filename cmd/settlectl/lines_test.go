package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestReadLines(t *testing.T) {
	t.Parallel()
	errTorn := errors.New("torn")
	long := strings.Repeat("x", 200<<10) // longer than the reader's buffer
	tests := []struct {
		name    string
		input   io.Reader
		max     int
		want    []line
		wantErr error
	}{
		{"nothing", strings.NewReader(""), 4, nil, nil},
		{"with and without the last line feed", strings.NewReader("a\nbc"), 4, []line{
			{number: 1, data: []byte("a"), end: 2}, {number: 2, data: []byte("bc"), end: 4},
		}, nil},
		{"empty lines are counted", strings.NewReader("\n\r\nab\r\n\n"), 4, []line{
			{number: 1, end: 1}, {number: 2, data: []byte("\r"), end: 3}, {number: 3, data: []byte("ab\r"), end: 7}, {number: 4, end: 8},
		}, nil},
		{"too long, and the next is whole", strings.NewReader("abcd\nabcde\nab\nabcde"), 4, []line{
			{number: 1, data: []byte("abcd"), end: 5},
			{number: 2, tooLong: true, end: 11},
			{number: 3, data: []byte("ab"), end: 14},
			{number: 4, tooLong: true, end: 19},
		}, nil},
		{"longer than the buffer", strings.NewReader(long + "\n" + long + "y\nz"), len(long), []line{
			{number: 1, data: []byte(long), end: int64(len(long)) + 1},
			{number: 2, tooLong: true, end: 2*int64(len(long)) + 3},
			{number: 3, data: []byte("z"), end: 2*int64(len(long)) + 4},
		}, nil},
		{"a torn line is not given", io.MultiReader(strings.NewReader("a\nbc"), iotest.ErrReader(errTorn)), 4, []line{
			{number: 1, data: []byte("a"), end: 2},
		}, errTorn},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []line
			var gotErr error
			for l, err := range readLines(tt.input, tt.max) {
				if gotErr = err; err == nil {
					got = append(got, l)
				}
			}
			if !errors.Is(gotErr, tt.wantErr) {
				t.Errorf("error %v, want %v", gotErr, tt.wantErr)
			}
			sameText := cmp.Comparer(func(a, b line) bool {
				return a.number == b.number && string(a.data) == string(b.data) && a.tooLong == b.tooLong && a.end == b.end
			})
			if diff := cmp.Diff(tt.want, got, sameText); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
