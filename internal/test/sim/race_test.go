//go:build race

package sim

// raceDetector tells that everything takes ten times as long.
const raceDetector = true
