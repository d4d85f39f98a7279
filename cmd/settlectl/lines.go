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
	end     int64 // offset in the file of the next line
}

// blank reports whether the line has only white space, such as a carriage return.
func (l line) blank() bool {
	return !l.tooLong && len(bytes.Trim(l.data, " \t\r")) == 0
}

// readLines reads the lines of r. It holds at most maxBytes of a line, and a buffer. A
// read error ends the sequence, without the incomplete line before it.
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

// readLine reads one line, and sets end to its length.
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
