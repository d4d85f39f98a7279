//go:build race

package sim

// raceDetector makes tests about ten times slower.
const raceDetector = true
