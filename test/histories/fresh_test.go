package histories

// What must hold of a plan on a fresh snapshot. A plan on an old one may be wrong in
// each of these points; then the server's conditions are all that counts.

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/pool"
)

// reconcileFresh plans on the present, carries the plan out under the faults that
// fault chooses, and judges both.
func (s *server) reconcileFresh(t *rapid.T, fault func(what string) fault) *reconcile {
	r := s.newReconcile(t, s.view)
	r.fault = fault
	idleLimit, allLimit := r.limits()
	r.created = func() { r.checkBounds(idleLimit, allLimit) }
	r.planAndCarryOut(func() {
		r.checkHandOuts()
		r.checkDeletions()
		r.checkCreations()
		r.checkRequeueAfter()
	})
	reached("plan on the present")
	// What a claim that was deleted leaves behind is the garbage collector's.
	if r.snapshot.Pool != nil && !r.answersLost && len(r.actions.ExpiredClaims) == 0 {
		r.checkStatus()
	}
	if r.failures == 0 {
		s.checkReasons(t)
	}
	return r
}

// checkHandOuts checks that those Pods go that can, to those claims that are first.
func (r *reconcile) checkHandOuts() {
	t, s, p := r.t, r.server, r.snapshot.Pool
	if !active(p) {
		if len(r.actions.HandOuts) > 0 {
			t.Fatalf("a pool that isn't there hands out: %q", describe(r.actions))
		}
		return
	}
	waiting, serving := s.waiting(), s.serving(p)
	if got, want := len(r.actions.HandOuts), min(len(waiting), len(serving)); got != want {
		t.Fatalf("I6: %d hand-outs are planned, want %d: %d claims wait, %d Pods can serve", got, want, len(waiting), len(serving))
	}
	var pods []*corev1.Pod
	var claims []*v1alpha1.PodClaim
	for _, h := range r.actions.HandOuts {
		if !slices.Contains(serving, h.Pod) || slices.Contains(pods, h.Pod) {
			t.Fatalf("I1: Pod %s is not there to be handed out: %q", h.Pod.Name, describe(r.actions))
		}
		if !slices.Contains(waiting, h.Claim) || slices.Contains(claims, h.Claim) {
			t.Fatalf("I2: claim %s has a Pod, or is to have none: %q", h.Claim.Name, describe(r.actions))
		}
		pods, claims = append(pods, h.Pod), append(claims, h.Claim)
	}
	for _, pod := range pods {
		for _, other := range serving {
			if !slices.Contains(pods, other) && s.rank(p, other) < s.rank(p, pod) {
				t.Fatalf("O26: Pod %s is handed out, and %s is better: %q", pod.Name, other.Name, describe(r.actions))
			}
		}
	}
	for _, claim := range waiting {
		for _, served := range claims {
			if !slices.Contains(claims, claim) && servedBefore(claim, served) {
				t.Fatalf("claim %s is served before claim %s", served.Name, claim.Name)
			}
		}
	}
}

// wanted is how many idle Pods the pool is to have besides those that the plan hands out,
// how many it may have for its tolerance, and while Pods are replaced, and how many it has.
func (r *reconcile) wanted() (wanted, tolerated, surge, have int) {
	p, handOuts := r.snapshot.Pool, len(r.actions.HandOuts)
	wanted = int(*p.Spec.Replicas) + len(r.server.waiting()) - handOuts
	_, maxSurge := budget(p)
	surge = wanted + maxSurge
	tolerated = wanted + shareOf(p.Spec.Tolerance, "0%", *p.Spec.Replicas, true)
	if _, claimed := population(r.snapshot.Pods, p); p.Spec.MaxSize > 0 {
		allowed := max(int(p.Spec.MaxSize)-claimed-handOuts, 0)
		wanted, tolerated, surge = min(wanted, allowed), min(tolerated, allowed), min(surge, allowed)
	}
	return wanted, tolerated, surge, len(r.server.idle(p)) - handOuts
}

