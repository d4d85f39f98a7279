package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/term"
)

// The forms of a result.
const (
	outputTable = "table"
	outputJSON  = "json"
	outputCSV   = "csv"
)

// outputFlags select the form of a result.
type outputFlags struct {
	form  string // the value of --output; after check, the selected form
	forms []string
	short map[string]*bool // --json and --csv, by form
}

// register adds --output with the given forms, of which the first is the default, and
// --json and --csv if these are among them.
func (f *outputFlags) register(cmd *cobra.Command, forms ...string) {
	f.forms, f.short = forms, map[string]*bool{}
	flags, exclusive := cmd.Flags(), []string{"output"}
	flags.StringVar(&f.form, "output", forms[0], "`form` of the result: "+inWords(forms))
	for _, form := range forms[1:] {
		f.short[form] = flags.Bool(form, false, "the same as --output "+form)
		exclusive = append(exclusive, form)
	}
	cmd.MarkFlagsMutuallyExclusive(exclusive...)
	completeWords(cmd, "output", forms...)
}

// check selects the form.
func (f *outputFlags) check() error {
	for form, given := range f.short {
		if *given {
			f.form = form
		}
	}
	if !slices.Contains(f.forms, f.form) {
		return fmt.Errorf("--output is %q; give %s", f.form, inWords(f.forms))
	}
	return nil
}

// inWords lists alternatives.
func inWords(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// completeWords adds the values of a flag to shell completion.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // a fault of the program: no such flag
	}
}

// visible replaces characters that could control a terminal, or hide or reorder text,
// by escapes: control characters, line breaks, invisible characters, changes of text
// direction, and bytes that are not UTF-8.
func visible(words string) string {
	return escapeHidden(words, func(r rune) string { return fmt.Sprintf(`\U%08x`, r) })
}

// escapeHidden replaces hidden characters by escapes; wide escapes those above U+FFFF.
func escapeHidden(words string, wide func(rune) string) string {
	if strings.IndexFunc(words, hidden) < 0 && utf8.ValidString(words) {
		return words
	}
	var b strings.Builder
	for i := 0; i < len(words); {
		r, size := utf8.DecodeRuneInString(words[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, words[i])
		case !hidden(r):
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(wide(r))
		}
		i += size
	}
	return b.String()
}

func hidden(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }

// printJSON writes value as one line.
func printJSON(out io.Writer, value any) error {
	line, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		return term.Failf("encode the result: %w", err)
	}
	return write(out, visibleJSON(string(line))+"\n")
}

// visibleJSON escapes the hidden characters in the strings of a JSON value, which keeps
// its meaning. JSON itself requires escapes only below U+0020.
func visibleJSON(line string) string {
	return escapeHidden(line, func(r rune) string {
		high, low := utf16.EncodeRune(r)
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	})
}

// write writes a part of the result.
func write(out io.Writer, words string) error {
	_, err := io.WriteString(out, words)
	return written(err)
}

// written explains an error of writing the result; nil for nil.
func written(err error) error {
	if err == nil {
		return nil
	}
	return term.Failf("write the result to standard output: %w", err)
}

// counted returns "1 message" or "1,234 messages".
func counted[N int | int64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(int64(n)) + " " + one + "s"
}

// oneOr returns one for a single thing, and many for any other number of them.
func oneOr(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
