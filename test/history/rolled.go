package history

// O25 and O26: how a pool brings a changed template to its Pods.

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/test/faultproxy"
)

// O25 judges that the controller never takes so many ready Pods away that fewer remain
// than the pool's budget allows, for whatever reason it does it.
//
// It is judged at each deletion (the first version with a deletionTimestamp, or the
// removal) of an idle Pod that could be handed out, and that a request in the logs may
// have deleted. Those that remain are as many as
//
//	min(spec.replicas, what maxSize leaves) - maxUnavailable
//
// at least, where what maxSize leaves is maxSize without the Pods that claims have or that
// are terminating, and maxUnavailable is a share of spec.replicas rounded down; it is 1
// at least where maxSurge comes to nothing, too, or maxSize leaves no room for it.
// Strategies other than RollingUpdate have its defaults. Recreate may delete all Pods of
// another template than the present one. A pool that is paused may delete none.
//
// What others write is judged with the view back of I3: the pool's spec is taken at its
// most generous, and a Pod that somebody else has taken from the ready ones since then
// counts as ready. Claims take Pods too, and may leave fewer than that; no more is deleted
// then.
//
// Terms.Excess forgives so many deletions in all. Without logs nothing is judged.
func O25(h *History, terms Terms) []Violation {
	v := &verdict{rule: "O25"}
	past, known, requests := pastOf(h), hashesOf(h, &verdict{}), allRequests(terms.Logs)
	var lost []*Version // the last ready ones of Pods that others took from the ready ones
	h.replay(func(s step) {
		if s.pod == nil || s.old == nil || !canServe(s.old.pod) || !s.Deleted && canServe(s.pod) {
			return
		}
		did := func(r *faultproxy.Request) bool { return mayHaveDeleted(r, s) }
		switch {
		case s.beginsToEnd() && slices.ContainsFunc(requests, did):
			since := viewOf(s.Version, terms, did)
			judgeBudget(v, s, past.inForce(OwnerOf(s.old.pod).UID, since, s.Version), known, since, lost)
		case OwnerOf(s.pod).Kind != kindClaim: // or else the controller did that too
			lost = append(lost, s.Version)
		}
	})
	if len(v.found) <= terms.Excess {
		return nil
	}
	return v.found
}

// judgeBudget judges one deletion of an idle Pod that is Ready.
func judgeBudget(v *verdict, s step, pools []*Version, known *hashes, since view, lost []*Version) {
	floor, paused, minReady := math.MaxInt, len(pools) > 0, int32(math.MaxInt32)
	for _, pool := range pools {
		if seconds := pool.pool.Spec.MinReadySeconds; seconds > 0 && readySince(s.old.pod).Add(time.Duration(seconds)*time.Second).After(since.time) {
			return // it may not have been one that could be handed out
		}
		minReady = min(minReady, pool.pool.Spec.MinReadySeconds)
		paused = paused && pool.pool.Spec.Paused
		floor = min(floor, s.world.floor(pool, known, s.pod.Labels[labelHash]))
	}
	owner := OwnerOf(s.old.pod)
	remaining := 0
	for _, pod := range s.world.Idle(owner.UID) {
		if IsReady(pod) && !readySince(pod).Add(time.Duration(minReady)*time.Second).After(s.Time) {
			remaining++
		}
	}
	for _, l := range lost {
		if OwnerOf(l.pod).UID == owner.UID && since.includes(l) {
			remaining++
		}
	}
	switch {
	case paused:
		v.at(s.Version, "deleted by pool %s, which is paused", owner.Name)
	case len(pools) > 0 && remaining < floor:
		v.at(s.Version, "deleted by pool %s, which has %d ready Pods without it, and may not have less than %d", owner.Name, remaining, floor)
	}
}

// floor is how many ready Pods must remain when a pool, in one of its versions, deletes a
// ready Pod that was made from the template of a hash.
func (w *World) floor(pool *Version, known *hashes, hash string) int {
	p := pool.pool
	if pool.Deleted || p.DeletionTimestamp != nil {
		return 0
	}
	if now := known.hashOf(p); p.Spec.UpdateStrategy.Type == recreate && (now == "" || now != hash) {
		return 0
	}
	keep := int(ptr.Deref(p.Spec.Replicas, 1))
	maxUnavailable, _ := p.budget()
	if size := int(p.Spec.MaxSize); size > 0 {
		allowed := size - (len(w.Using(p)) - len(w.Idle(p.UID)))
		if allowed <= keep+len(w.Waiting(p.Namespace, p.Name)) {
			maxUnavailable = max(maxUnavailable, 1) // there is no room for a surge
		}
		keep = min(keep, allowed)
	}
	return max(keep-maxUnavailable, 0)
}

// canServe tells whether a Pod is one of a pool's that is idle and Ready.
func canServe(pod *corev1.Pod) bool {
	return OwnerOf(pod).Kind == kindPool && pod.DeletionTimestamp == nil && !ended(pod) && IsReady(pod)
}

