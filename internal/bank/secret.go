package bank

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is a text that never shows itself: printing, logging and encoding it
// give a placeholder. Converting it to a string gives the text. The zero value
// means that there is none.
type Secret string

// What is shown in place of a secret.
const (
	hiddenSecret = "[secret]"
	noSecret     = "[none]"
)

// String returns a placeholder.
func (s Secret) String() string {
	if s == "" {
		return noSecret
	}
	return hiddenSecret
}

// GoString returns a placeholder.
func (s Secret) GoString() string { return s.String() }

// Format writes a placeholder whatever the verb is. Without it a verb that does
// not fit a string, such as %d, would print the text as a fault.
func (s Secret) Format(f fmt.State, _ rune) {
	// A formatter has no way to return an error; fmt keeps none either.
	_, _ = io.WriteString(f, s.String())
}

// LogValue returns a placeholder.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText returns a placeholder, which is also what JSON shows.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
