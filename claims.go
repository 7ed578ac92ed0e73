package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/freshness"
	"warmpool.dev/controller/pkg/pool"
)

// This file is what is written for claims: a Pod, a status, and in the end a deletion.

// handOut gives one Pod to one claim: a patch on the Pod that can succeed once, and
// then the claim's status, which only repeats what the Pod's owner says already.
func (c *Controller) handOut(ctx context.Context, snapshot pool.Snapshot, h pool.HandOut, r *results) {
	patch, err := pool.HandOutPatch(h.Pod, h.Claim)
	if err != nil {
		r.failed(err)
		return
	}
	// Should the answer be lost, the cache can tell whether the patch happened.
	shown := freshness.ShownBy(ctx, func(pod metav1.Object) bool { return metav1.IsControlledBy(pod, h.Claim) })
	pod, err := c.kube.CoreV1().Pods(h.Pod.Namespace).Patch(shown, h.Pod.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	switch {
	case err == nil:
	case isTestFailed(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		r.conflict("hand out pod", klog.KObj(h.Pod), err)
		return
	default:
		r.failed(fmt.Errorf("hand out pod %s to claim %s: %w", klog.KObj(h.Pod), klog.KObj(h.Claim), err))
		c.explainRefusedHandOut(ctx, h, err, r)
		return
	}
	handOuts.Inc()
	klog.FromContext(ctx).V(2).Info("Handed out", "pod", klog.KObj(pod), "claim", klog.KObj(h.Claim))
	r.record(func(o *pool.Outcome) { o.Pods = append(o.Pods, pod) })
	c.recorder.Eventf(h.Claim, corev1.EventTypeNormal, v1alpha1.ReasonHandedOut, "Pod %s is this claim's", pod.Name)
	c.updateClaimStatus(ctx, pool.ClaimStatus{Claim: h.Claim, Status: pool.BoundStatus(h.Claim, pod, snapshot.Pool, c.clock.Now())}, r)
}

// explainRefusedHandOut tells a claim why the API server takes no hand-out for it:
// an admission policy, say, that its labels offend.
func (c *Controller) explainRefusedHandOut(ctx context.Context, h pool.HandOut, refusal error, r *results) {
	if !isRefusal(refusal) {
		return
	}
	status, changed := pool.RefusedStatus(h.Claim, h.Pod, refusal, c.clock.Now())
	if changed {
		c.updateClaimStatus(ctx, pool.ClaimStatus{Claim: h.Claim, Status: status}, r)
	}
}

// updateClaimStatus writes the status of one claim.
func (c *Controller) updateClaimStatus(ctx context.Context, s pool.ClaimStatus, r *results) {
	if s.ConfirmGone {
		if err := c.confirmGone(ctx, s.Claim); err != nil {
			r.failed(err)
			return
		}
	}
	claim := s.Claim.DeepCopy() // the cache's object is everybody's
	claim.Status = s.Status
	updated, err := c.warmpool.WarmpoolV1alpha1().PodClaims(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	switch {
	case err == nil:
		r.record(func(o *pool.Outcome) { o.Claims = append(o.Claims, updated) })
		if finished := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimFinished); finished != nil {
			c.recorder.Event(claim, eventTypeOf(finished.Reason), finished.Reason, finished.Message)
		}
	case apierrors.IsNotFound(err):
		// The claim is gone, and with it the need for a status; the garbage
		// collector takes its Pod.
	case apierrors.IsConflict(err):
		r.conflict("update claim status", klog.KObj(claim), err)
	default:
		r.failed(fmt.Errorf("update the status of claim %s: %w", klog.KObj(claim), err))
	}
}

// confirmGone asks the API server whether the Pod of a claim is gone, as the cache
// says: what follows from it is for good.
func (c *Controller) confirmGone(ctx context.Context, claim *v1alpha1.PodClaim) error {
	bound := claim.Status.Pod
	pod, err := c.kube.CoreV1().Pods(claim.Namespace).Get(ctx, bound.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && pod.UID != bound.UID:
		return nil
	case err != nil:
		return fmt.Errorf("look for pod %s/%s of claim %s: %w", claim.Namespace, bound.Name, claim.Name, err)
	default:
		conflicts.WithLabelValues("finish claim").Inc()
		return fmt.Errorf("pod %s of claim %s is not gone: %w", klog.KObj(pod), claim.Name, errConflict)
	}
}

// eventTypeOf is the type of the event that tells how a claim finished. It is a warning
// where its user didn't get what was asked for, or lost it.
func eventTypeOf(finished string) string {
	switch finished {
	case v1alpha1.ReasonPodSucceeded, v1alpha1.ReasonExpired:
		return corev1.EventTypeNormal
	default:
		return corev1.EventTypeWarning
	}
}

// deleteExpiredClaim deletes a claim whose time is over, and with it its Pod, which the
// garbage collector takes. The uid is there for a claim that was made again under the same
// name, and the resourceVersion for whatever somebody has changed a moment ago.
func (c *Controller) deleteExpiredClaim(ctx context.Context, claim *v1alpha1.PodClaim, r *results) {
	err := c.warmpool.WarmpoolV1alpha1().PodClaims(claim.Namespace).Delete(ctx, claim.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion},
	})
	switch {
	case err == nil:
		claimsExpired.Inc()
		klog.FromContext(ctx).V(2).Info("Deleted, since its time is over", "claim", klog.KObj(claim))
	case apierrors.IsNotFound(err):
		// Its user was faster.
	case apierrors.IsConflict(err):
		r.conflict("delete claim", klog.KObj(claim), err)
	default:
		r.failed(fmt.Errorf("delete claim %s, whose time is over: %w", klog.KObj(claim), err))
	}
}
