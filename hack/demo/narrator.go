package main

// A line for each thing that happens, with the seconds since the chapter began. The
// lines of the control plane's own progress have the same form.

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// narrator prints the story. It is safe for concurrent use.
type narrator struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	out   io.Writer
	begun time.Time // the chapter
	first time.Time // the whole
}

func newNarrator(out io.Writer, clock clock.PassiveClock) *narrator {
	now := clock.Now()
	return &narrator{clock: clock, out: out, begun: now, first: now}
}

// chapter prints a title; the time counts from here.
func (n *narrator) chapter(title string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.begun = n.clock.Now()
	fmt.Fprintf(n.out, "\n%s\n", title)
}

// say prints one line with the time.
func (n *narrator) say(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fmt.Fprintf(n.out, "  %5.1fs  %s\n", n.clock.Since(n.begun).Seconds(), fmt.Sprintf(format, args...))
}

// show prints text as it is, set off by an empty line.
func (n *narrator) show(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fmt.Fprintf(n.out, "\n%s\n", strings.TrimRight(text, "\n"))
}

// elapsed is the time since the beginning of it all.
func (n *narrator) elapsed() time.Duration { return n.clock.Since(n.first) }

// Write passes the control plane's progress on.
func (n *narrator) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.out.Write(p)
}
