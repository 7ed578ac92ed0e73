// Command demo shows the warm pool's main job on a real control plane of its own: a
// pool of 5 fills, 3 claims are created at once and bound, the pool refills. Then it
// says how long each claim took and what the controller wrote, checks both, and takes
// everything down. With -keep it starts the same and leaves it running until Ctrl-C.
// make demo and make run call it, from the repository's root.
//
//	main.go        flags, signals, exit code
//	stage.go       what the story plays on: control plane, manifests, controller
//	controller.go  the controller as a process of its own
//	story.go       the story, step by step
//	keep.go        what make run says once the pool is full
//	follow.go      waiting for what a watch tells
//	writes.go      what the controller wrote, counted
//	verify.go      the checks, on what the API server holds in the end
//	summary.go     the tables
//	narrator.go    a line for each thing that happens, with the time
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// exitInterrupted is what shells call the end by Ctrl-C.
const exitInterrupted = 130

// options are the command line.
type options struct {
	controller string
	keep       bool
	rest       time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.controller, "controller", "bin/warmpool-controller", "Path of the controller's binary; make build makes it.")
	flag.BoolVar(&o.keep, "keep", false, "Tell no story: fill the pool and leave all of it running until Ctrl-C.")
	flag.DurationVar(&o.rest, "rest", 0, "After the story, watch for so long that the controller writes nothing but its lease. 60s shows it well.")
	flag.Parse()

	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "demo: unexpected argument %q: see -help\n", flag.Arg(0))
		os.Exit(2)
	}
	os.Exit(demo(o))
}

// demo runs until its end or a signal and returns what the process ends with. Ctrl-C
// is the normal end of -keep, and cuts the story short.
func demo(o options) (exitCode int) {
	// SIGPIPE is caught so that a reader that goes away (make demo | head) ends the
	// demo in order. A second Ctrl-C changes nothing: the way down takes seconds.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	if err := run(ctx, o, newNarrator(os.Stdout, clock.RealClock{})); err != nil {
		fmt.Fprintf(os.Stderr, "\nThe demo failed: %v\n", err)
		return 1
	}
	if ctx.Err() != nil && !o.keep {
		return exitInterrupted
	}
	return 0
}

// run starts everything, plays, and takes everything down whatever happened.
func run(ctx context.Context, o options, out *narrator) error {
	s := &stage{narrator: out}
	err := s.raise(ctx, o)
	if err == nil {
		err = s.perform(ctx, o)
	}
	if ctx.Err() != nil {
		err = nil // the user has ended it: what failed for that is no news
		out.show("Interrupted: taking everything down.")
	}
	left := s.lower()
	if left == nil {
		out.show(fmt.Sprintf("Everything is down again, after %.1f s in all.", out.elapsed().Seconds()))
	}
	return errors.Join(err, left)
}

// perform plays on a stage that is up. Its error shows the controller's log.
func (s *stage) perform(ctx context.Context, o options) error {
	ctx, stop := s.controller.whileItRuns(ctx)
	defer stop()
	var err error
	if o.keep {
		err = s.keep(ctx)
	} else {
		err = s.play(ctx, o.rest)
	}
	return s.controller.explain(ctx, err)
}
