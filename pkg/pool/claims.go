package pool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

// projectClaims sorts the claims by their state: it brings the status of those
// that have a Pod up to date, finishes those that have waited too long, and keeps
// those that wait, in the order in which they are served.
func (p *planner) projectClaims() {
	for _, claim := range p.claims {
		if claim.DeletionTimestamp != nil {
			continue // its Pod goes with it
		}
		pod := p.podOf(claim)
		due := expiresAt(claim)
		p.wakeAt(due)
		switch state := StateOfClaim(claim, pod); {
		case !p.now.Before(due) && state == ClaimFinished:
			p.actions.ExpiredClaims = append(p.actions.ExpiredClaims, claim)
		case !p.now.Before(due):
			p.setStatus(claim, expiredStatus(claim, p.now), false)
		case state == ClaimBound:
			if pod != nil {
				p.setStatus(claim, BoundStatus(claim, pod, p.pool, p.now), false)
			} else {
				p.setStatus(claim, lostStatus(claim, p.now), true)
			}
		case state == ClaimWaiting:
			if due := waitsUntil(claim); p.now.Before(due) {
				p.wakeAt(due)
				p.waiting = append(p.waiting, claim)
			} else {
				p.setStatus(claim, timedOutStatus(claim, p.now), false)
			}
		}
	}
	slices.SortFunc(p.waiting, func(a, b *v1alpha1.PodClaim) int {
		return cmp.Or(
			// A claim that the API server takes no Pod for would be the first
			// for ever, and where there are no more Pods nobody else would get one.
			compareBool(refusedHandOut(a), refusedHandOut(b)),
			cmp.Compare(b.Spec.Priority, a.Spec.Priority),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name))
	})
}

// podOf returns the Pod that has the claim as its owner, or nil. Should two
// leaders have overlapped there may be two, or one of a claim that had timed out:
// the one in the claim's status is the claim's, and any other goes; nobody was ever
// told of it.
func (p *planner) podOf(claim *v1alpha1.PodClaim) *corev1.Pod {
	pods := p.owned[claim.UID]
	if StateOfClaim(claim, nil) == ClaimWaiting {
		if len(pods) == 0 {
			return nil
		}
		return pods[0]
	}
	var bound *corev1.Pod
	for _, pod := range pods {
		switch {
		case claim.Status.Pod != nil && pod.UID == claim.Status.Pod.UID:
			bound = pod
		case pod.DeletionTimestamp == nil:
			p.delete(pod, fmt.Sprintf("not the Pod in the status of claim %s", claim.Name))
		}
	}
	return bound
}

// refusedHandOut tells whether the last attempt to hand a Pod out to the claim was
// refused.
func refusedHandOut(claim *v1alpha1.PodClaim) bool {
	bound := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimBound)
	return bound != nil && bound.Reason == v1alpha1.ReasonHandOutRefused
}

// waitsUntil is when a waiting claim times out.
func waitsUntil(claim *v1alpha1.PodClaim) time.Time {
	if claim.Spec.TimeoutSeconds == 0 {
		return never
	}
	return claim.CreationTimestamp.Add(seconds(claim.Spec.TimeoutSeconds))
}

// expiresAt is when a claim's time is over.
func expiresAt(claim *v1alpha1.PodClaim) time.Time {
	if claim.Status.ExpirationTime == nil {
		return never
	}
	return claim.Status.ExpirationTime.Time
}

// lifetime is how long a claim may keep its Pod; 0 is for ever. The pool may be nil.
func lifetime(claim *v1alpha1.PodClaim, pool *v1alpha1.WarmPool) time.Duration {
	var limits v1alpha1.ClaimLifetime
	if pool != nil {
		limits = ptr.Deref(pool.Spec.ClaimLifetime, limits)
	}
	asked := cmp.Or(claim.Spec.Lifetime, limits.Default, limits.Maximum)
	switch {
	case asked == nil:
		return 0
	case limits.Maximum != nil:
		return min(asked.Duration, limits.Maximum.Duration)
	default:
		return asked.Duration
	}
}