// readySince is when a Pod became Ready, as its condition says, to the second.
func readySince(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// O26 judges which Pods are handed out while there are some of an old template.
//
// Under RollingUpdate no claim gets an old Pod while there is an updated one for it: at
// each hand-out of a Pod of another template than the present one, no more updated Pods
// are idle and can be handed out than claims wait besides, each of which may be about to
// get one. Updated Pods count that were Ready, for minReadySeconds and without a break,
// since before the view back of I3, and aren't older than maxIdleSeconds; the template must
// have been the present one that long. Claims that were deleted meanwhile count as waiting.
//
// Under Recreate no Pod of another template is handed out at any revision after that of
// the first status which speaks of the generation with the present template, or of one
// with the same: then the controller has observed it. There is no view back; but a request
// that a proxy held up, and that had arrived there before that status was written, is
// excepted.
func O26(h *History, terms Terms) []Violation {
	v := &verdict{rule: "O26"}
	j := handOutJudge{verdict: v, terms: terms, past: pastOf(h), known: hashesOf(h, &verdict{}), ready: map[types.UID]*Version{}, observed: map[types.UID]*Version{}}
	h.replay(func(s step) {
		switch {
		case s.pool != nil:
			j.observe(s)
		case s.pod != nil:
			if s.old != nil && !s.Deleted && OwnerOf(s.old.pod).Kind == kindPool && OwnerOf(s.pod).Kind == kindClaim {
				j.judge(s)
			}
			if s.Deleted || !canServe(s.pod) {
				delete(j.ready, s.pod.UID)
			} else if j.ready[s.pod.UID] == nil {
				j.ready[s.pod.UID] = s.Version
			}
		}
	})
	return v.found
}

// handOutJudge is what O26 keeps.
type handOutJudge struct {
	verdict *verdict
	terms   Terms
	past    *past
	known   *hashes
	// ready are the versions with which the idle Pods that are Ready became so.
	ready map[types.UID]*Version
	// observed are the versions of pools under Recreate with which the controller was seen
	// to have observed the present template.
	observed map[types.UID]*Version
}

// observe follows the status of a pool.
func (j *handOutJudge) observe(s step) {
	switch p := s.pool; {
	case p.Spec.UpdateStrategy.Type != recreate:
		delete(j.observed, p.UID)
	case p.Status.ObservedGeneration != p.Generation:
	case j.observed[p.UID] == nil || j.observed[p.UID].pool.Status.UpdateRevision != p.Status.UpdateRevision:
		j.observed[p.UID] = s.Version
	}
}

// judge judges one hand-out.
func (j *handOutJudge) judge(s step) {
	owner, hash := OwnerOf(s.old.pod), s.pod.Labels[labelHash]
	if seen := j.observed[owner.UID]; seen != nil && hash != seen.pool.Status.UpdateRevision {
		if pool := s.world.Pools[owner.UID]; (pool == nil || hash != j.known.hashOf(pool)) && !j.wasSentBefore(s.Version, seen.Time) {
			j.verdict.at(s.Version, "an old Pod is handed out (template %s), and pool %s, which is under Recreate, was seen to have template %s", hash, owner.Name, seen.pool.Status.UpdateRevision)
		}
		return
	}
	since := viewOf(s.Version, j.terms, func(r *faultproxy.Request) bool { return mayHaveWritten(r, s.Version) })
	pools := j.past.inForce(owner.UID, since, s.Version)
	present := ""
	for _, pool := range pools {
		now := j.known.hashOf(pool.pool)
		if pool.Deleted || !pool.pool.rolls() || now == "" || now == hash || present != "" && present != now {
			return
		}
		present = now
	}
	better := 0
	for _, pod := range s.world.Idle(owner.UID) {
		if pod.Labels[labelHash] == present && j.couldServe(pod, pools, since, s.Time) {
			better++
		}
	}
	waiting := len(s.world.Waiting(s.pod.Namespace, owner.Name)) + j.past.lostClaims(s.pod.Namespace, owner.Name, since, s.Version)
	if better > waiting {
		j.verdict.at(s.Version, "an old Pod is handed out (template %s), where %d of the present one (%s) are ready, and %d claims wait besides", hash, better, present, waiting)
	}
}

// wasSentBefore tells whether a request that may have written a version had arrived at its
// proxy before a time.
func (j *handOutJudge) wasSentBefore(v *Version, at time.Time) bool {
	return slices.ContainsFunc(allRequests(j.terms.Logs), func(r *faultproxy.Request) bool {
		return mayHaveWritten(r, v) && r.Arrived.Before(at)
	})
}

// couldServe tells whether an idle Pod could be handed out in the whole view.
func (j *handOutJudge) couldServe(pod *corev1.Pod, pools []*Version, since view, now time.Time) bool {
	ready := j.ready[pod.UID]
	if ready == nil || since.includes(ready) {
		return false
	}
	return !slices.ContainsFunc(pools, func(pool *Version) bool {
		minReady, maxIdle := time.Duration(pool.pool.Spec.MinReadySeconds)*time.Second, time.Duration(pool.pool.Spec.MaxIdleSeconds)*time.Second
		return minReady > 0 && readySince(pod).Add(minReady).After(since.time) ||
			maxIdle > 0 && !pod.CreationTimestamp.Add(maxIdle).After(now)
	})
}
