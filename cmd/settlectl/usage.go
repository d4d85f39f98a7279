package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// plain makes every command say in words of this program all that is wrong with the
// way in which it was called, and fits its help to columns. All that cobra would
// say itself about arguments, subcommands and flags is said here. What a command
// finds wrong with its flags itself it says in its PreRunE, all of it at once;
// that is called here, beside the other checks, and not by cobra after them.
func plain(root *cobra.Command, columns int) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	root.SetFlagErrorFunc(flagFault)
	root.SetUsageTemplate(strings.NewReplacer(
		"{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}",
		".FlagUsages ", fmt.Sprintf(".FlagUsagesWrapped %d ", columns),
		"for more information about a command", "for more about a command",
	).Replace(root.UsageTemplate()))
	everyCommand(root, func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if slices.Contains([]string{"[]", "0s"}, f.DefValue) { // which the help would tell
				f.DefValue = ""
			}
			f.Value = &readLater{Value: f.Value}
		})
		args, check := cmd.Args, cmd.PreRunE
		switch {
		case cmd.HasSubCommands():
			args = subcommand
			if !cmd.Runnable() { // else cobra shows the help whatever stands behind the name
				cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			}
		case cmd.Name() == "help":
			args = helpTopic
		case cmd.HasParent() && cmd.Parent().Name() == "completion":
			args = noArguments
			cmd.Long = narrowed(cmd.Long)
		}
		cmd.PreRunE = nil
		cmd.Args = func(cmd *cobra.Command, given []string) error {
			faults := []error{args(cmd, given), unreadFlags(cmd), missingFlags(cmd), flagsTogether(cmd)}
			if check != nil {
				faults = append(faults, check(cmd, given))
			}
			return errors.Join(firstOfEach(nil, faults...)...)
		}
	})
}

// readLater is the value of a flag that keeps what is wrong with it, so that the
// flags behind it are looked at too. [unreadFlags] tells it.
type readLater struct {
	pflag.Value
	given string
	wrong bool
}

// Set implements [pflag.Value]. It never fails.
func (v *readLater) Set(given string) error {
	if err := v.Value.Set(given); err != nil {
		v.given, v.wrong = given, true
	}
	return nil
}

// unreadFlags says which flags have values that cannot be read.
func unreadFlags(cmd *cobra.Command) error {
	var faults []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if v, is := f.Value.(*readLater); is && v.wrong {
			faults = append(faults, unreadable(f, v.given))
		}
	})
	return errors.Join(faults...)
}

func unreadable(f *pflag.Flag, given string) error {
	return wrongf(f.Name, "--%s is %q; give %s", f.Name, given, formOf(f))
}

// wrongFlag is what is wrong with one flag.
type wrongFlag struct{ flag, words string }

func (w *wrongFlag) Error() string { return w.words }

// wrongf says what is wrong with a flag.
func wrongf(flag, format string, args ...any) error {
	return &wrongFlag{flag, fmt.Sprintf(format, args...)}
}

// firstOfEach appends faults, joined ones one by one, to those that are told. Of a
// flag it takes the first: one that is missing or cannot be read has its default,
// and the checks that come after it look at that.
func firstOfEach(told []error, faults ...error) []error {
	for _, fault := range faults {
		if joined, is := fault.(interface{ Unwrap() []error }); is {
			told = firstOfEach(told, joined.Unwrap()...)
			continue
		}
		about, is := errors.AsType[*wrongFlag](fault)
		if fault == nil || is && slices.ContainsFunc(told, func(other error) bool {
			earlier, is := errors.AsType[*wrongFlag](other)
			return is && earlier.flag == about.flag
		}) {
			continue
		}
		told = append(told, fault)
	}
	return told
}

// everyCommand calls f with a command and with all below it.
func everyCommand(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, below := range cmd.Commands() {
		everyCommand(below, f)
	}
}

// narrowed breaks cobra's own lines where they are too long for a page, and indents
// by less than a tab.
func narrowed(words string) string {
	lines := strings.Split(strings.ReplaceAll(words, "\t", "  "), "\n")
	for i, line := range lines {
		lines[i] = strings.Join(filled(strings.Split(line, " "), pageColumns), "\n")
	}
	return strings.Join(lines, "\n")
}

// typed is how a command is called, without its flags.
func typed(cmd *cobra.Command) string { return strings.TrimSuffix(cmd.UseLine(), " [flags]") }

