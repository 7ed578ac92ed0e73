package history

// O27: a claim has its Pod for as long as it was told.

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warmpool.dev/controller/test/faultproxy"
)

// O27 judges claims with a lifetime.
//
//   - With the version in which status.pod is first there, status.expirationTime is
//     boundTime and the claim's lifetime, or that of the pool's claimLifetime: its default,
//     or else its maximum, for a claim that names none, and at most its maximum for any.
//     It is not there where none of them says anything. Times are told to the second. The
//     pool is judged with the view back of I3, and may be gone.
//   - It never changes after that.
//   - No claim is Finished with the reason Expired before its expirationTime. None is
//     deleted by a request in the logs before that time, nor before it is Finished, for
//     whatever reason.
func O27(h *History, terms Terms) []Violation {
	v := &verdict{rule: "O27"}
	past, requests := pastOf(h), allRequests(terms.Logs)
	h.replay(func(s step) {
		if s.claim == nil || s.Initial {
			return
		}
		if !s.Deleted {
			judgeExpiration(v, s, past, terms)
		}
		did := func(r *faultproxy.Request) bool { return mayHaveDeleted(r, s) }
		if s.beginsToEnd() && !s.mayBeDeleted() && slices.ContainsFunc(requests, did) {
			v.at(s.Version, "deleted by the controller, though it hasn't expired")
		}
	})
	return v.found
}

// judgeExpiration judges one write of a claim.
func judgeExpiration(v *verdict, s step, past *past, terms Terms) {
	status := s.claim.Status
	wasBound := s.old != nil && s.old.claim.Status.Pod != nil
	switch {
	case wasBound && !s.old.claim.Status.ExpirationTime.Equal(status.ExpirationTime):
		v.at(s.Version, "its expirationTime was %s and is %s", s.old.claim.Status.ExpirationTime, status.ExpirationTime)
	case !wasBound && status.Pod != nil:
		since := viewOf(s.Version, terms, func(r *faultproxy.Request) bool { return mayHaveWritten(r, s.Version) })
		if allowed := past.lifetimes(s, since); !slices.ContainsFunc(allowed, func(d time.Duration) bool { return expiresAfter(status.BoundTime, status.ExpirationTime, d) }) {
			v.at(s.Version, "bound at %s, it expires at %s, and its lifetime is one of %s", status.BoundTime, status.ExpirationTime, allowed)
		}
	}
	if isExpired(s.claim) && (s.old == nil || !isExpired(s.old.claim)) && (status.ExpirationTime == nil || s.Time.Before(status.ExpirationTime.Time)) {
		v.at(s.Version, "it has expired before its expirationTime %s", status.ExpirationTime)
	}
}

// mayBeDeleted tells whether a claim's time is over, and it says that it is finished.
func (s step) mayBeDeleted() bool {
	end := s.old.claim.Status.ExpirationTime
	return isTrue(s.old.claim.Status.Conditions, "Finished") && end != nil && !s.Time.Before(end.Time)
}

func isExpired(claim *Claim) bool {
	finished := meta.FindStatusCondition(claim.Status.Conditions, "Finished")
	return finished != nil && finished.Status == metav1.ConditionTrue && finished.Reason == "Expired"
}

// expiresAfter tells whether a claim expires a time after it was bound; 0: never. The
// times are without their fractions of a second.
func expiresAfter(bound, expiration *metav1.Time, d time.Duration) bool {
	if d == 0 || bound == nil || expiration == nil {
		return d == 0 && expiration == nil
	}
	return (expiration.Sub(bound.Time) - d).Abs() < time.Second
}

// lifetimes are those that a claim may be given, from a view to its binding; 0: for ever.
func (p *past) lifetimes(s step, since view) []time.Duration {
	var all []time.Duration
	present, gone := false, false
	for uid, versions := range p.pools {
		if versions[0].pool.Namespace != s.claim.Namespace || versions[0].pool.Name != s.claim.Spec.PoolName {
			continue
		}
		for _, v := range p.inForce(uid, since, s.Version) {
			present, gone = present || !v.Deleted, gone || v.Deleted
			all = append(all, lifetimeOf(s.claim, v.pool))
		}
	}
	if gone || !present {
		all = append(all, lifetimeOf(s.claim, &Pool{}))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func lifetimeOf(claim *Claim, pool *Pool) time.Duration {
	var d, limit time.Duration
	if maximum := pool.Spec.ClaimLifetime.Maximum; maximum != nil {
		limit = maximum.Duration
	}
	switch {
	case claim.Spec.Lifetime != nil:
		d = claim.Spec.Lifetime.Duration
	case pool.Spec.ClaimLifetime.Default != nil:
		d = pool.Spec.ClaimLifetime.Default.Duration
	default:
		d = limit
	}
	if limit > 0 {
		d = min(d, limit)
	}
	return d
}
