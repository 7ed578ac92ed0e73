package pool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

// This file tells whether a pool gets on, and if not, why.

// deadline is when the pool must have got on; never, if it need not.
func deadline(pool *v1alpha1.WarmPool, lastProgress *metav1.Time) time.Time {
	limit := ptr.Deref(pool.Spec.ProgressDeadlineSeconds, 600)
	if limit == 0 || lastProgress == nil {
		return never
	}
	return lastProgress.Add(seconds(limit))
}

// watchProgress asks for another plan when the pool must have got on. If it has
// nothing to do the status says so.
func (p *planner) watchProgress() {
	if progressing := p.progressing(); progressing != nil && progressing.Reason != v1alpha1.ReasonComplete {
		p.wakeAt(deadline(p.pool, p.pool.Status.LastProgressTime))
	}
}

// stuck tells whether the pool is known not to get on.
func (p *planner) stuck() bool {
	progressing := p.progressing()
	return progressing != nil && progressing.Status == metav1.ConditionFalse && progressing.ObservedGeneration == p.pool.Generation
}

func (p *planner) progressing() *metav1.Condition {
	return meta.FindStatusCondition(p.pool.Status.Conditions, v1alpha1.PoolProgressing)
}

// complete tells whether all Pods are there that are asked for, as far as maxSize leaves
// room, ready, and none is to be renewed.
func (p *planner) complete() bool {
	wanted := p.replicas()
	for _, claim := range p.waiting {
		if !refusedHandOut(claim) {
			wanted++
		}
	}
	return len(p.retired)+p.toRenew() == 0 && len(p.idle) >= min(wanted, p.allowed())
}

// setProgressing notes whether the pool has got on since before, and says what it is
// at. The other conditions and the counts must be there already.
func (p *planner) setProgressing(status *v1alpha1.WarmPoolStatus) {
	before := p.pool.Status
	complete := p.complete()
	was := p.progressing()
	wasComplete := was != nil && was.Reason == v1alpha1.ReasonComplete
	if before.LastProgressTime == nil || complete != wasComplete && !p.pool.Spec.Paused ||
		before.ObservedGeneration != status.ObservedGeneration ||
		// One less is a new beginning: the successors are no failed attempts yet.
		status.UpdatedReadyReplicas != before.UpdatedReadyReplicas ||
		status.ClaimedReplicas > before.ClaimedReplicas && p.handedOutSince(before.LastProgressTime.Time) {
		status.LastProgressTime = ptr.To(metav1.NewTime(p.now).Rfc3339Copy())
	}
	set := func(state metav1.ConditionStatus, reason, message string) {
		c := newCondition(p.pool.Generation, p.now, v1alpha1.PoolProgressing, false, reason, message)
		c.Status = state
		meta.SetStatusCondition(&status.Conditions, c)
	}
	switch {
	case p.pool.Spec.Paused:
		set(metav1.ConditionUnknown, v1alpha1.ReasonPaused, "the pool is paused: it neither fills nor rolls until spec.paused is false")
	case complete:
		set(metav1.ConditionTrue, v1alpha1.ReasonComplete, "as many Pods of the present template are ready as are asked for, or as spec.maxSize leaves room for")
	case !p.now.Before(deadline(p.pool, status.LastProgressTime)):
		set(metav1.ConditionFalse, v1alpha1.ReasonDeadline, p.whyStuck(status))
	case p.pool.Spec.UpdateStrategy.Type != v1alpha1.OnHandOut && status.UpdatedReplicas < status.Replicas:
		set(metav1.ConditionTrue, v1alpha1.ReasonRolling, "Pods of an old template are being replaced")
	default:
		set(metav1.ConditionTrue, v1alpha1.ReasonFilling, "Pods are being started, or replaced")
	}
}

// handedOutSince tells whether a Pod of the present template got ready after a time and
// was handed out at once, so that it never was among the ready ones of a status. An old
// one that is handed out says nothing of the present template.
func (p *planner) handedOutSince(t time.Time) bool {
	for _, pods := range p.owned {
		for _, pod := range pods {
			if at := readyAt(pod, 0); !p.outdated(pod) && t.Before(at) && at.Before(never) {
				return true
			}
		}
	}
	return false
}

