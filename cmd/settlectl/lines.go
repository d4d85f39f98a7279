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
		begin, next := int64(0), line{number: 1}
		for {
			part, err := reader.ReadSlice('\n')
			next.end += int64(len(part))
			next.add(bytes.TrimSuffix(part, []byte("\n")), maxBytes)
			switch {
			case errors.Is(err, bufio.ErrBufferFull):
				continue
			case err != nil && !errors.Is(err, io.EOF):
				yield(line{}, err)
				return
			case next.end > begin && !yield(next, nil), err != nil:
				return
			}
			begin, next = next.end, line{number: next.number + 1, end: next.end}
		}
	}
}

// add adds a part to the line, unless the line gets too long.
func (l *line) add(part []byte, maxBytes int) {
	if l.tooLong = l.tooLong || len(l.data)+len(part) > maxBytes; l.tooLong {
		l.data = nil
		return
	}
	l.data = append(l.data, part...)
}
