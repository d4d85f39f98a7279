package bank

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is a text that prints, logs and encodes as a placeholder. Converting it to
// a string gives the text. The zero value means no secret.
type Secret string

// The placeholders.
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

// Format writes a placeholder for every verb. Without it a verb that does not fit a
// string, such as %d, would print the text in its error message.
func (s Secret) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, s.String()) // a fmt.Formatter cannot return an error
}

// LogValue returns a placeholder.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText returns a placeholder, which JSON uses too.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
