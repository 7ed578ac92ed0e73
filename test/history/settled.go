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
	"k8s.io/apimachinery/pkg/util/intstr"
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
// maxSize leaves room for, or more up to its tolerance, and each is Ready; unless it is
// paused, or its condition ReplicaFailure says why not. Its status counts them
// (replicas, readyReplicas, unless minReadySeconds makes it a matter of time;
// pendingClaims) and speaks of its generation.
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
// and, but for the last, no Pod of the pool is idle and Ready. Finished for TimedOut
// needs a timeoutSeconds.
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
	idle, waiting := w.Idle(pool.UID), len(w.Waiting(pool.Namespace, pool.Name))
	ready := 0
	for _, pod := range idle {
		if IsReady(pod) {
			ready++
		} else {
			note(object, "its Pod %s isn't Ready", pod.Name)
		}
	}
	wanted, tolerance := w.wanted(pool, waiting)
	excused := pool.Spec.Paused || isTrue(pool.Status.Conditions, "ReplicaFailure")
	if n := len(idle); !excused && (n < wanted || n > wanted+tolerance) {
		note(object, "it has %d idle Pods, and should have %d", n, wanted)
	}
	status := pool.Status
	if int(status.Replicas) != len(idle)+w.failed(pool) {
		note(object, "its status says %d replicas, and there are %d", status.Replicas, len(idle)+w.failed(pool))
	}
	if pool.Spec.MinReadySeconds == 0 && int(status.ReadyReplicas) != ready {
		note(object, "its status says %d ready, and there are %d", status.ReadyReplicas, ready)
	}
	if int(status.PendingClaims) != waiting {
		note(object, "its status says %d pending claims, and there are %d", status.PendingClaims, waiting)
	}
	if status.ObservedGeneration != pool.Generation {
		note(object, "its status speaks of generation %d, and it is %d", status.ObservedGeneration, pool.Generation)
	}
}

// wanted returns how many idle Pods a pool should have, and how many more it may.
func (w *World) wanted(pool *Pool, waiting int) (wanted, tolerance int) {
	wanted = int(ptr.Deref(pool.Spec.Replicas, 1))
	if t, err := intstr.GetScaledValueFromIntOrPercent(&pool.Spec.Tolerance, wanted, true); err == nil {
		tolerance = t
	}
	wanted += waiting
	if size := int(pool.Spec.MaxSize); size > 0 {
		others := len(w.Using(pool)) - len(w.Idle(pool.UID))
		wanted = min(wanted, max(size-others, 0))
	}
	return wanted, tolerance
}

// failed counts the pool's Pods that have ended and aren't being deleted.
func (w *World) failed(pool *Pool) int {
	return len(choose(w.owned[pool.UID], func(pod *corev1.Pod) bool {
		return OwnerOf(pod).Kind == kindPool && pod.DeletionTimestamp == nil && ended(pod)
	}))
}

func (w *World) unsettledClaim(claim *Claim, note func(object, format string, args ...any)) {
	object := fmt.Sprintf("podclaims %s/%s", claim.Namespace, claim.Name)
	conditions := claim.Status.Conditions
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
	if reason != "HandOutRefused" && pool.Spec.MinReadySeconds == 0 && slices.ContainsFunc(idle, IsReady) {
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
