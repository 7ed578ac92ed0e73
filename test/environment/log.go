package environment

// What the controller prints.

import (
	"bytes"
	"strings"
	"sync"
)

// forbidden are words in the controller's log that fail a test: a race, a crash, an
// object of a cache that was changed.
var forbidden = []string{"DATA RACE", "panic", "fatal error:", "was modified"}

// Log is all that the controller has printed so far.
func (c *Controller) Log() string { return c.log.String() }

// checkLog fails the test if the log tells of a race or a crash.
func (c *Controller) checkLog() {
	for _, word := range forbidden {
		if at := strings.Index(c.Log(), word); at >= 0 {
			c.t.Errorf("the controller's log tells of a fault (%q):\n%s", word, c.Log()[at:min(at+4000, len(c.Log()))])
		}
	}
}

// log collects what a process prints. Safe for concurrent use.
type log struct {
	mu      sync.Mutex
	text    bytes.Buffer
	waiting string        // what wait looks for
	missing int           // how often it has yet to come
	reached chan struct{} // closed when it has
}

// Write takes what was printed. Each message of klog comes in a call of its own.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.missing > 0 {
		l.missing -= strings.Count(string(p), l.waiting)
		if l.missing <= 0 {
			close(l.reached)
		}
	}
	return l.text.Write(p)
}

// wait returns a channel that is closed when text has been printed n more times.
func (l *log) wait(text string, n int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting, l.missing, l.reached = text, n, make(chan struct{})
	return l.reached
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// tail returns the last n lines.
func (l *log) tail(n int) string {
	lines := strings.Split(strings.TrimRight(l.String(), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
