package pool

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// This file replaces the idle Pods that will never serve, at a pace at which a broken
// template does no harm.

const (
	// failedPodPace is the least age at which a Pod that ended by itself is replaced.
	// A Pod that ran for a while is replaced at once; a template whose Pods end as
	// soon as they start costs the cluster one Pod a replica in this time, and not
	// as many as the API server can take.
	failedPodPace = 10 * time.Second
	// maxPatience is the longest that a Pod is given to get ready, unless
	// readinessTimeoutSeconds is longer.
	maxPatience = time.Hour
)

// replaceBroken deletes the Pods that have ended by themselves, those that don't get
// ready, and those that Recreate retires. Their successors are created when the cache
// shows that they are going.
func (p *planner) replaceBroken() {
	for _, pod := range p.failed {
		created := pod.CreationTimestamp.Time
		p.deleteAt(created.Add(p.patience(created, failedPodPace)), pod, "ended by itself: "+howItEnded(pod))
	}
	for _, pod := range p.retired {
		p.delete(pod, ofOldTemplate.String())
	}
	for _, pod := range p.starting {
		if unschedulable(pod) && p.outdated(pod) {
			// It will never serve, and there may be a place for what the present
			// template asks for. With every strategy: nobody can take it.
			p.delete(pod, ofOldTemplate.String())
		}
	}
	timeout := ptr.Deref(p.pool.Spec.ReadinessTimeoutSeconds, 300)
	if timeout == 0 {
		return
	}
	for _, pod := range p.starting {
		if !readyAt(pod, 0).Equal(never) || unschedulable(pod) {
			continue // it waits for minReadySeconds only, or another would wait like it
		}
		since := notReadySince(pod)
		p.deleteAt(since.Add(p.patience(since, seconds(timeout))), pod, fmt.Sprintf("not Ready for %d s (readinessTimeoutSeconds)", timeout))
	}
}

// deleteAt deletes a Pod once it is due.
func (p *planner) deleteAt(due time.Time, pod *corev1.Pod, reason string) {
	if p.now.Before(due) {
		p.wakeAt(due)
		return
	}
	p.delete(pod, reason)
}

// patience is how long a Pod is given that was made, or lost its readiness, at a time:
// as long as the pool had got nowhere by then. So the time doubles from one Pod to its
// successor, with no other memory than when the pool last got on.
func (p *planner) patience(since time.Time, least time.Duration) time.Duration {
	if p.pool.Status.LastProgressTime == nil {
		return least
	}
	return max(min(since.Sub(p.pool.Status.LastProgressTime.Time), maxPatience), least)
}

// unschedulable tells whether there is no place for a Pod.
func unschedulable(pod *corev1.Pod) bool {
	scheduled := condition(pod, corev1.PodScheduled)
	return scheduled != nil && scheduled.Status == corev1.ConditionFalse &&
		(scheduled.Reason == corev1.PodReasonUnschedulable || scheduled.Reason == corev1.PodReasonSchedulingGated)
}

// howItEnded says in what way a Pod ended.
func howItEnded(pod *corev1.Pod) string {
	how := string(pod.Status.Phase)
	for _, more := range []string{pod.Status.Reason, pod.Status.Message} {
		if more != "" {
			how += ", " + more
		}
	}
	return how
}
