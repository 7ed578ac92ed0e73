// Package e2e tests the controller as a process at a real API server. What is judged
// is the state there, and the history that led to it.
package e2e

import (
	"flag"
	"os"
	"testing"

	"warmpool.dev/controller/test/environment"
)

// env is shared by the tests, each of which has a namespace and a controller of its
// own. Those that break a control plane start one.
var env *environment.Environment

func TestMain(m *testing.M) {
	// The tests wait most of the time, so there may be more of them than processors.
	// A -parallel on the command line still wins.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(environment.RunTests(m, func(e *environment.Environment) { env = e }))
}