// noArguments is for commands that have flags only.
func noArguments(_ *cobra.Command, given []string) error {
	if len(given) > 0 {
		return fmt.Errorf("%q is one argument too many; flags are all that goes here", given[0])
	}
	return nil
}

// oneArgument is for commands that need what is called name.
func oneArgument(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if len(given) == 0 {
			return fmt.Errorf("%s is missing; type: %s", name, typed(cmd))
		}
		return oneAtMost(cmd, given)
	}
}

// argumentOr is for commands that need what is called name, or a flag in its place.
func argumentOr(name, flag string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		instead, err := cmd.Flags().GetBool(flag)
		switch {
		case err != nil:
			return err
		case !instead:
			return oneArgument(name)(cmd, given)
		case len(given) > 0:
			return fmt.Errorf("%s and --%s do not go together; give one of them", name, flag)
		}
		return nil
	}
}

// oneAtMost is for commands that can do without their argument.
func oneAtMost(cmd *cobra.Command, given []string) error {
	if len(given) > 1 {
		return fmt.Errorf("%q is one argument too many; type: %s", given[1], typed(cmd))
	}
	return nil
}

// subcommand refuses what names no subcommand of a command.
func subcommand(cmd *cobra.Command, given []string) error {
	if len(given) == 0 {
		return nil
	}
	return noCommand(cmd, given[0])
}

// helpTopic refuses to show the help of what there is not.
func helpTopic(cmd *cobra.Command, given []string) error {
	found, rest, err := cmd.Root().Find(given)
	if err == nil && len(rest) > 0 && found.HasSubCommands() {
		return noCommand(found, rest[0])
	}
	return err
}

// noCommand says that there is no such command, and which may have been meant: one
// of this name or nearly, here or elsewhere.
func noCommand(cmd *cobra.Command, name string) error {
	var here, elsewhere []string
	everyCommand(cmd.Root(), func(other *cobra.Command) {
		switch {
		case other == cmd.Root() || !other.IsAvailableCommand() || len(near(name, []string{other.Name()})) == 0:
		case other.Parent() == cmd:
			here = append(here, other.CommandPath())
		default:
			elsewhere = append(elsewhere, other.CommandPath())
		}
	})
	if len(here) == 0 {
		here = elsewhere
	}
	if len(here) > 0 {
		return fmt.Errorf("there is no command %s %s; did you mean %s?", cmd.CommandPath(), quoted(name), inWords(here))
	}
	return fmt.Errorf("there is no command %s %s; give %s", cmd.CommandPath(), quoted(name), inWords(commandNames(cmd)))
}

// commandNames are the names of a command's subcommands.
func commandNames(cmd *cobra.Command) (names []string) {
	for _, below := range cmd.Commands() {
		if below.IsAvailableCommand() {
			names = append(names, below.Name())
		}
	}
	return names
}

// quoted is a word that was typed, in quotes where it would not be seen as one.
func quoted(word string) string {
	if word != "" && visible(word) == word && !strings.ContainsAny(word, ` "'`) {
		return word
	}
	return fmt.Sprintf("%q", word)
}

// near returns those of the names that may have been meant by a word, as cobra
// finds commands that do: two letters are wrong at most, or the end is missing.
func near(word string, names []string) []string {
	found := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, name := range names {
		found.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	return found.SuggestionsFor(word)
}

// flagFault says what is wrong with a flag.
func flagFault(cmd *cobra.Command, err error) error {
	if given := cmd.Flags().Args(); cmd.HasSubCommands() && len(given) > 0 {
		return noCommand(cmd, given[0]) // whose flag it may be
	}
	if unknown, is := errors.AsType[*pflag.NotExistError](err); is {
		return noFlag(cmd, unknown)
	}
	if empty, is := errors.AsType[*pflag.ValueRequiredError](err); is {
		return fmt.Errorf("--%s has no value: %s", empty.GetFlag().Name, meaning(empty.GetFlag()))
	}
	if invalid, is := errors.AsType[*pflag.InvalidValueError](err); is {
		return unreadable(invalid.GetFlag(), invalid.GetValue())
	}
	if broken, is := errors.AsType[*pflag.InvalidSyntaxError](err); is {
		return fmt.Errorf("%q is no flag; type: --NAME VALUE or --NAME=VALUE", broken.GetSpecifiedFlag())
	}
	return err
}

// noFlag says that a command has no such flag, and which may have been meant.
func noFlag(cmd *cobra.Command, unknown *pflag.NotExistError) error {
	name := unknown.GetSpecifiedName()
	switch {
	case unknown.GetSpecifiedShortnames() != "":
		return fmt.Errorf("there is no flag -%s; flags begin with --, and -- alone stands before an argument that begins with -", name)
	case cmd.HasSubCommands():
		return fmt.Errorf("there is no flag --%s here; name the command before its flags: %s", name, inWords(commandNames(cmd)))
	}
	var has []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { has = append(has, f.Name) })
	if meant := near(name, has); len(meant) > 0 && !besideHas(cmd, name) {
		return fmt.Errorf("there is no flag --%s; did you mean %s?", name, inWords(dashed(meant)))
	}
	return fmt.Errorf("there is no flag --%s here; there is %s", name, strings.Join(dashed(has), ", "))
}