// checkDeletions checks that only those Pods go that are too many, can't serve or are to be
// replaced, and that all go that must.
func (r *reconcile) checkDeletions() {
	t, s, p := r.t, r.server, r.snapshot.Pool
	going := map[*corev1.Pod]bool{}
	useful := 0
	for _, d := range r.actions.Deletions {
		if going[d.Pod] || d.Pod.DeletionTimestamp != nil || d.Reason == "" {
			t.Fatalf("Pod %s is deleted twice, or for no reason: %q", d.Pod.Name, describe(r.actions))
		}
		going[d.Pod] = true
		if slices.ContainsFunc(r.actions.HandOuts, func(h pool.HandOut) bool { return h.Pod == d.Pod }) {
			t.Fatalf("Pod %s is handed out and deleted: %q", d.Pod.Name, describe(r.actions))
		}
		switch {
		case controllerOf(d.Pod).Kind == "PodClaim":
			reached("a claim's second Pod goes") // the judge looks at the write
		case !active(p) || p.Spec.Paused:
			t.Fatalf("a pool that is paused or gone deletes: %q", describe(r.actions))
		case controllerOf(d.Pod).UID != p.UID:
			t.Fatalf("I4: Pod %s isn't the pool's: %q", d.Pod.Name, describe(r.actions))
		case !s.brokenFor(p, d.Pod, 0) && s.rank(p, d.Pod) == 0:
			useful++
		case s.rank(p, d.Pod) > 0:
			reached(fmt.Sprintf("a Pod of rank %d is deleted", s.rank(p, d.Pod)))
		}
	}
	if !active(p) || p.Spec.Paused {
		return
	}
	wanted, tolerated, surge, have := r.wanted()
	switch {
	case have > tolerated && useful > have-wanted, have <= tolerated && useful > 0:
		t.Fatalf("I3: %d Pods are there and %d wanted (%d tolerated), and the plan deletes %d that are good: %q", have, wanted, tolerated, useful, describe(r.actions))
	case have > max(tolerated, surge)+shareOf(p.Spec.Tolerance, "0%", *p.Spec.Replicas, true) && len(going) < have-surge:
		t.Fatalf("I3: %d Pods are there and %d wanted (%d tolerated), and the plan deletes %d: %q", have, wanted, tolerated, len(going), describe(r.actions))
	}
	r.checkWhatStays(going)
}

// checkWhatStays checks that nothing broken stays, and judges O25: so many stay ready that
// the budget isn't overdrawn.
func (r *reconcile) checkWhatStays(going map[*corev1.Pod]bool) {
	t, s, p := r.t, r.server, r.snapshot.Pool
	var ready, alive, readyGo int
	for _, pod := range s.idle(p) {
		handedOut := slices.ContainsFunc(r.actions.HandOuts, func(h pool.HandOut) bool { return h.Pod == pod })
		switch {
		case handedOut:
		case !going[pod] && (s.brokenFor(p, pod, maxPatience) || s.retired(p, pod)):
			t.Fatalf("I6: Pod %s will never serve, and stays: %q", pod.Name, describe(r.actions))
		case going[pod] && s.canServe(p, pod):
			readyGo++
		case !going[pod] && !hasEnded(pod):
			alive++
			if s.canServe(p, pod) {
				ready++
			}
		}
	}
	maxUnavailable, _ := budget(p)
	waiting, replicas := len(s.waiting())-len(r.actions.HandOuts), int(*p.Spec.Replicas)
	if _, claimed := population(r.snapshot.Pods, p); p.Spec.MaxSize > 0 {
		allowed := max(int(p.Spec.MaxSize)-claimed-len(r.actions.HandOuts), 0)
		if allowed <= replicas+waiting {
			maxUnavailable = max(maxUnavailable, 1) // there is no room for a surge
		}
		replicas = min(replicas, allowed)
	}
	if floor := max(replicas-maxUnavailable, 0); readyGo > 0 && (ready < floor || alive < waiting) {
		t.Fatalf("O25: %d ready Pods go, %d stay, of %d alive; want %d ready at least, and %d claims wait: %q", readyGo, ready, alive, floor, waiting, describe(r.actions))
	} else if readyGo > 0 {
		reached("ready Pods are deleted")
	}
}

