package main

import (
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestTimeCountsFromTheChapterAndInAll(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	var out strings.Builder
	n := newNarrator(&out, clock)
	n.chapter("One")
	clock.SetTime(time.Unix(1002, 5e8))
	n.say("a pool of %d", 5)
	n.chapter("Two")
	clock.SetTime(time.Unix(1014, 5e8))
	n.say("done")
	n.show("The end\n")

	want := `
One
    2.5s  a pool of 5

Two
   12.0s  done

The end
`
	if out.String() != want {
		t.Errorf("printed:\n%s\nwant:\n%s", out.String(), want)
	}
	if got := n.elapsed(); got != 14500*time.Millisecond {
		t.Errorf("elapsed() = %s, want 14.5s", got)
	}
}
