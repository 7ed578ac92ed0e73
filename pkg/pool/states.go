package pool

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

// PodState is where a Pod stands in its life. It follows from the Pod alone, so
// it can be told again after any crash.
//
//	state     is                                   leaves it by            written by
//	--------  -----------------------------------  ----------------------  -----------------
//	Starting  the pool's, not Ready for long       Ready for               kubelet
//	          enough                               minReadySeconds: Idle
//	          "                                    readinessTimeout: Ending  delete by the pool
//	Idle      the pool's, Ready for long enough    hand-out: Claimed       one JSON patch
//	          "                                    surplus: Ending         delete by the pool
//	Starting  made from an old template, over age  renewed: Ending         delete by the pool
//	or Idle   or on a bad node (drawback)
//	Claimed   a claim's                            claim deleted: Ending   garbage collector
//	Failed    the pool's, ended by itself          replaced: Ending        delete by the pool
//	Ending    has a deletionTimestamp              gone                    kubelet
type PodState string

// The states of a Pod.
const (
	PodStarting PodState = "Starting"
	PodIdle     PodState = "Idle"
	PodClaimed  PodState = "Claimed"
	PodFailed   PodState = "Failed"
	PodEnding   PodState = "Ending"
)

// ClaimState is where a claim stands in its life.
//
//	state     is                                   leaves it by              written by
//	--------  -----------------------------------  ------------------------  -------------------
//	Waiting   no Pod has its UID as its owner      hand-out: Bound           one JSON patch of the Pod
//	          "                                    timeoutSeconds: Finished  the claim's status
//	Bound     a Pod has, or status.pod names one   Pod ended, gone:          the claim's status
//	                                               Finished
//	          "                                    expirationTime: Finished  the claim's status
//	Finished  its condition Finished is True       expirationTime: gone      delete of the claim
type ClaimState string

// The states of a claim.
const (
	ClaimWaiting  ClaimState = "Waiting"
	ClaimBound    ClaimState = "Bound"
	ClaimFinished ClaimState = "Finished"
)

// StateOfPod tells the state of a Pod that a pool made, at the time now.
func StateOfPod(pod *corev1.Pod, minReadySeconds int32, now time.Time) PodState {
	switch {
	case pod.DeletionTimestamp != nil:
		return PodEnding
	case OwnerClaim(pod) != nil:
		return PodClaimed
	case ended(pod):
		return PodFailed
	case !now.Before(readyAt(pod, minReadySeconds)):
		return PodIdle
	default:
		return PodStarting
	}
}

// StateOfClaim tells the state of a claim; owned is the Pod that has the claim as
// its owner, or nil.
func StateOfClaim(claim *v1alpha1.PodClaim, owned *corev1.Pod) ClaimState {
	switch {
	case meta.IsStatusConditionTrue(claim.Status.Conditions, v1alpha1.ClaimFinished):
		return ClaimFinished
	case owned != nil || claim.Status.Pod != nil:
		return ClaimBound
	default:
		return ClaimWaiting
	}
}

// OwnerPool returns the controller owner of a Pod if it is a WarmPool, else nil.
func OwnerPool(pod *corev1.Pod) *metav1.OwnerReference {
	return ownerOfKind(pod, v1alpha1.WarmPoolKind.GroupKind())
}

// OwnerClaim returns the controller owner of a Pod if it is a PodClaim, else nil.
func OwnerClaim(pod *corev1.Pod) *metav1.OwnerReference {
	return ownerOfKind(pod, v1alpha1.PodClaimKind.GroupKind())
}

// ownerOfKind compares group and kind and not the version: a Pod made under an
// older version of the API is still the pool's (kubernetes-sigs/agent-sandbox#1190).
func ownerOfKind(pod *corev1.Pod, kind schema.GroupKind) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind() != kind {
		return nil
	}
	return owner
}

// ownedBy tells whether uid is that of the Pod's controller owner.
func ownedBy(pod *corev1.Pod, uid types.UID) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.UID == uid
}

// ended tells whether all containers of a Pod have stopped for good.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// never is later than any deadline.
var never = time.Unix(1<<40, 0)

// readyAt is when a Pod becomes one that can be handed out; never, if it isn't
// Ready now.
func readyAt(pod *corev1.Pod, minReadySeconds int32) time.Time {
	ready := condition(pod, corev1.PodReady)
	if ready == nil || ready.Status != corev1.ConditionTrue {
		return never
	}
	return ready.LastTransitionTime.Add(seconds(minReadySeconds))
}

// notReadySince is when a Pod that isn't Ready was last Ready, or else when it was
// put on its node, or was created.
func notReadySince(pod *corev1.Pod) time.Time {
	since := pod.CreationTimestamp.Time
	// The kubelet sets the condition to False when it first sees the Pod, which
	// is later than the creation; that is no loss of readiness, but it is close
	// enough to count from, and needs no memory. A Pod for which there was no place
	// for long has only begun when there is.
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodReady} {
		if c := condition(pod, kind); c != nil && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }
