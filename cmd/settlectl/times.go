package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// clockLayout is how people are shown a time, in UTC: 20 columns.
const clockLayout = "2006-01-02 15:04:05Z"

func clock(t time.Time) string { return t.UTC().Format(clockLayout) }

// clockOr is clock of a time that need not be.
func clockOr(t *time.Time, otherwise string) string {
	if t == nil {
		return otherwise
	}
	return clock(*t)
}

// exact is how programs are given a time.
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

// awayFrom says how far at is from now.
func awayFrom(now, at time.Time) string {
	d := at.Sub(now)
	if d < 0 {
		return roughly(-d) + " late"
	}
	return "in " + roughly(d)
}

// roughly is a duration in one or two units.
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

const timeForms = "a time such as 2026-11-29T22:00:00Z, a day such as 2026-11-29 (its beginning, UTC), or how long ago such as 90m or 7d"

// timeFlag adds a flag for a moment.
func timeFlag(cmd *cobra.Command, to *string, name, byDefault, meaning string) {
	cmd.Flags().StringVar(to, name, byDefault, "`time` "+meaning+"; "+timeForms)
}

// parseTime reads the value of a time flag; empty gives the zero time.
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
		return time.Time{}, wrongf(flag, "--%s is %q; give %s", flag, value, timeForms)
	}
	return now.Add(-ago).UTC(), nil
}

// parseAgo reads a duration, of days too.
func parseAgo(value string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(value, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * day, err
	}
	return time.ParseDuration(value)
}

// period reads two time flags, the first of which has to be before the second
// where both are given.
func period(fromFlag, from, toFlag, to string, now time.Time) (begin, end time.Time, err error) {
	begin, beginFault := parseTime(fromFlag, from, now)
	end, endFault := parseTime(toFlag, to, now)
	if err := errors.Join(beginFault, endFault); err != nil {
		return begin, end, err
	}
	if !begin.IsZero() && !end.IsZero() && !begin.Before(end) {
		return begin, end, fmt.Errorf("--%s is %s, which is not before --%s, %s", fromFlag, clock(begin), toFlag, clock(end))
	}
	return begin, end, nil
}
