package race

// What goes wrong in a telling, and when it is over.

import (
	"time"

	"warmpool.dev/controller/test/faultproxy"
)

// mishap is something that goes wrong in a telling. Its rule must be set.
type mishap struct {
	// rule is planted in the proxy of each process.
	rule faultproxy.Rule
	// steps is how many steps further the story goes although nothing moves any more.
	// After that it waits.
	steps int
	// until is when it is released.
	until moment
	// atLeast is how long it isn't released whatever happens, counted from when the
	// rule fires.
	atLeast time.Duration
	// first and then, if they aren't nil, are called before and after it is released.
	first, then func()

	faults   []*faultproxy.Fault
	since    time.Time // when it was first seen to have fired
	released bool
}

// moment is a moment in a story.
type moment int

const (
	// nothingMoves: nothing is written any more, and the steps are done.
	nothingMoves moment = iota
	// othersSettled: everything is where it belongs, but for what is held.
	othersSettled
	// allIsOver: the last step is done, and everything is where it belongs.
	allIsOver
)

// trouble is all that goes wrong in one telling.
type trouble []*mishap

// plant puts the rules into the proxy of a new process.
func (t trouble) plant(proxy *faultproxy.Proxy) {
	for _, m := range t {
		if !m.released {
			m.faults = append(m.faults, proxy.Add(m.rule))
		}
	}
}

// fired tells whether it has gone wrong yet.
func (m *mishap) fired() bool {
	for _, f := range m.faults {
		if f.Fired() > 0 {
			if m.since.IsZero() {
				m.since = time.Now()
			}
			return true
		}
	}
	return false
}

// release ends it.
func (m *mishap) release() {
	if m.released {
		return
	}
	fired := m.fired()
	if fired && m.first != nil {
		m.first()
	}
	m.released = true
	for _, f := range m.faults {
		f.Release()
	}
	if fired && m.then != nil {
		m.then()
	}
}

// stalled is called when nothing moves any more, and tells whether the story goes on. It
// releases what has been held long enough.
func (t trouble) stalled() (goesOn bool) {
	for _, m := range t {
		switch {
		case m.released || !m.fired():
		case m.steps > 0:
			m.steps--
			goesOn = true
		case m.until == nothingMoves && time.Since(m.since) >= m.atLeast:
			m.release()
		}
	}
	return goesOn
}

// settled is called when everything is where it belongs. It releases what is to be released
// then, and tells whether it has.
func (t trouble) settled() (released bool) {
	for _, m := range t {
		if !m.released && m.fired() && m.until == othersSettled {
			m.release()
			released = true
		}
	}
	return released
}

// tell tells a story from its beginning to its end. When it returns no fault stands. The
// controller must have been launched.
func (r *run) tell(steps []step) {
	r.t.Helper()
	for _, s := range steps {
		begun := time.Now()
		s.do(r)
		r.settleOrGoOn()
		r.longest = max(r.longest, time.Since(begun))
	}
	r.settle() // but for what lasts until all is over
	r.heal()
}

// heal ends all trouble, and counts what has gone wrong.
func (r *run) heal() {
	r.t.Helper()
	ctx, cancel := r.within(settleTimeout)
	defer cancel()
	for _, m := range r.trouble {
		if m.fired() {
			tally.noteReached(r.mode)
		} else {
			// A status of the pool may be written more often in one telling than in
			// another, so that not each telling has each point.
			r.t.Logf("not reached: %s", m.faults[0].Name())
		}
		m.release()
	}
	// All are released before any is waited for: one may hold what another lets go.
	for _, m := range r.trouble {
		for _, f := range m.faults {
			if err := f.Settle(ctx); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	r.revive()
	r.healed = time.Now()
}

// goWrong plants something more, in the process that was launched last.
func (r *run) goWrong(m *mishap) {
	m.faults = append(m.faults, r.current().proxy.Add(m.rule))
	r.trouble = append(r.trouble, m)
}
