package config

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// libraryVariables are read by libraries and not by this package, which only checks that
// they are visible. The Go runtime ignores a GOGC that it cannot read.
var libraryVariables = [...]string{
	"GODEBUG", "GOGC", "GOMEMLIMIT", "GOOGLE_APPLICATION_CREDENTIALS",
	"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
	"OTEL_METRIC_EXPORT_INTERVAL", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG",
}

// checkVisible rejects spaces at either end, and characters that a person cannot see:
// secrets and copied values often end in a line break, and no later error shows it. The
// error has no part of the value, which may be a secret.
func checkVisible(value string) error {
	at := strings.IndexFunc(value, hidden)
	if at < 0 && value != strings.Trim(value, " ") {
		at = len(strings.TrimRight(value, " ")) % len(value) // 0 for a space at the beginning
	}
	if at < 0 {
		return nil
	}
	r, _ := utf8.DecodeRuneInString(value[at:])
	return fmt.Errorf("has the character %U at byte %d of %d; expected no space at either end and no invisible character", r, at+1, len(value))
}

// visible returns value without the characters that checkVisible rejects.
func visible(value string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if hidden(r) {
			return -1
		}
		return r
	}, value), " ")
}

// hidden holds for line breaks, other control characters, spaces but U+0020, zero-width
// characters, byte order marks and bytes that are no UTF-8.
func hidden(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
