package controlplane

// What a build says while it runs: how far it is and for how long it has run.

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// staleFormat makes `go list -deps` print one line for each package that go build
// will compile. The go command calls the programs themselves stale even if only
// their linking is left.
const staleFormat = `{{if and .Stale (ne .StaleReason "not installed but available in build cache")}}{{.ImportPath}}{{end}}`

// meter reads what the go command prints to stderr and makes a line of progress out
// of it. Safe for concurrent use.
type meter struct {
	out   io.Writer
	start time.Time

	mu         sync.Mutex
	partial    []byte   // a line that hasn't ended yet
	total      int      // packages to compile; -1: not known yet
	compiled   int      // packages compiled so far
	downloaded int      // modules downloaded so far
	other      []string // lines that are neither: what to show when it fails
}

func newMeter(out io.Writer, start time.Time) *meter {
	return &meter{out: out, start: start, total: -1}
}

// Write takes what the go command printed.
func (m *meter) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.partial = append(m.partial, p...)
	for {
		line, rest, found := bytes.Cut(m.partial, []byte("\n"))
		if !found {
			return len(p), nil
		}
		m.partial = rest
		m.line(string(line))
	}
}

// line counts one line: `go build -v` prints the bare path of each package that it
// compiles, and "go: downloading M V" for each module that it fetches.
func (m *meter) line(line string) {
	switch {
	case strings.HasPrefix(line, "go: downloading "):
		m.downloaded++
	case line != "" && !strings.ContainsAny(line, " \t#"):
		m.compiled++
	default:
		m.other = append(m.other, line)
	}
}

func (m *meter) setTotal(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total, m.compiled = n, 0
}

// say prints to whoever wants to know.
func (m *meter) say(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fmt.Fprintf(m.out, format, args...)
}

func (m *meter) elapsed() time.Duration { return time.Since(m.start).Round(time.Second) }

// status is the line of progress.
func (m *meter) status() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.total < 0:
		return fmt.Sprintf("fetching modules, %d so far", m.downloaded)
	case m.compiled < m.total:
		return fmt.Sprintf("%d of %d packages compiled", m.compiled, m.total)
	default:
		return "everything compiled, linking"
	}
}

// every prints the line of progress at each interval until it is stopped.
func (m *meter) every(interval time.Duration) (stop func()) {
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				m.say("  %6s  %s\n", m.elapsed(), m.status())
			}
		}
	}()
	return func() { close(done); <-stopped }
}

// complaints are the last lines that weren't progress: compiler errors, mostly.
func (m *meter) complaints() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	lines := slices.Concat(m.other, []string{string(m.partial)})
	return strings.TrimSpace(strings.Join(lines[max(0, len(lines)-30):], "\n"))
}