// maxPatience is the longest that a Pod is given to get ready, or that one that has ended is
// kept.
const maxPatience = time.Hour

// brokenFor tells whether a Pod should have been Ready some time ago, or has ended and was
// made long enough before.
func (s *server) brokenFor(p *v1alpha1.WarmPool, pod *corev1.Pod, patience time.Duration) bool {
	if hasEnded(pod) {
		return s.now.Sub(pod.CreationTimestamp.Time) >= max(patience, 10*time.Second)
	}
	return s.tooLate(p, pod, patience)
}

// tooLate tells whether an idle Pod should have been Ready by now. Where no Pod gets ready
// each is given more than readinessTimeoutSeconds, and maxPatience at most.
func (s *server) tooLate(p *v1alpha1.WarmPool, pod *corev1.Pod, patience time.Duration) bool {
	timeout := time.Duration(*p.Spec.ReadinessTimeoutSeconds) * time.Second
	since := pod.CreationTimestamp.Time
	if c := readyCondition(pod); c.LastTransitionTime.After(since) {
		since = c.LastTransitionTime.Time
	}
	return timeout > 0 && !isReady(pod) && s.now.Sub(since) >= max(timeout, patience)
}

// checkCreations checks that as many Pods are created as are missing, and a few more only
// while Pods are replaced.
func (r *reconcile) checkCreations() {
	p, want, most, atCapacity := r.snapshot.Pool, 0, 0, false
	if active(p) && !p.Spec.Paused {
		wanted, _, surge, have := r.wanted()
		all, claimed := population(r.snapshot.Pods, p)
		want, most = max(wanted-have, 0), max(wanted-have, 0)
		if slices.ContainsFunc(r.server.idle(p), func(pod *corev1.Pod) bool { return r.server.rank(p, pod) > 0 }) {
			most = max(surge-have, 0)
		}
		if room := max(int(p.Spec.MaxSize)-all, 0); p.Spec.MaxSize > 0 {
			atCapacity = want > room || int(*p.Spec.Replicas)+len(r.server.waiting()) > max(int(p.Spec.MaxSize)-claimed, 0)
			want, most = min(want, room), min(most, room)
		}
	}
	if n := r.actions.Creations; n < want || n > most {
		r.t.Fatalf("I3: the plan creates %d Pods, want %d to %d: %q", n, want, most, describe(r.actions))
	} else if n > want {
		reached("a surge")
	}
	// Those that the plan hands out count as claimed, if maxSize is below the number
	// of claimed Pods already.
	if r.actions.AtCapacity != atCapacity && len(r.actions.HandOuts) == 0 {
		r.t.Fatalf("at capacity: %t, want %t: %q", r.actions.AtCapacity, atCapacity, describe(r.actions))
	}
}

// checkRequeueAfter checks that until then, or for a year if no time is given, time
// alone changes nothing.
func (r *reconcile) checkRequeueAfter() {
	span := r.actions.RequeueAfter
	switch {
	case span < 0:
		r.t.Fatalf("I7: again in %s", span)
	case span == 0:
		span = 365 * 24 * time.Hour
	}
	later := r.server.now.Add(time.Duration(rapid.Int64Range(0, int64(span)-1).Draw(r.t, "later")))
	if got, want := describe(pool.Plan(r.snapshot, later)), describe(r.actions); !slices.Equal(got, want) {
		r.t.Fatalf("the plan of %s later is another one, with RequeueAfter %s:\n got %q\nwant %q", later.Sub(r.server.now), r.actions.RequeueAfter, got, want)
	}
}

// limits are the most idle Pods, and Pods at all, that creations may lead to.
func (r *reconcile) limits() (idle, all int) {
	if p := r.snapshot.Pool; p != nil {
		_, maxSurge := budget(p)
		return int(*p.Spec.Replicas) + maxSurge + len(r.server.waiting()), int(p.Spec.MaxSize)
	}
	return 0, 0
}

