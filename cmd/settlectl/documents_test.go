package main

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documentedCommand finds settlectl's commands in Markdown: inline code, and lines of
// code blocks, which may continue after a backslash.
var documentedCommand = regexp.MustCompile("(?m)`(?:command )?settlectl ([^`]+)`|^(?:\\$ )?settlectl ((?:[^\n]*\\\\\n)*[^\n]*)$")

// documents returns the module's Markdown documents by path below its root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "deploy/*.md", "deploy/monitoring/*.md"} {
		files, err := filepath.Glob(filepath.Join(moduleRoot, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d documents, %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(moduleRoot, file)
			if err != nil {
				t.Fatal(err)
			}
			texts[filepath.ToSlash(name)] = string(text)
		}
	}
	return texts
}

const moduleRoot = "../.."

// TestDocumentedCommandsParse: each documented command exists and has the flags.
func TestDocumentedCommandsParse(t *testing.T) {
	t.Parallel()
	found := 0
	for name, document := range documents(t) {
		for _, match := range documentedCommand.FindAllStringSubmatch(document, -1) {
			args := words(match[1] + match[2])
			if len(args) == 0 || strings.HasSuffix(match[2], "{") || strings.HasPrefix(match[2], ": ") {
				continue // the shell function of that name, or an error message
			}
			found++
			root := newRoot(streamsOf(nil, nil, nil, nil))
			root.InitDefaultCompletionCmd()
			cmd, rest, err := root.Find(args)
			if err == nil {
				err = cmd.ParseFlags(rest)
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

// TestDocumentLinks follows every relative link of the documents to a file or
// directory, and to a heading of it.
func TestDocumentLinks(t *testing.T) {
	t.Parallel()
	texts := documents(t)
	links := 0
	for name, text := range texts {
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(link[1], "#")
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			if _, err := os.Stat(filepath.Join(moduleRoot, target)); err != nil {
				t.Errorf("%s: link %s: %v", name, link[1], err)
			}
			if anchor != "" && !slices.Contains(headingAnchors(texts[target]), anchor) {
				t.Errorf("%s: link %s: no such heading", name, link[1])
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links found", links)
	}
}

// headingAnchors returns the anchors that GitHub gives to a document's headings.
func headingAnchors(text string) []string {
	var anchors []string
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		anchor := regexp.MustCompile(`[^a-z0-9_ -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		anchors = append(anchors, strings.ReplaceAll(anchor, " ", "-"))
	}
	return anchors
}

// words splits a command as a shell does, up to a pipe, a redirection or a comment.
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