// whyStuck says why no Pod gets ready. A cause that stays keeps its words: those of the
// kubelet and the scheduler contain numbers that move.
func (p *planner) whyStuck(status *v1alpha1.WarmPoolStatus) string {
	kind, details := p.cause(status)
	message := fmt.Sprintf("no Pod of the present template got ready within %d s (progressDeadlineSeconds): %s", ptr.Deref(p.pool.Spec.ProgressDeadlineSeconds, 600), kind)
	if was := p.progressing(); was != nil && was.Status == metav1.ConditionFalse && strings.HasPrefix(was.Message, message) {
		return was.Message
	}
	return message + details
}

// cause says what keeps the pool from getting on: the kind of thing, and the details.
func (p *planner) cause(status *v1alpha1.WarmPoolStatus) (kind, details string) {
	if failure := meta.FindStatusCondition(status.Conditions, v1alpha1.PoolReplicaFailure); failure != nil && failure.Status == metav1.ConditionTrue {
		// All of it is the kind: the condition's words don't move (refusalMessage).
		return "the API server refuses to create Pods: " + failure.Message, ""
	}
	pods := slices.SortedFunc(slices.Values(slices.Concat(p.starting, p.failed)), func(a, b *corev1.Pod) int {
		return cmp.Or(compareBool(p.outdated(a), p.outdated(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, pod := range pods {
		if kind, details := whyNotReady(pod); kind != "" {
			return kind, details
		}
	}
	switch {
	case len(pods) > 0:
		return "Pods have not been started by their nodes yet", ": look at the nodes, and at the events of Pod " + pods[0].Name
	case meta.IsStatusConditionTrue(status.Conditions, v1alpha1.PoolAtCapacity):
		return "spec.maxSize leaves no room", ": delete claims, or raise it"
	case status.Replicas < int32(p.replicas()):
		return "Pods can't be created", ": a webhook may be down; see the controller's log"
	default:
		return "Pods that are to be replaced aren't deleted", ": too few others are ready (see condition Available), or the API server refuses; see the controller's log"
	}
}

// whyNotReady says what keeps a Pod from being Ready, if that can be told.
func whyNotReady(pod *corev1.Pod) (kind, details string) {
	if ended(pod) {
		return "Pods end by themselves", ": " + howItEnded(pod)
	}
	if unschedulable(pod) {
		return "Pods can't be scheduled", ": " + condition(pod, corev1.PodScheduled).Message
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		waiting := c.State.Waiting
		if waiting == nil {
			continue
		}
		switch waiting.Reason {
		case "ContainerCreating", "PodInitializing", "":
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
			return fmt.Sprintf("the image %q of container %q can't be pulled", c.Image, c.Name), ": " + waiting.Message
		case "CrashLoopBackOff":
			return fmt.Sprintf("container %q ends again and again", c.Name), ": look at its log: " + waiting.Message
		default:
			return fmt.Sprintf("container %q can't be started", c.Name), fmt.Sprintf(": %s: %s", waiting.Reason, waiting.Message)
		}
	}
	for _, c := range pod.Status.InitContainerStatuses {
		if c.State.Running != nil && pod.Status.Phase == corev1.PodPending {
			return fmt.Sprintf("init container %q is running", c.Name), ": look at its log"
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running != nil && !c.Ready {
			return fmt.Sprintf("container %q runs and isn't ready", c.Name), ": look at its readiness probe and at its log"
		}
	}
	switch ready := condition(pod, corev1.PodReady); {
	case ready != nil && ready.Status == corev1.ConditionTrue:
		return "Pods are Ready, but not for minReadySeconds yet", ""
	case ready != nil && pod.Status.Phase == corev1.PodRunning:
		return "Pods run and aren't Ready", fmt.Sprintf(": %s: %s", ready.Reason, ready.Message)
	}
	return "", ""
}
