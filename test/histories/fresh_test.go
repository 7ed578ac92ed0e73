package histories

// What must hold of a plan on a fresh snapshot. A plan on an old one may be wrong in
// each of these points; then the server's conditions are all that counts.

import (
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
	if r.snapshot.Pool != nil && !r.answersLost {
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
	for _, claim := range waiting {
		for _, served := range claims {
			if !slices.Contains(claims, claim) && servedBefore(claim, served) {
				t.Fatalf("claim %s is served before claim %s", served.Name, claim.Name)
			}
		}
	}
}

// wanted is how many idle Pods the pool is to have besides those that the plan hands
// out, and how many it has.
func (r *reconcile) wanted() (wanted, have int) {
	p, handOuts := r.snapshot.Pool, len(r.actions.HandOuts)
	wanted = int(*p.Spec.Replicas) + len(r.server.waiting()) - handOuts
	if _, claimed := population(r.snapshot.Pods, p); p.Spec.MaxSize > 0 {
		wanted = min(wanted, max(int(p.Spec.MaxSize)-claimed-handOuts, 0))
	}
	return wanted, len(r.server.idle(p)) - handOuts
}

// checkDeletions checks that only those Pods go that are too many or can't serve.
func (r *reconcile) checkDeletions() {
	t, s, p := r.t, r.server, r.snapshot.Pool
	surplus, useless, useful := 0, 0, 0
	if active(p) && !p.Spec.Paused {
		wanted, have := r.wanted()
		surplus = max(have-wanted, 0)
	}
	seen := map[string]bool{}
	for _, d := range r.actions.Deletions {
		if seen[d.Pod.Name] || d.Pod.DeletionTimestamp != nil || d.Reason == "" {
			t.Fatalf("Pod %s is deleted twice, or for no reason: %q", d.Pod.Name, describe(r.actions))
		}
		seen[d.Pod.Name] = true
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
		case s.tooLate(p, d.Pod) || (hasEnded(d.Pod) && s.now.Sub(d.Pod.CreationTimestamp.Time) >= 10*time.Second):
			useless++
		default:
			useful++
		}
	}
	if useful > max(surplus-useless, 0) || useful+useless < surplus {
		t.Fatalf("I3: %d Pods are too many, and the plan deletes %d of no use and %d others: %q", surplus, useless, useful, describe(r.actions))
	}
	if active(p) && !p.Spec.Paused && useless < s.useless(p) {
		t.Fatalf("I6: %d Pods will never serve, and the plan deletes %d: %q", s.useless(p), useless, describe(r.actions))
	}
}

// tooLate tells whether an idle Pod should have been Ready by now.
func (s *server) tooLate(p *v1alpha1.WarmPool, pod *corev1.Pod) bool {
	timeout := time.Duration(*p.Spec.ReadinessTimeoutSeconds) * time.Second
	since := pod.CreationTimestamp.Time
	if c := readyCondition(pod); c.LastTransitionTime.After(since) {
		since = c.LastTransitionTime.Time
	}
	return timeout > 0 && !hasEnded(pod) && !isReady(pod) && s.now.Sub(since) >= timeout
}

func (s *server) useless(p *v1alpha1.WarmPool) int {
	n := 0
	for _, pod := range s.idle(p) {
		if s.tooLate(p, pod) || (hasEnded(pod) && s.now.Sub(pod.CreationTimestamp.Time) >= 10*time.Second) {
			n++
		}
	}
	return n
}

// checkCreations checks that as many Pods are created as are missing.
func (r *reconcile) checkCreations() {
	p, want, atCapacity := r.snapshot.Pool, 0, false
	if active(p) && !p.Spec.Paused {
		wanted, have := r.wanted()
		all, claimed := population(r.snapshot.Pods, p)
		want = max(wanted-have, 0)
		if room := max(int(p.Spec.MaxSize)-all, 0); p.Spec.MaxSize > 0 {
			atCapacity = want > room || int(*p.Spec.Replicas)+len(r.server.waiting()) > max(int(p.Spec.MaxSize)-claimed, 0)
			want = min(want, room)
		}
	}
	if r.actions.Creations != want {
		r.t.Fatalf("I3: the plan creates %d Pods, want %d: %q", r.actions.Creations, want, describe(r.actions))
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
		return int(*p.Spec.Replicas) + len(r.server.waiting()), int(p.Spec.MaxSize)
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
