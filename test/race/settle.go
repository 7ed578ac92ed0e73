package race

// Waiting, by condition.

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

const (
	// settleTimeout is how long anything may take to come true. Only a run that fails
	// waits for it.
	settleTimeout = 60 * time.Second
	// stallAfter is how long nothing is written before a story counts as stalled.
	stallAfter = 300 * time.Millisecond
	// restFor is how long nothing may be written at the end.
	restFor = 500 * time.Millisecond
)

// settle waits until everything is settled that was done before the call. What is to be
// released meanwhile is.
func (r *run) settle() {
	r.t.Helper()
	for r.settleOrGoOn() {
	}
}

// settleOrGoOn is settle for a story that may go on before: then it returns true.
func (r *run) settleOrGoOn() (goesOn bool) {
	r.t.Helper()
	ctx, cancel := r.within(settleTimeout)
	defer cancel()
	if err := r.recorder.Sync(ctx); err != nil {
		r.t.Fatal(err)
	}
	var revision int64
	for {
		r.revive()
		settled, moved := r.watch(ctx, &revision)
		switch {
		case settled && !r.trouble.settled():
			return false
		case settled || moved:
		case ctx.Err() != nil:
			r.fatal("not settled within %s", settleTimeout)
		case r.trouble.stalled():
			return true
		}
	}
}

// watch waits until everything is settled, something has been written since a revision, or
// stallAfter has passed.
func (r *run) watch(ctx context.Context, revision *int64) (settled, moved bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, stallAfter)
	defer cancel()
	err := r.recorder.WaitFor(ctx, "something to happen", func(w *history.World) bool {
		settled, moved = len(w.Remaining()) == 0, w.Changed > *revision
		*revision = w.Changed
		return settled || moved
	})
	if err != nil && ctx.Err() == nil {
		r.t.Fatal(err) // the recording has a gap
	}
	return settled, moved
}

// rest waits until the controllers have sent nothing, and nothing has been written, for a
// while, and returns from when to when. That they never stop is a violation.
func (r *run) rest() (from, to time.Time) {
	r.t.Helper()
	ctx, cancel := r.within(settleTimeout)
	defer cancel()
	for ctx.Err() == nil {
		if err := r.recorder.Sync(ctx); err != nil {
			r.t.Fatal(err)
		}
		var silent bool
		if from, to, silent = r.silent(ctx); silent {
			return from, to
		}
	}
	r.fatal("I7: still written to after %s", settleTimeout)
	return from, to
}

// soonDue is how near the time of a claim may be that is waited for before all is judged.
const soonDue = 5 * time.Second

// settleAndRest waits until everything is settled and at rest, and returns from when to
// when it rested. Time alone may unsettle what was settled, when a claim times out; and the
// counts that follow may be written a second later, which is longer than a rest. So no
// claim's time may be near.
func (r *run) settleAndRest() (from, to time.Time) {
	r.t.Helper()
	begun := time.Now()
	for settled := false; !settled; {
		if time.Since(begun) > settleTimeout {
			r.fatal("not at rest within %s", settleTimeout)
		}
		r.settle()
		from, to = r.rest()
		ctx, cancel := r.within(settleTimeout)
		err := r.recorder.WaitFor(ctx, "a look", func(w *history.World) bool {
			settled = len(w.Remaining()) == 0 && !timeIsNear(w)
			return true
		})
		cancel()
		if err != nil {
			r.t.Fatal(err) // the recording has a gap
		}
	}
	return from, to
}

// timeIsNear tells whether a claim is about to time out, or to expire.
func timeIsNear(w *history.World) bool {
	for _, claim := range w.Claims {
		due := claim.CreationTimestamp.Add(time.Duration(claim.Spec.TimeoutSeconds) * time.Second)
		switch {
		case claim.DeletionTimestamp != nil:
			continue
		case claim.Status.ExpirationTime != nil:
			due = claim.Status.ExpirationTime.Time
		case claim.Spec.TimeoutSeconds == 0 || claim.Status.Pod != nil || meta.IsStatusConditionTrue(claim.Status.Conditions, v1alpha1.ClaimFinished):
			continue
		}
		if time.Until(due) < soonDue {
			return true
		}
	}
	return false
}

// silent waits for restFor, or until a controller sends something or something is written.
// What comes within the time that it returns has been counted.
func (r *run) silent(ctx context.Context) (from, to time.Time, silent bool) {
	ctx, cancel := context.WithTimeout(ctx, restFor)
	defer cancel()
	sent := map[*process]int{}
	for _, p := range r.running() {
		sent[p] = len(p.proxy.Log().Select(stored))
	}
	first, revision := true, int64(0)
	moved := r.recorder.WaitFor(ctx, "a write", func(w *history.World) bool {
		if first {
			from = time.Now()
		}
		moved := !first && w.Changed > revision
		first, revision = false, w.Changed
		return moved
	})
	to = time.Now()
	for p, before := range sent {
		if len(p.proxy.Log().Select(stored)) > before {
			return from, to, false
		}
	}
	return from, to, moved != nil && !first
}

// hasCaughtUp waits until the current process has seen all that was written: a key that
// waits for something already isn't parked for what comes next.
func (r *run) hasCaughtUp() {
	r.t.Helper()
	r.rest()
	r.ns.Eventually("no key to be parked", func() error {
		if n := r.metric("freshness_parked_keys"); n > 0 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
}

// stored chooses what a controller may not send at rest: leases are renewed, and reviews
// store nothing.
var stored = faultproxy.Match{Verb: faultproxy.Writes, Where: func(r *faultproxy.Request) bool {
	return r.GroupResource() != history.Leases && !strings.HasSuffix(r.Group, "authorization.k8s.io") && !strings.HasSuffix(r.Group, "authentication.k8s.io")
}}
