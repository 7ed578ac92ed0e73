package race

// What is held against a telling.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

const (
	// lag is how late the controller may take in what others write for no fault of its
	// own, on a machine that is busy.
	lag = 3 * time.Second
	// healWithin is how long after the trouble everything may take to settle.
	healWithin = 30 * time.Second
)

// pace is the queue's backoff. A reconcile sends up to sixteen requests for one target:
// creations, which all count for their pool.
var pace = history.Pace{Base: 5 * time.Millisecond, Cap: time.Minute, Burst: 16}

// finish waits until everything is settled and at rest, ends the processes and judges
// all that has happened. It is called when nothing goes wrong any more.
func (r *run) finish(terms history.Terms) {
	r.t.Helper()
	for _, p := range r.running() {
		p.controller.WaitReady()
	}
	from, to := r.settleAndRest()
	for _, p := range r.running() {
		r.stop(p)
	}
	ctx, cancel := r.within(settleTimeout)
	defer cancel()
	h, err := r.recorder.History(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	logs := r.logs()
	terms.Logs, terms.Lag, terms.GarbageCollector = logs, lag, true
	terms.Woken = map[string][]time.Time{}
	for _, p := range r.processes {
		terms.Woken[p.name] = p.woken
	}
	healed, late := history.O15(h, r.healed, healWithin)
	violations := slices.Concat(
		history.Judge(h, terms), history.I6(h), late,
		history.I7(h, from, to), history.I7OnWire(from, to, logs...),
		history.I8(pace, logs...),
	)
	for _, log := range logs {
		violations = append(violations, history.I9(log, history.Pods, history.WarmPools, history.PodClaims)...)
	}
	violations = slices.DeleteFunc(violations, func(v history.Violation) bool { return slices.Contains(r.excused, v.Rule) })
	for _, violation := range violations {
		r.t.Error(violation)
	}
	if len(violations) > 0 {
		r.t.Log(timeline(h, logs))
	}
	tally.noteRun(r.mode, len(h.Versions), logs, max(healed, r.longest), len(violations))
}

// fatal ends the test, and shows what has happened and what isn't settled.
func (r *run) fatal(format string, args ...any) {
	r.t.Helper()
	var wrong []string
	ctx, cancel := r.within(time.Second)
	defer cancel()
	_ = r.recorder.WaitFor(ctx, "a look", func(w *history.World) bool { // a gap is told below
		for _, u := range w.Remaining() {
			wrong = append(wrong, fmt.Sprintf("%s: %s", u.Object, u.Message))
		}
		return true
	})
	if h, err := r.recorder.History(ctx); err == nil {
		r.t.Log(timeline(h, r.logs()))
	}
	tally.noteRun(r.mode, 0, r.logs(), 0, 1)
	r.t.Fatalf("%s: %s", fmt.Sprintf(format, args...), strings.Join(wrong, "; "))
}

// timelineLength is how many lines of the end of a timeline are shown.
const timelineLength = 400

// timeline shows what was written and what the controllers sent and were sent, in the
// order of time.
func timeline(h *history.History, logs []faultproxy.Log) string {
	type line struct {
		time time.Time
		text string
	}
	var lines []line
	note := func(at time.Time, format string, args ...any) {
		lines = append(lines, line{at, fmt.Sprintf(format, args...)})
	}
	for i := range h.Versions {
		v := &h.Versions[i]
		owner := history.OwnerOf(v.Object)
		note(v.Time, "       etcd  %d %s %s", v.Revision, v, describe(v, owner))
	}
	for _, log := range logs {
		for _, q := range log.Requests {
			note(q.Arrived, "%s  #%d %s %s/%s %s -> %d (told %d at %s, rv %s) %v", q.Who, q.ID, q.Verb, q.Resource, q.Subresource, q.Name,
				q.Code, q.Told, q.Replied.Format("05.000"), q.AnswerRV, q.Faults)
		}
		for _, d := range log.Deliveries {
			note(d.Time, "%s  <- %s %s %s (rv %s)", d.Who, d.Type, d.Resource.Resource, d.Name, d.ResourceVersion)
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.time.UnixNano(), b.time.UnixNano()) })
	var text strings.Builder
	for _, l := range lines[max(0, len(lines)-timelineLength):] {
		fmt.Fprintf(&text, "%s %s\n", l.time.Format("15:04:05.000"), l.text)
	}
	return text.String()
}

func describe(v *history.Version, owner history.Owner) string {
	words := []string{}
	if v.Deleted {
		words = append(words, "deleted")
	} else if v.Object.GetDeletionTimestamp() != nil {
		words = append(words, "ending")
	}
	if owner.Kind != "" {
		words = append(words, owner.Kind, owner.Name)
	}
	return strings.Join(words, " ")
}
