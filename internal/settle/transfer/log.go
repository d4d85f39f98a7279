package transfer

import (
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
)

// LevelCritical is the level of what somebody has to look at now.
const LevelCritical = slog.LevelError + 4

// maxFrames is how much of a stack is logged: enough to reach where the work
// began.
const maxFrames = 48

// PanicAttrs says of a panic with what type of value and where it happened. It is
// called in the deferred function that recovers. The value itself may hold
// payload, and so may arguments, so neither is among the attributes.
func PanicAttrs(value any) []slog.Attr {
	var counters [maxFrames]uintptr
	frames := runtime.CallersFrames(counters[:runtime.Callers(2, counters[:])])
	var stack []string
	for {
		frame, more := frames.Next()
		stack = append(stack, frame.Function+" "+frame.File+":"+strconv.Itoa(frame.Line))
		if !more {
			break
		}
	}
	return []slog.Attr{slog.String("panic_type", fmt.Sprintf("%T", value)), slog.Any("stack", stack)}
}
