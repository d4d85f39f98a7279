package monitoring_test

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// filter is a filter in the subset of the Logging query language that the files here
// use: comparisons by =, != and >=, AND, OR and parentheses. The parser rejects AND
// beside OR without parentheses, because OR has the higher precedence in that
// language, unlike in most others.
type filter struct {
	all, any []filter // at most one of the two
	field    string
	op       string
	value    string // without quotes
	quoted   bool
}

var lexeme = regexp.MustCompile(`^\s*(\(|\)|!=|>=|=|"(?:[^"\\]|\\.)*"|[A-Za-z0-9_][A-Za-z0-9_./-]*)`)

func parseFilter(text string) (filter, error) {
	var tokens []string
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimSpace(rest) {
		found := lexeme.FindStringSubmatch(rest)
		if found == nil {
			return filter{}, fmt.Errorf("not in the subset: %s", rest)
		}
		tokens = append(tokens, found[1])
		rest = rest[len(found[0]):]
	}
	f, rest, err := parseTerms(tokens)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%q is left over", rest)
	}
	return f, err
}

func parseTerms(tokens []string) (f filter, rest []string, err error) {
	var terms []filter
	joint := ""
	for rest = tokens; ; rest = rest[1:] {
		var term filter
		if term, rest, err = parseTerm(rest); err != nil {
			return filter{}, nil, err
		}
		terms = append(terms, term)
		if len(rest) == 0 || rest[0] == ")" {
			break
		}
		if rest[0] != "AND" && rest[0] != "OR" {
			return filter{}, nil, fmt.Errorf("%q where AND or OR was expected", rest[0])
		}
		if joint != "" && joint != rest[0] {
			return filter{}, nil, errors.New("AND and OR without parentheses")
		}
		joint = rest[0]
	}
	switch {
	case len(terms) == 1:
		return terms[0], rest, nil
	case joint == "OR":
		return filter{any: terms}, rest, nil
	}
	return filter{all: terms}, rest, nil
}

func parseTerm(tokens []string) (f filter, rest []string, err error) {
	if len(tokens) > 0 && tokens[0] == "(" {
		f, rest, err = parseTerms(tokens[1:])
		if err == nil && (len(rest) == 0 || rest[0] != ")") {
			err = errors.New("parenthesis is not closed")
		}
		if err != nil {
			return filter{}, nil, err
		}
		return f, rest[1:], nil
	}
	if len(tokens) < 3 || !strings.Contains("= != >=", tokens[1]) {
		return filter{}, nil, fmt.Errorf("%q where a comparison was expected", tokens)
	}
	f = filter{field: tokens[0], op: tokens[1], value: tokens[2]}
	if unquoted, err := strconv.Unquote(f.value); err == nil {
		f.value, f.quoted = unquoted, true
	}
	return f, tokens[3:], nil
}

// comparisons returns all comparisons of a filter, in order.
func (f filter) comparisons() []filter {
	if f.op != "" {
		return []filter{f}
	}
	var found []filter
	for _, term := range append(f.all, f.any...) {
		found = append(found, term.comparisons()...)
	}
	return found
}

// matches reports whether the entry matches. It evaluates terms in order until they
// decide. It fails for != with an absent field, so that no filter depends on that case.
func (f filter) matches(e map[string]any) (bool, error) {
	switch {
	case f.op != "":
		return f.compare(e)
	case f.any != nil:
		for _, term := range f.any {
			if yes, err := term.matches(e); yes || err != nil {
				return yes, err
			}
		}
		return false, nil
	}
	for _, term := range f.all {
		if yes, err := term.matches(e); !yes || err != nil {
			return false, err
		}
	}
	return true, nil
}

var severities = map[string]float64{"DEBUG": 100, "INFO": 200, "WARNING": 400, "ERROR": 500, "CRITICAL": 600}

func (f filter) compare(e map[string]any) (bool, error) {
	value := field(e, f.field)
	if value == nil {
		if f.op == "!=" {
			return false, fmt.Errorf("%s is not in the line", f.field)
		}
		return false, nil
	}
	var equal bool
	var difference float64
	switch v := value.(type) {
	case float64:
		want, err := strconv.ParseFloat(f.value, 64)
		if err != nil || f.quoted {
			return false, fmt.Errorf("%s is a number, compared with %q", f.field, f.value)
		}
		equal, difference = v == want, v-want
	case bool:
		equal, difference = strconv.FormatBool(v) == f.value && !f.quoted, -1
	case string:
		equal, difference = v == f.value, -1
		if f.field == "severity" {
			if severities[f.value] == 0 || severities[v] == 0 {
				return false, fmt.Errorf("severity %s or %s is not known", v, f.value)
			}
			difference = severities[v] - severities[f.value]
		} else if !f.quoted {
			return false, fmt.Errorf("%s is text, compared with %s without quotes", f.field, f.value)
		}
	default:
		return false, fmt.Errorf("%s is a %T", f.field, value)
	}
	switch f.op {
	case "=":
		return equal, nil
	case "!=":
		return !equal, nil
	}
	if _, text := value.(string); text && f.field != "severity" {
		return false, fmt.Errorf("%s is text, compared by %s", f.field, f.op)
	}
	return difference >= 0, nil
}

// field returns the value at a path such as jsonPayload.outcome; nil if it is absent.
func field(e map[string]any, path string) any {
	var value any = e
	for name := range strings.SplitSeq(path, ".") {
		members, is := value.(map[string]any)
		if !is {
			return nil
		}
		value = members[name]
	}
	return value
}
