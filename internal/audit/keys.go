package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/spannerstore"
)

// space is the size of the space of keys, of which only the first 63 bits count.
const space = 1 << 63

// firstKey is the first key at a position of the space; nil: its end.
func firstKey(at uint64) []byte {
	if at == space {
		return nil
	}
	return binary.BigEndian.AppendUint64(nil, at<<1)
}

// position is the position of a key in the space.
func position(key []byte) uint64 {
	var first [8]byte
	copy(first[:], key)
	return binary.BigEndian.Uint64(first[:]) >> 1
}

// successor is the key that follows key; nil: there is none.
func successor(key []byte) []byte {
	next := bytes.Clone(key)
	for i := len(next) - 1; i >= 0; i-- {
		if next[i]++; next[i] != 0 {
			return next
		}
	}
	return nil
}

// keyRange is the range of keys from start up to stop; a nil stop is the end of the
// space.
func keyRange(start, stop []byte) spanner.KeyRange {
	if stop == nil {
		return spanner.KeyRange{Start: spanner.Key{start}, End: spanner.Key{bytes.Repeat([]byte{0xff}, sha256.Size)}, Kind: spanner.ClosedClosed}
	}
	return spanner.KeyRange{Start: spanner.Key{start}, End: spanner.Key{stop}, Kind: spanner.ClosedOpen}
}

// derives reports whether the schema derives key from id.
func derives(key []byte, id string) bool { return bytes.Equal(key, spannerstore.SettlementKey(id)) }