// checkBounds judges I3 after a creation.
func (r *reconcile) checkBounds(idleLimit, allLimit int) {
	p := r.snapshot.Pool
	if idle := len(r.server.idle(p)); idle > idleLimit {
		r.t.Fatalf("I3: %d idle Pods, at most %d are asked for: %q", idle, idleLimit, describe(r.actions))
	}
	if all, _ := population(r.server.snapshot().Pods, p); allLimit > 0 && all > allLimit {
		r.t.Fatalf("I3: %d Pods, and maxSize is %d: %q", all, allLimit, describe(r.actions))
	}
}

// checkStatus checks the pool's status, which speaks of what is there now, against it.
func (r *reconcile) checkStatus() {
	t, s, p := r.t, r.server, r.snapshot.Pool
	var want v1alpha1.WarmPoolStatus
	want.Replicas = int32(len(s.idle(p)))
	want.ReadyReplicas = int32(len(s.serving(p)))
	want.PendingClaims = int32(len(s.waiting()))
	for _, pod := range s.idle(p) {
		if !s.outdated(p, pod) {
			want.UpdatedReplicas++
			if s.canServe(p, pod) {
				want.UpdatedReadyReplicas++
			}
		}
	}
	for _, pod := range s.snapshot().Pods {
		if controllerOf(pod).Kind == "PodClaim" && pod.DeletionTimestamp == nil {
			want.ClaimedReplicas++
		}
	}
	got := r.status
	if got.Replicas != want.Replicas || got.ReadyReplicas != want.ReadyReplicas || got.PendingClaims != want.PendingClaims || got.ClaimedReplicas != want.ClaimedReplicas {
		t.Fatalf("status: replicas %d, ready %d, pending %d, claimed %d; want %d, %d, %d, %d after %q", got.Replicas, got.ReadyReplicas, got.PendingClaims, got.ClaimedReplicas,
			want.Replicas, want.ReadyReplicas, want.PendingClaims, want.ClaimedReplicas, describe(r.actions))
	}
	if got.UpdatedReplicas != want.UpdatedReplicas || got.UpdatedReadyReplicas != want.UpdatedReadyReplicas {
		t.Fatalf("status: %d updated, %d of them ready; want %d and %d after %q", got.UpdatedReplicas, got.UpdatedReadyReplicas, want.UpdatedReplicas, want.UpdatedReadyReplicas, describe(r.actions))
	}
	for kind, wanted := range map[string]bool{
		v1alpha1.PoolAvailable:  want.ReadyReplicas >= *p.Spec.Replicas,
		v1alpha1.PoolAtCapacity: r.actions.AtCapacity,
		v1alpha1.PoolPaused:     p.Spec.Paused,
	} {
		c := conditionOf(got.Conditions, kind)
		if (c.Status == "True") != wanted || c.Reason == "" || c.Message == "" || c.ObservedGeneration != p.Generation {
			t.Fatalf("I14: condition %s of the pool, want %t: %+v", kind, wanted, c)
		}
	}
	failure := conditionOf(got.Conditions, v1alpha1.PoolReplicaFailure)
	if (r.outcome.CreateError != nil && failure.Status != "True") || strings.Contains(failure.Message, poolName+"-0") {
		t.Fatalf("I14: creation refused (%v), and the pool says %+v", r.outcome.CreateError, failure)
	}
}

// checkReasons judges I14 after a reconcile without a fault: each claim that waits says
// why.
func (s *server) checkReasons(t *rapid.T) {
	p := s.pools[poolName]
	for _, claim := range s.waiting() {
		c := conditionOf(claim.Status.Conditions, v1alpha1.ClaimBound)
		if c.Status != "False" || c.Message == "" {
			t.Fatalf("I14: claim %s waits and doesn't say why: %+v", claim.Name, c)
		}
		gone := c.Reason == v1alpha1.ReasonPoolNotFound
		if gone == active(p) {
			t.Fatalf("I14: claim %s says %s, but the pool is %+v", claim.Name, c.Reason, p)
		}
		if c.Reason == v1alpha1.ReasonAtCapacity && p.Spec.MaxSize == 0 {
			t.Fatalf("I14: claim %s says %s of a pool without maxSize", claim.Name, c.Reason)
		}
	}
}