// besideHas reports whether one of the commands beside cmd has the flag: then it was
// meant as it was typed.
func besideHas(cmd *cobra.Command, flag string) bool {
	return cmd.HasParent() && cmd.Parent() != cmd.Root() && slices.ContainsFunc(cmd.Parent().Commands(), func(other *cobra.Command) bool {
		return other.Flag(flag) != nil
	})
}

func dashed(names []string) []string {
	all := slices.Clone(names)
	for i, name := range all {
		all[i] = "--" + name
	}
	return all
}

// formOf says what a flag's value has to look like.
func formOf(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "bool":
		return "true or false, or nothing, which means true"
	case "int":
		return "a whole number"
	case "float64", "float64Slice":
		return "a number"
	case "duration", "durationSlice":
		return "a duration such as 90s, 15m or 24h"
	}
	return "another value"
}

// require marks flags that a command cannot do without.
func require(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		markRequired(cmd, name)
		cmd.Flag(name).Usage += isRequired
	}
}

func markRequired(cmd *cobra.Command, name string) {
	if err := cmd.MarkFlagRequired(name); err != nil {
		panic(err) // there is no such flag: a fault of the program
	}
}

// isRequired stands in the help of flags that a command cannot do without.
const isRequired = " (required)"

// meaning is what the help says of a flag.
func meaning(f *pflag.Flag) string {
	_, words := pflag.UnquoteUsage(f)
	return strings.TrimSuffix(words, isRequired)
}

// missingFlags says which of the flags are missing that a command needs.
func missingFlags(cmd *cobra.Command) error {
	var faults []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains(f.Annotations[cobra.BashCompOneRequiredFlag], "true") && !f.Changed {
			faults = append(faults, wrongf(f.Name, "--%s is missing: %s", f.Name, meaning(f)))
		}
	})
	return errors.Join(faults...)
}

// Where cobra keeps which flags belong together: on each of them, the names of the
// whole group. Cobra looks there again afterwards, in words of its own.
const (
	oneOfFlags     = "cobra_annotation_one_required"
	exclusiveFlags = "cobra_annotation_mutually_exclusive"
	allFlags       = "cobra_annotation_required_if_others_set"
)

// flagsTogether says which flags do not go with each other, or not alone.
func flagsTogether(cmd *cobra.Command) error {
	var faults []error
	groups := func(kind string, judge func(names, given []string) error) {
		for _, names := range flagGroups(cmd, kind) {
			given := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !cmd.Flags().Changed(name) })
			faults = append(faults, judge(dashed(names), dashed(given)))
		}
	}
	groups(oneOfFlags, func(names, given []string) error {
		if len(given) > 0 {
			return nil
		}
		return fmt.Errorf("give one of %s", inWords(names))
	})
	groups(exclusiveFlags, func(_, given []string) error {
		if len(given) < 2 {
			return nil
		}
		return fmt.Errorf("%s do not go together; give one of them", strings.Join(given, " and "))
	})
	groups(allFlags, func(names, given []string) error {
		if len(given) == 0 || len(given) == len(names) {
			return nil
		}
		lacking := slices.DeleteFunc(names, func(name string) bool { return slices.Contains(given, name) })
		return fmt.Errorf("%s needs %s", strings.Join(given, " and "), strings.Join(lacking, " and "))
	})
	return errors.Join(faults...)
}

// flagGroups are the groups of a kind, each once.
func flagGroups(cmd *cobra.Command, kind string) (groups [][]string) {
	var seen []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		for _, group := range f.Annotations[kind] {
			if !slices.Contains(seen, group) {
				seen = append(seen, group)
				groups = append(groups, strings.Fields(group))
			}
		}
	})
	return groups
}
