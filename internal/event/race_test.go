//go:build race

package event

// raceDetector makes tests about ten times slower.
const raceDetector = true
