//go:build race

package environment

// raceEnabled tells whether this program, a test, was built with -race.
const raceEnabled = true
