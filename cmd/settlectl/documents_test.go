package main

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
)

// inDocuments finds settlectl's commands in Markdown: inline code, and lines of
// blocks, which may go on after a backslash.
var inDocuments = regexp.MustCompile("(?m)`(?:command )?settlectl ([^`]+)`|^(?:\\$ )?settlectl ((?:[^\n]*\\\\\n)*[^\n]*)$")

// TestEveryDocumentedCommandIsThere parses every command that the documents show:
// each has to exist, and to have the flags.
func TestEveryDocumentedCommandIsThere(t *testing.T) {
	t.Parallel()
	found := 0
	for _, name := range []string{"README.md", "deploy/RUNBOOK.md", "deploy/README.md", "docs/testing.md"} {
		document, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range inDocuments.FindAllStringSubmatch(string(document), -1) {
			args := words(match[1] + match[2])
			if len(args) == 0 || strings.HasSuffix(match[2], "{") || strings.HasPrefix(match[2], ": ") {
				continue // the shell function of that name, or a message of the program
			}
			found++
			root := newRoot(streams{getenv: func(string) string { return "" }})
			root.InitDefaultCompletionCmd()
			cmd, rest, err := root.Find(args)
			if err == nil {
				err = errors.Join(cmd.ParseFlags(rest), unreadFlags(cmd))
			}
			if err != nil || cmd == root {
				t.Errorf("%s: settlectl %s: %v", name, strings.Join(args, " "), err)
			}
		}
	}
	if found < 40 {
		t.Errorf("only %d commands found", found)
	}
}

// words are the words of a command as a shell has them, as far as documents need
// it: quotes, and what ends the command.
func words(line string) []string {
	word := regexp.MustCompile(`"[^"]*"|'[^']*'|[^\s"']+`)
	var all []string
	for _, w := range word.FindAllString(strings.ReplaceAll(line, "\\\n", " "), -1) {
		switch {
		case w == "|" || w == ">" || w == "<" || strings.HasPrefix(w, "#"):
			return all
		case w != "…":
			all = append(all, strings.Trim(w, `"'`))
		}
	}
	return all
}