// explainPoolNotFound tells the waiting claims that there is no pool for them.
func (p *planner) explainPoolNotFound() {
	for _, claim := range p.waiting {
		message := fmt.Sprintf("there is no WarmPool %q in namespace %q: create it, or delete this claim", claim.Spec.PoolName, claim.Namespace)
		if p.pool != nil {
			message = fmt.Sprintf("WarmPool %q is being deleted: create it again, or delete this claim", claim.Spec.PoolName)
		}
		p.setStatus(claim, waitingStatus(claim, v1alpha1.ReasonPoolNotFound, message, p.now), false)
	}
}

// explainWaiting tells the claims that get no Pod now why. The messages don't
// count: a number that changes with every hand-out would be written to every
// claim that waits.
func (p *planner) explainWaiting() {
	coming := len(p.starting) + p.actions.Creations
	if !p.pool.Spec.Paused {
		coming += len(p.retired) // their successors
	}
	refused := meta.IsStatusConditionTrue(p.pool.Status.Conditions, v1alpha1.PoolReplicaFailure)
	if refused {
		coming = len(p.starting)
	}
	for i, claim := range p.waiting {
		if refusedHandOut(claim) {
			continue // more Pods wouldn't help it; the refusal says what would
		}
		reason := v1alpha1.ReasonPoolExhausted
		message := fmt.Sprintf("WarmPool %q has no ready Pod", p.pool.Name)
		switch {
		case i < coming:
			reason, message = v1alpha1.ReasonPending, "a Pod is being started for this claim"
		case p.pool.Spec.Paused:
			message = fmt.Sprintf("WarmPool %q has no ready Pod and is paused: set spec.paused to false", p.pool.Name)
		case p.actions.AtCapacity:
			reason = v1alpha1.ReasonAtCapacity
			message = fmt.Sprintf("WarmPool %q has reached spec.maxSize (%d): delete claims, or raise it", p.pool.Name, p.pool.Spec.MaxSize)
		case refused:
			message = fmt.Sprintf("the API server refuses to create Pods: see condition ReplicaFailure of WarmPool %q", p.pool.Name)
		}
		p.setStatus(claim, waitingStatus(claim, reason, message, p.now), false)
	}
}

// setStatus plans a claim's status, if it differs from what the claim has.
func (p *planner) setStatus(claim *v1alpha1.PodClaim, status v1alpha1.PodClaimStatus, confirmGone bool) {
	if equality.Semantic.DeepEqual(claim.Status, status) {
		return
	}
	p.actions.ClaimStatuses = append(p.actions.ClaimStatuses, ClaimStatus{Claim: claim, Status: status, ConfirmGone: confirmGone})
}

// BoundStatus is the status of a claim to which pod was handed out. It is also the
// way to rebuild a status that was lost: the truth is the Pod's owner.
//
// The pool, which may be nil, limits how long the claim keeps its Pod.
func BoundStatus(claim *v1alpha1.PodClaim, pod *corev1.Pod, pool *v1alpha1.WarmPool, now time.Time) v1alpha1.PodClaimStatus {
	status := *claim.Status.DeepCopy()
	status.ObservedGeneration = claim.Generation
	if status.Pod == nil {
		status.Pod = &v1alpha1.PodReference{Name: pod.Name, UID: pod.UID}
		status.BoundTime = ptr.To(metav1.NewTime(now).Rfc3339Copy())
		if d := lifetime(claim, pool); d > 0 {
			status.ExpirationTime = ptr.To(metav1.NewTime(status.BoundTime.Add(d)).Rfc3339Copy())
		}
	}
	status.PodIPs = slices.Clone(pod.Status.PodIPs)
	status.NodeName = pod.Spec.NodeName
	setCondition(&status, claim, now, v1alpha1.ClaimBound, true, v1alpha1.ReasonHandedOut, fmt.Sprintf("Pod %s is this claim's", pod.Name))
	if readyAt(pod, 0).Equal(never) {
		setCondition(&status, claim, now, v1alpha1.ClaimReady, false, v1alpha1.ReasonPodNotReady, "the Pod is not Ready")
	} else {
		setCondition(&status, claim, now, v1alpha1.ClaimReady, true, v1alpha1.ReasonPodReady, "the Pod is Ready")
	}
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		setCondition(&status, claim, now, v1alpha1.ClaimFinished, true, v1alpha1.ReasonPodSucceeded, "all containers of the Pod ended well")
	case corev1.PodFailed:
		setCondition(&status, claim, now, v1alpha1.ClaimFinished, true, v1alpha1.ReasonPodFailed, "the Pod ended with a failure: "+howItEnded(pod))
	}
	return status
}

