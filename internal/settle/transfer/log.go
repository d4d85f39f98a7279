package transfer

import (
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
)

// LevelCritical is the level of lines that need a person at once.
const LevelCritical = slog.LevelError + 4

// maxFrames bounds the logged stack. It reaches the request's handler.
const maxFrames = 48

// PanicAttrs returns the type of a panic's value and the stack. The deferred function
// that recovers has to call it. The value and the arguments may hold payload, so they
// are not among the attributes.
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
