package history

// I6 and O15: once the faults are over, everything gets where it belongs, and stays.

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// I6 judges that at the end of the history everything is where it belongs: see
// Unsettled.
func I6(h *History) []Violation {
	v := &verdict{rule: "I6"}
	for _, u := range h.end().Unsettled() {
		v.found = append(v.found, Violation{Rule: v.rule, Revision: h.To, Object: u.Object, Message: u.Message})
	}
	return v.found
}

// O15 judges that after the faults are over everything gets where it belongs within a
// time, and stays there to the end of the history: that Unsettled says nothing at any
// version later than healed+within. It returns how long it took, from healed to the
// last version before which something was unsettled; 0 if nothing was.
//
// The caller must not change anything after healed, or else give the time of his last
// change.
func O15(h *History, healed time.Time, within time.Duration) (took time.Duration, found []Violation) {
	v := &verdict{rule: "O15"}
	var last *Version
	var wrong []Unsettled
	h.replay(func(s step) {
		if next := s.index + 1; next < len(h.Versions) && !h.Versions[next].Time.After(healed) {
			return // what was before doesn't matter
		}
		if len(wrong) > 0 && s.Time.After(healed) {
			took = s.Time.Sub(healed) // until this version, it was so
		}
		last, wrong = s.Version, s.world.Unsettled()
		if len(wrong) > 0 && s.Time.After(healed.Add(within)) {
			v.at(s.Version, "%s after the faults were over: %s: %s", s.Time.Sub(healed), wrong[0].Object, wrong[0].Message)
		}
	})
	if len(wrong) > 0 && len(v.found) == 0 {
		v.at(last, "since then, to the end: %s: %s", wrong[0].Object, wrong[0].Message)
	}
	return took, v.found
}

// Unsettled is something that isn't where it belongs.
type Unsettled struct {
	Object  string
	Message string
}

// Unsettled tells what isn't where it belongs, by kind and name; nothing means that the
// controller has nothing to do. Of objects that are being deleted it says nothing.
//
// A pool has as many live idle Pods as spec.replicas and the waiting claims ask for and
// maxSize leaves room for, or more up to its tolerance, each is Ready, and, unless the
// strategy is OnHandOut, each was made from the present template; unless it is paused, or
// its condition ReplicaFailure says why not, or its condition Progressing does, and
// progressDeadlineSeconds is over indeed. Its status counts the Pods, and those of the
// present template (the ready ones unless minReadySeconds makes it a matter of time), and
// pendingClaims, and speaks of its generation. That a Pod is older than maxIdleSeconds, or
// sits on a bad node, isn't judged.
//
// A claim that has a Pod names it in its status, is Bound, and that Pod exists and is
// the claim's; unless the claim is Finished. A claim that waits says so in its
// condition Bound, with a reason that is true at this revision:
//
//	PoolNotFound      there is no pool of that name, or it is being deleted
//	AtCapacity        maxSize isn't 0, and all of it is used
//	PoolExhausted     the pool is paused, or its ReplicaFailure is True
//	Pending           a Pod of the pool is there that isn't Ready yet
//	HandOutRefused    always
//
// and, but for the last, no Pod of the pool is idle and Ready, and under Recreate of the
// present template. Finished for TimedOut needs a timeoutSeconds. A claim whose
// expirationTime was more than a second ago is being deleted, finished or not.
func (w *World) Unsettled() []Unsettled {
	var all []Unsettled
	note := func(object, format string, args ...any) {
		all = append(all, Unsettled{object, fmt.Sprintf(format, args...)})
	}
	for _, pool := range w.Pools {
		if pool.DeletionTimestamp == nil {
			w.unsettledPool(pool, note)
		}
	}
	for _, claim := range w.Claims {
		if claim.DeletionTimestamp == nil {
			w.unsettledClaim(claim, note)
		}
	}
	slices.SortFunc(all, func(a, b Unsettled) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Message, b.Message))
	})
	return all
}