// lostStatus is the status of a claim whose Pod is gone.
func lostStatus(claim *v1alpha1.PodClaim, now time.Time) v1alpha1.PodClaimStatus {
	status := *claim.Status.DeepCopy()
	status.ObservedGeneration = claim.Generation
	setCondition(&status, claim, now, v1alpha1.ClaimReady, false, v1alpha1.ReasonPodLost, "the Pod is gone")
	setCondition(&status, claim, now, v1alpha1.ClaimFinished, true, v1alpha1.ReasonPodLost,
		fmt.Sprintf("Pod %s is gone: delete this claim, and create a new one for another Pod", status.Pod.Name))
	return status
}

// expiredStatus is the status of a claim whose time is over.
func expiredStatus(claim *v1alpha1.PodClaim, now time.Time) v1alpha1.PodClaimStatus {
	status := *claim.Status.DeepCopy()
	status.ObservedGeneration = claim.Generation
	setCondition(&status, claim, now, v1alpha1.ClaimFinished, true, v1alpha1.ReasonExpired, "the claim's lifetime is over: it is deleted, and with it its Pod")
	return status
}

// RefusedStatus is the status of a claim to which pod can't be handed out, since
// the API server refuses the patch, and whether it differs from what the claim has.
func RefusedStatus(claim *v1alpha1.PodClaim, pod *corev1.Pod, refusal error, now time.Time) (status v1alpha1.PodClaimStatus, changed bool) {
	// The next attempt may be on another Pod; its name would make the message new.
	message := strings.ReplaceAll(refusal.Error(), pod.Name, "NAME")
	status = waitingStatus(claim, v1alpha1.ReasonHandOutRefused, message, now)
	return status, !equality.Semantic.DeepEqual(claim.Status, status)
}

func timedOutStatus(claim *v1alpha1.PodClaim, now time.Time) v1alpha1.PodClaimStatus {
	message := fmt.Sprintf("no Pod could be handed out within %d s (timeoutSeconds): delete this claim, and create a new one to try again", claim.Spec.TimeoutSeconds)
	status := waitingStatus(claim, v1alpha1.ReasonTimedOut, message, now)
	setCondition(&status, claim, now, v1alpha1.ClaimFinished, true, v1alpha1.ReasonTimedOut, message)
	return status
}

func waitingStatus(claim *v1alpha1.PodClaim, reason, message string, now time.Time) v1alpha1.PodClaimStatus {
	status := *claim.Status.DeepCopy()
	status.ObservedGeneration = claim.Generation
	setCondition(&status, claim, now, v1alpha1.ClaimBound, false, reason, message)
	return status
}

// setCondition sets one condition. Its time moves only when it turns, so that a
// status which says the same again is the same, and isn't written.
func setCondition(status *v1alpha1.PodClaimStatus, claim *v1alpha1.PodClaim, now time.Time, kind string, isTrue bool, reason, message string) {
	meta.SetStatusCondition(&status.Conditions, newCondition(claim.Generation, now, kind, isTrue, reason, message))
}

func newCondition(generation int64, now time.Time, kind string, isTrue bool, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if isTrue {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{
		Type:               kind,
		Status:             status,
		ObservedGeneration: generation,
		LastTransitionTime: metav1.NewTime(now).Rfc3339Copy(),
		Reason:             reason,
		Message:            message,
	}
}
