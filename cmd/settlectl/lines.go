package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"iter"
)

// line is one line of a file of messages.
type line struct {
	number int // from 1, blank lines counted
	// data is the line without its line feed; nil when tooLong.
	data    []byte
	tooLong bool
	end     int64 // offset in the file of what follows the line
}

// blank reports whether the line holds no message: nothing, or the carriage
// return that some editors write before the line feed.
func (l line) blank() bool {
	return !l.tooLong && len(bytes.TrimSuffix(l.data, []byte("\r"))) == 0
}

// readLines reads r to its end, a line at a time. It keeps no more of a line
// than maxBytes and a buffer. After a read error, which is the last thing given,
// the line that it tore is not given.
func readLines(r io.Reader, maxBytes int) iter.Seq2[line, error] {
	return func(yield func(line, error) bool) {
		reader := bufio.NewReaderSize(r, 64<<10)
		var last line
		for {
			next, err := readLine(reader, maxBytes)
			length := next.end
			next.number, next.end = last.number+1, last.end+length
			switch {
			case err != nil && !errors.Is(err, io.EOF):
				yield(line{}, err)
				return
			case length > 0 && !yield(next, nil):
				return
			case err != nil:
				return
			}
			last = next
		}
	}
}

// readLine reads one line; its end is its length.
func readLine(reader *bufio.Reader, maxBytes int) (line, error) {
	var l line
	for {
		part, err := reader.ReadSlice('\n')
		l.end += int64(len(part))
		part = bytes.TrimSuffix(part, []byte("\n"))
		if len(l.data)+len(part) > maxBytes {
			l.data, l.tooLong = nil, true
		}
		if !l.tooLong {
			l.data = append(l.data, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return l, err
		}
	}
}
