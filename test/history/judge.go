package history

// Judging.

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"warmpool.dev/controller/test/faultproxy"
)

// Violation is one break of a rule.
type Violation struct {
	// Rule is the invariant's or the oracle's number: "I1".
	Rule string
	// Revision is where in the history; 0: in a log only.
	Revision int64
	Time     time.Time
	// Object is what it is about: "pods ns/name".
	Object  string
	Message string
}

// String is the violation in one line.
func (v Violation) String() string {
	return fmt.Sprintf("%s at revision %d (%s): %s: %s", v.Rule, v.Revision, v.Time.Format("15:04:05.000"), v.Object, v.Message)
}

// Terms say on what terms a history is judged. The zero value is the strictest that
// needs no log.
type Terms struct {
	// Logs are what the proxies of all replicas have seen. Without them, rules about
	// who did what, and what he could know, are judged by the history alone, as each
	// rule says, or not at all.
	Logs []faultproxy.Log

	// Lag is how old the controller's knowledge of what *others* write may be for
	// no fault of its own, besides what a proxy holds back from it: the time from
	// an event's delivery to a request that was decided on without it. See I3.
	Lag time.Duration
	// Excess is how many creations beyond the bound, and deletions beyond the budget, are
	// forgiven in all: those that were in flight when a process was killed or its request
	// was made to be late.
	Excess int
	// Overlap is how long, where two leaders overlapped on purpose, a second Pod of
	// a claim may live. 0: it may not be handed out at all. See I2.
	Overlap time.Duration
	// GarbageCollector tells that one runs, so that what it has to delete must be
	// gone in the end. See I5.
	GarbageCollector bool
	// Others tells of a version that somebody else wrote: the test, a user, a
	// kubelet. Such versions are nobody's fault. Nil: there is none. See I4.
	Others func(*Version) bool
	// Deadline is how long after its last renewal of the lease a leader may still
	// send. 0: the lease's own duration. See I10.
	Deadline time.Duration
	// Woken tells of each process when it was thawed after it had been frozen. See I10.
	Woken map[string][]time.Time
}

// underWay is how long after it was thawed a process may take to send what was on its way
// when it was frozen: between the last look at its permit and the network there are some
// instructions, and no process can do them all at once.
const underWay = 500 * time.Millisecond

// wasUnderWay tells whether a request may have been on its way when its sender was frozen.
func (t *Terms) wasUnderWay(r *faultproxy.Request) bool {
	return slices.ContainsFunc(t.Woken[r.Who], func(woken time.Time) bool {
		return !r.Arrived.Before(woken) && r.Arrived.Before(woken.Add(underWay))
	})
}

func (t *Terms) others(v *Version) bool { return t.Others != nil && t.Others(v) }

// Judge judges everything that is judged at each revision, and on the wire if there
// are logs: I1 to I5, I10, I12, O17 to O19, O24 to O27. In the order of time. What needs to know
// when a fault ended, or when rest began, is asked for by itself: I6, I7, I8, I9, O15.
func Judge(h *History, terms Terms) []Violation {
	all := slices.Concat(
		I1(h), I2(h, terms), I3(h, terms), I4(h, terms), I5(h, terms),
		I10(h, terms), I12(h), O17(terms.Logs...), O18(h, terms), O19(h),
		O24(h, terms), O25(h, terms), O26(h, terms), O27(h, terms),
	)
	slices.SortStableFunc(all, func(a, b Violation) int { return a.Time.Compare(b.Time) })
	return all
}

// verdict collects the violations of one rule.
type verdict struct {
	rule  string
	found []Violation
}

// at notes a violation at a version.
func (v *verdict) at(version *Version, format string, args ...any) {
	v.found = append(v.found, Violation{
		Rule: v.rule, Revision: version.Revision, Time: version.Time, Object: version.String(),
		Message: fmt.Sprintf(format, args...),
	})
}

// inLog notes a violation by a request.
func (v *verdict) inLog(r *faultproxy.Request, format string, args ...any) {
	v.found = append(v.found, Violation{
		Rule: v.rule, Time: r.Arrived, Object: nameOf(r),
		Message: fmt.Sprintf("request %d of %q: ", r.ID, r.Who) + fmt.Sprintf(format, args...),
	})
}

func nameOf(r *faultproxy.Request) string {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	return fmt.Sprintf("%s %s/%s", resource, r.Namespace, r.Name)
}

// allRequests are the requests of all logs, in the order of their arrival.
func allRequests(logs []faultproxy.Log) []*faultproxy.Request {
	var all []*faultproxy.Request
	for i := range logs {
		for j := range logs[i].Requests {
			all = append(all, &logs[i].Requests[j])
		}
	}
	slices.SortStableFunc(all, func(a, b *faultproxy.Request) int {
		return cmp.Or(a.Arrived.Compare(b.Arrived), cmp.Compare(a.Who, b.Who), cmp.Compare(a.ID, b.ID))
	})
	return all
}
