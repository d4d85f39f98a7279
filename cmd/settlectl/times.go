package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// clock formats a time for people.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// clockOrNever formats a time that may be zero.
func clockOrNever(t time.Time) string { return clockOr(orNil(t), "never") }

// clockOr formats a time that may be absent.
func clockOr(t *time.Time, otherwise string) string {
	if t == nil {
		return otherwise
	}
	return clock(*t)
}

// exact formats a time for programs.
func exact(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func exactOr(t *time.Time) string {
	if t == nil {
		return ""
	}
	return exact(*t)
}

const day = 24 * time.Hour

// awayFrom returns "in 5m00s" or "5m00s late".
func awayFrom(now, at time.Time) string {
	d := at.Sub(now)
	if d < 0 {
		return roughly(-d) + " late"
	}
	return "in " + roughly(d)
}

// roughly formats a duration in one or two units.
func roughly(d time.Duration) string {
	switch d = d.Round(time.Second); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
}

const timeForms = "a time such as 2026-11-29T22:00:00Z, a day such as 2026-11-29 (0:00 UTC), or an age such as 90m or 7d"

// timeFlag adds a flag for a time.
func timeFlag(cmd *cobra.Command, to *string, name, byDefault, meaning string) {
	cmd.Flags().StringVar(to, name, byDefault, "`time` "+meaning+"; "+timeForms)
}

// parseTime parses the value of a time flag. An empty value gives the zero time.
func parseTime(flag, value string, now time.Time) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, value); err == nil {
			return t.UTC(), nil
		}
	}
	ago, err := parseAgo(value)
	if err != nil || ago < 0 {
		return time.Time{}, fmt.Errorf("--%s is %q; give %s", flag, value, timeForms)
	}
	return now.Add(-ago).UTC(), nil
}

// parseAgo parses a duration, also of days.
func parseAgo(value string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(value, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * day, err
	}
	return time.ParseDuration(value)
}

// period parses two time flags. If both are given, the first has to be before the
// second.
func period(fromFlag, from, toFlag, to string, now time.Time) (begin, end time.Time, err error) {
	begin, beginFault := parseTime(fromFlag, from, now)
	end, endFault := parseTime(toFlag, to, now)
	if err := errors.Join(beginFault, endFault); err != nil {
		return begin, end, err
	}
	if !begin.IsZero() && !end.IsZero() && !begin.Before(end) {
		return begin, end, fmt.Errorf("--%s is %s, not before --%s, %s", fromFlag, clock(begin), toFlag, clock(end))
	}
	return begin, end, nil
}
