package faultproxy

// Rules, and the faults that they have become.

import (
	"context"
	"fmt"
	"slices"
)

// Rule says what is done to which requests or events.
type Rule struct {
	// Name is what messages and the log call it. Empty: made from Match and Do.
	Name string
	// Match chooses. A rule whose action is one on events looks at events only.
	Match Match
	// Skip lets the first so many matches pass.
	Skip int
	// Times is how often the rule fires after that. 0: as long as it stands.
	Times int
	// Do is what is done.
	Do Action
}

// Action is what a rule does. The functions of this package that return one say what;
// Do makes one of one's own. The zero value is no action, and Add refuses it.
type Action struct {
	name string
	// request acts on a request. forward asks the next rule, and the last one the
	// API server; it may be called once, or not at all. A nil answer is a
	// connection that was cut.
	request func(f *Fault, x *Exchange, forward func() *Answer) *Answer
	// event acts on one event of a watch.
	event func(f *Fault, e *Event) verdict
	// freezes tells that the end of the stream is held as well.
	freezes bool
}

// Fault is a rule that stands. Its methods are safe for concurrent use.
type Fault struct {
	p    *Proxy
	rule Rule

	// Guarded by p.mu:
	matched int
	fired   int
	ended   bool            // fires no more
	open    bool            // what it held may go
	held    []chan struct{} // requests that wait for Release or ReleaseNext
	busy    int             // requests between firing and the API server's answer
}

// Add puts a rule in force, for what is under way too: events of watches that are
// open already. It panics if the rule has no action.
func (p *Proxy) Add(rule Rule) *Fault {
	if rule.Do.request == nil && rule.Do.event == nil {
		panic("faultproxy: a rule without an action")
	}
	if rule.Name == "" {
		rule.Name = rule.Do.name + " " + rule.Match.String()
	}
	f := &Fault{p: p, rule: rule}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	p.changedLocked()
	return f
}

// standing returns the faults in force, the first one added first.
func (p *Proxy) standing() []*Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.faults)
}

// take counts a match and tells whether the rule fires for it.
func (f *Fault) take(x *Exchange) bool {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	if f.ended {
		return false
	}
	f.matched++
	if f.matched <= f.rule.Skip || f.rule.Times > 0 && f.fired >= f.rule.Times {
		return false
	}
	f.fired++
	if x != nil {
		x.Faults = append(x.Faults, f.rule.Name)
	}
	f.p.changedLocked()
	return true
}

// Name is what messages and the log call the fault.
func (f *Fault) Name() string { return f.rule.Name }

// Fired is how often the rule has fired.
func (f *Fault) Fired() int {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	return f.fired
}

// WaitFired waits until the rule has fired n times. The error says how often it had
// when ctx ended.
func (f *Fault) WaitFired(ctx context.Context, n int) error {
	return f.p.wait(ctx, func() (bool, string) {
		return f.fired >= n, fmt.Sprintf("fault %q fired %d of %d times", f.rule.Name, f.fired, n)
	})
}

// Remove ends the rule. What it holds stays held, until Release.
func (f *Fault) Remove() {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.removeLocked()
}

func (f *Fault) removeLocked() {
	f.ended = true
	f.p.faults = slices.DeleteFunc(f.p.faults, func(other *Fault) bool { return other == f })
	f.p.changedLocked()
}

// Release ends the rule and lets go what it holds, in the order in which it came.
func (f *Fault) Release() {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.removeLocked()
	f.open = true
	for _, ticket := range f.held {
		close(ticket)
	}
	f.held = nil
}

// ReleaseNext lets go the request that the rule has held longest, and keeps the rule.
// It does nothing if none is held, and nothing to events.
func (f *Fault) ReleaseNext() {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	if len(f.held) > 0 {
		close(f.held[0])
		f.held = f.held[1:]
	}
}

// Settle waits until the API server has answered every request that the rule has
// fired for and that goes there. After Release of a LateCommit, what was late has
// happened.
func (f *Fault) Settle(ctx context.Context) error {
	return f.p.wait(ctx, func() (bool, string) {
		return f.busy == 0, fmt.Sprintf("fault %q: %d requests are under way", f.rule.Name, f.busy)
	})
}

// hold waits until the fault lets this request go. It returns false if ctx ends
// first.
func (f *Fault) hold(ctx context.Context) bool {
	ticket := f.ticket()
	select {
	case <-ticket:
		return true
	case <-ctx.Done():
		f.p.mu.Lock()
		defer f.p.mu.Unlock()
		f.held = slices.DeleteFunc(f.held, func(other chan struct{}) bool { return other == ticket })
		return false
	}
}

// ticket is closed when the fault lets the request go.
func (f *Fault) ticket() chan struct{} {
	ticket := make(chan struct{})
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	if f.open {
		close(ticket)
	} else {
		f.held = append(f.held, ticket)
	}
	return ticket
}

// begin and done bracket what Settle waits for.
func (f *Fault) begin() {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.busy++
}

func (f *Fault) done() {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.busy--
	f.p.changedLocked()
}

// wait waits until check, which is called with p.mu held, says true, or ctx ends.
func (p *Proxy) wait(ctx context.Context, check func() (ok bool, state string)) error {
	for {
		p.mu.Lock()
		ok, state := check()
		changed := p.changed
		p.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", state, ctx.Err())
		}
	}
}

// changedLocked wakes everybody who waits for something, and every open watch.
func (p *Proxy) changedLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}