// Remaining is Unsettled, and what is left to the kubelet and to the garbage collector:
// Pods that are being deleted, or whose owner is gone.
func (w *World) Remaining() []Unsettled {
	all := w.Unsettled()
	for _, pod := range w.Pods {
		object := "pods " + pod.Namespace + "/" + pod.Name
		if owner := OwnerOf(pod); w.Pools[owner.UID] == nil && w.Claims[owner.UID] == nil {
			all = append(all, Unsettled{object, fmt.Sprintf("its owner %s %s is gone", owner.Kind, owner.Name)})
		} else if pod.DeletionTimestamp != nil {
			all = append(all, Unsettled{object, "it is being deleted"})
		}
	}
	return all
}

func (w *World) unsettledPool(pool *Pool, note func(object, format string, args ...any)) {
	object := fmt.Sprintf("warmpools %s/%s", pool.Namespace, pool.Name)
	spec, status := pool.Spec, pool.Status
	count, old := w.count(pool)
	stuck := w.isStuck(pool)
	for _, pod := range w.Idle(pool.UID) {
		if !IsReady(pod) && !stuck {
			note(object, "its Pod %s isn't Ready", pod.Name)
		}
	}
	excused := stuck || spec.Paused || isTrue(status.Conditions, "ReplicaFailure")
	if wanted, most := w.wanted(pool, count.pending); !excused && (count.idle < wanted || count.idle > most) {
		note(object, "it has %d idle Pods, and should have %d", count.idle, wanted)
	}
	if !excused && old > 0 && spec.UpdateStrategy.Type != onHandOut {
		note(object, "it has %d idle Pods of another template", old)
	}
	for _, number := range []struct {
		what     string
		is, said int
		matters  bool
	}{
		{"replicas", count.replicas, int(status.Replicas), true},
		{"ready", count.ready, int(status.ReadyReplicas), spec.MinReadySeconds == 0},
		{"updated", count.updated, int(status.UpdatedReplicas), true},
		{"updated and ready", count.updatedReady, int(status.UpdatedReadyReplicas), spec.MinReadySeconds == 0},
		{"pending claims", count.pending, int(status.PendingClaims), true},
	} {
		if number.matters && number.is != number.said {
			note(object, "its status says %d %s, and there are %d", number.said, number.what, number.is)
		}
	}
	if status.ObservedGeneration != pool.Generation {
		note(object, "its status speaks of generation %d, and it is %d", status.ObservedGeneration, pool.Generation)
	}
	if p := meta.FindStatusCondition(status.Conditions, "Progressing"); p != nil && p.Status == metav1.ConditionFalse && !stuck {
		note(object, "it is said not to get on (%s), before its progressDeadlineSeconds are over", p.Reason)
	}
}

// counts are a pool's, as its status tells them.
type counts struct {
	idle, replicas, ready, updated, updatedReady, pending int
}

// count counts what the status of a pool is to say, and the live idle Pods that were made
// from another template.
func (w *World) count(pool *Pool) (c counts, old int) {
	c.pending = len(w.Waiting(pool.Namespace, pool.Name))
	for _, pod := range w.owned[pool.UID] {
		if OwnerOf(pod).Kind != kindPool || pod.DeletionTimestamp != nil {
			continue
		}
		updated := pod.Labels[labelHash] == pool.Status.UpdateRevision
		c.replicas++
		if updated {
			c.updated++
		}
		if ended(pod) {
			continue
		}
		c.idle++
		if !updated {
			old++
		}
		if pool.mayHandOut(pod) {
			c.ready++
			if updated {
				c.updatedReady++
			}
		}
	}
	return c, old
}

// mayHandOut tells whether a pool may hand out an idle Pod, but for minReadySeconds.
func (p *Pool) mayHandOut(pod *corev1.Pod) bool {
	return IsReady(pod) && (p.Spec.UpdateStrategy.Type != recreate || pod.Labels[labelHash] == p.Status.UpdateRevision)
}

