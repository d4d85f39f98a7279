//go:build !race

package event

const raceDetector = false
