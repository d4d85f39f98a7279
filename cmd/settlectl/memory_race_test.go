//go:build race

package main

// memoryFactor allows for the shadow memory of the race detector.
const memoryFactor = 10