// isStuck tells whether a pool says, in time, that it doesn't get on.
func (w *World) isStuck(pool *Pool) bool {
	progressing := meta.FindStatusCondition(pool.Status.Conditions, "Progressing")
	limit := time.Duration(ptr.Deref(pool.Spec.ProgressDeadlineSeconds, 600)) * time.Second
	return progressing != nil && progressing.Status == metav1.ConditionFalse && limit > 0 &&
		pool.Status.LastProgressTime != nil && !pool.Status.LastProgressTime.Add(limit).After(w.Time)
}

// wanted returns how many idle Pods a pool should have, and how many it may.
func (w *World) wanted(pool *Pool, waiting int) (wanted, most int) {
	replicas := int(ptr.Deref(pool.Spec.Replicas, 1))
	wanted = replicas + waiting
	most = wanted + share(pool.Spec.Tolerance, replicas, true)
	if size := int(pool.Spec.MaxSize); size > 0 {
		others := len(w.Using(pool)) - len(w.Idle(pool.UID))
		room := max(size-others, 0)
		wanted, most = min(wanted, room), min(most, room)
	}
	return wanted, most
}

func (w *World) unsettledClaim(claim *Claim, note func(object, format string, args ...any)) {
	object := fmt.Sprintf("podclaims %s/%s", claim.Namespace, claim.Name)
	conditions := claim.Status.Conditions
	if end := claim.Status.ExpirationTime; end != nil && w.Time.After(end.Add(time.Second)) {
		note(object, "its time was over at %s", end.UTC().Format(time.TimeOnly))
	}
	if finished := meta.FindStatusCondition(conditions, "Finished"); finished != nil && finished.Status == metav1.ConditionTrue {
		if finished.Reason == "TimedOut" && claim.Spec.TimeoutSeconds == 0 {
			note(object, "it has timed out, without a timeoutSeconds")
		}
		return
	}
	owned := w.PodsOf(claim.UID)
	switch named := claim.Status.Pod; {
	case named == nil && len(owned) > 0:
		note(object, "it has the Pod %s, and its status doesn't say so", owned[0].Name)
	case named == nil:
		w.unsettledWaiting(claim, object, note)
	case !isTrue(conditions, "Bound"):
		note(object, "its status names a Pod, and it isn't Bound")
	case !slices.ContainsFunc(owned, func(pod *corev1.Pod) bool { return pod.UID == named.UID }):
		note(object, "its status names the Pod %s (%s), which it doesn't have", named.Name, named.UID)
	case len(owned) > 1:
		note(object, "it has %d Pods", len(owned))
	}
}

// unsettledWaiting judges what a claim that waits says.
func (w *World) unsettledWaiting(claim *Claim, object string, note func(object, format string, args ...any)) {
	bound := meta.FindStatusCondition(claim.Status.Conditions, "Bound")
	if bound == nil || bound.Status != metav1.ConditionFalse {
		note(object, "it waits, and doesn't say so")
		return
	}
	if !w.isTrueOf(claim, bound.Reason) {
		note(object, "it waits for the reason %s, which isn't true", bound.Reason)
	}
}

// isTrueOf tells whether a reason to wait is true of a claim.
func (w *World) isTrueOf(claim *Claim, reason string) bool {
	pool := w.PoolNamed(claim.Namespace, claim.Spec.PoolName)
	if pool == nil || pool.DeletionTimestamp != nil {
		return reason == "PoolNotFound"
	}
	idle := w.Idle(pool.UID)
	if reason != "HandOutRefused" && pool.Spec.MinReadySeconds == 0 && slices.ContainsFunc(idle, pool.mayHandOut) {
		return false // it should have that Pod
	}
	switch reason {
	case "AtCapacity":
		return pool.Spec.MaxSize > 0 && len(w.Using(pool)) >= int(pool.Spec.MaxSize)
	case "PoolExhausted":
		return pool.Spec.Paused || isTrue(pool.Status.Conditions, "ReplicaFailure")
	case "Pending":
		return len(idle) > 0
	case "HandOutRefused":
		return true
	default:
		return false
	}
}
