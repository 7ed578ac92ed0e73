package race

// What all tellings together have shown.

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

// tally is what the tests of this package have counted.
var tally counts

// counts are safe for concurrent use. The zero value is ready to use.
type counts struct {
	mu      sync.Mutex
	modes   map[string]*modeCount
	faults  map[string]*faultCount
	firings map[firing]int
}

// faultCount is how often a kind of fault was drawn at random, and how often it struck.
type faultCount struct{ drawn, struck int }

// modeCount is what the runs of one kind of trouble have shown.
type modeCount struct {
	runs, reached, versions, writes, violations int
	// settled is how long each run took at most to settle, after a step or in the end.
	settled []time.Duration
}

// firing is a guard and what it did.
type firing struct{ guard, action string }

// noteRun counts a run that was judged.
func (c *counts) noteRun(mode string, versions int, logs []faultproxy.Log, settled time.Duration, violations int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.modeLocked(mode)
	m.runs++
	m.versions += versions
	m.violations += violations
	m.settled = append(m.settled, settled)
	for _, log := range logs {
		for i := range log.Requests {
			if history.IsGuarded(&log.Requests[i]) {
				m.writes++
			}
		}
	}
}

// noteReached counts a run in which the trouble was made: its point was reached.
func (c *counts) noteReached(mode string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.modeLocked(mode).reached++
}

// noteFault counts a fault that was drawn at random, and tells whether it struck.
func (c *counts) noteFault(kind string, struck bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.faults == nil {
		c.faults = map[string]*faultCount{}
	}
	if c.faults[kind] == nil {
		c.faults[kind] = &faultCount{}
	}
	c.faults[kind].drawn++
	if struck {
		c.faults[kind].struck++
	}
}

func (c *counts) modeLocked(mode string) *modeCount {
	if c.modes == nil {
		c.modes = map[string]*modeCount{}
	}
	if c.modes[mode] == nil {
		c.modes[mode] = &modeCount{}
	}
	return c.modes[mode]
}

// firingLine is a line of a controller's metrics that counts firings.
var firingLine = regexp.MustCompile(`(?m)^freshness_guard_firings_total\{action="([^"]+)",guard="([^"]+)"\} (\S+)$`)

// noteFirings adds what a controller's metrics say of its guards.
func (c *counts) noteFirings(metrics string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.firings == nil {
		c.firings = map[firing]int{}
	}
	for _, match := range firingLine.FindAllStringSubmatch(metrics, -1) {
		if n, err := strconv.ParseFloat(match[3], 64); err == nil {
			c.firings[firing{match[2], match[1]}] += int(n)
		}
	}
}

// silent returns those guards that never fired.
func (c *counts) silent(guards []string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	fired := map[string]bool{}
	for f := range c.firings {
		fired[f.guard] = true
	}
	return slices.DeleteFunc(slices.Clone(guards), func(guard string) bool { return fired[guard] })
}

// progress is how much has been shown so far.
func (c *counts) progress() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var runs, writes, violations int
	for _, m := range c.modes {
		runs, writes, violations = runs+m.runs, writes+m.writes, violations+m.violations
	}
	return fmt.Sprintf("%d runs, %d writes judged, %d violations", runs, writes, violations)
}

// String is a table of the runs and one of the firings.
func (c *counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var text strings.Builder
	var all modeCount
	fmt.Fprintf(&text, "%-34s %6s %8s %8s %8s %10s %12s %10s\n", "trouble", "runs", "reached", "writes", "versions", "violations", "settled p50", "max")
	for _, mode := range slices.Sorted(maps.Keys(c.modes)) {
		m := c.modes[mode]
		fmt.Fprintf(&text, "%-34s %s\n", mode, m)
		all.runs += m.runs
		all.reached += m.reached
		all.writes += m.writes
		all.versions += m.versions
		all.violations += m.violations
		all.settled = append(all.settled, m.settled...)
	}
	fmt.Fprintf(&text, "%-34s %s\n\n", "all", &all)
	c.writeFaultsLocked(&text)
	fmt.Fprintf(&text, "%-12s %-32s %8s\n", "guard", "what it did", "firings")
	byName := func(a, b firing) int { return strings.Compare(a.guard+" "+a.action, b.guard+" "+b.action) }
	for _, f := range slices.SortedFunc(maps.Keys(c.firings), byName) {
		fmt.Fprintf(&text, "%-12s %-32s %8d\n", f.guard, f.action, c.firings[f])
	}
	return text.String()
}

// writeFaultsLocked writes the table of the faults that were drawn at random, if any were.
func (c *counts) writeFaultsLocked(text *strings.Builder) {
	if len(c.faults) == 0 {
		return
	}
	var all faultCount
	fmt.Fprintf(text, "%-34s %6s %8s\n", "fault at random", "drawn", "struck")
	for _, kind := range slices.Sorted(maps.Keys(c.faults)) {
		f := c.faults[kind]
		fmt.Fprintf(text, "%-34s %6d %8d\n", kind, f.drawn, f.struck)
		all.drawn += f.drawn
		all.struck += f.struck
	}
	fmt.Fprintf(text, "%-34s %6d %8d\n\n", "all", all.drawn, all.struck)
}

// String is a line of the table.
func (m *modeCount) String() string {
	settled := slices.Sorted(slices.Values(m.settled))
	var median, longest time.Duration
	if n := len(settled); n > 0 {
		median, longest = settled[n/2], settled[n-1]
	}
	return fmt.Sprintf("%6d %8d %8d %8d %10d %12s %10s", m.runs, m.reached, m.writes, m.versions, m.violations,
		median.Round(time.Millisecond), longest.Round(time.Millisecond))
}
