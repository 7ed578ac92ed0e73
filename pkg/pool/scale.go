package pool

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

// This file decides how many idle Pods a pool has, and which of them go. All of it
// shares one budget: what scale has deleted, renew doesn't count on any more.

// scale creates the Pods that are missing and deletes those that are too many.
//
// Wanted are replicas idle Pods, and one for each claim that waits, as far as
// maxSize leaves room; and while Pods are to be renewed, maxSurge more. Failed
// Pods, and those that Recreate retires, hold their place until they are going, so
// that a delete that is refused never makes the pool too large.
func (p *planner) scale() {
	wanted := p.replicas() + len(p.waiting)
	allowed := p.allowed()
	if wanted > allowed {
		p.actions.AtCapacity = true
		wanted = allowed
	}
	_, maxSurge := p.budget()
	target := min(wanted+min(maxSurge, p.toRenew()), allowed)
	have := len(p.idle) + len(p.starting) + len(p.failed) + len(p.retired)
	if have > target {
		tolerance := share(p.pool.Spec.Tolerance, p.replicas(), 0, true)
		if have > min(target+tolerance, allowed) {
			p.deleteSurplus(have - target)
		}
		return
	}
	p.actions.Creations = target - have
	// Pods that are terminating still use what maxSize is there to limit.
	if room := max(p.maxSize()-p.live, 0); p.actions.Creations > room {
		p.actions.AtCapacity = p.actions.AtCapacity || wanted-have > room
		p.actions.Creations = room
	}
}

// deleteSurplus deletes n Pods of those that can be missed best: those that are
// furthest from being ready first, then those that are to be renewed anyway, then
// the youngest.
func (p *planner) deleteSurplus(n int) {
	all := slices.Concat(p.failed, p.retired, p.starting, p.idle)
	staying := p.staying(all)
	n -= len(all) - len(staying) // those go already
	slices.SortFunc(staying, func(a, b *corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(p.stage(a), p.stage(b)),
			cmp.Compare(p.drawback(b), p.drawback(a)),
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
			readyAt(b, 0).Compare(readyAt(a, 0)),
			cmp.Compare(a.Name, b.Name))
	})
	for _, pod := range staying[:max(n, 0)] {
		p.delete(pod, "more idle Pods than asked for")
	}
}

// stage tells how far an idle Pod has come.
func (p *planner) stage(pod *corev1.Pod) int {
	switch {
	case ended(pod):
		return 0
	case pod.Spec.NodeName == "":
		return 1
	case pod.Status.Phase == corev1.PodPending:
		return 2
	case StateOfPod(pod, p.pool.Spec.MinReadySeconds, p.now) != PodIdle:
		return 3
	default:
		return 4
	}
}

// renew deletes Pods that are to be replaced by better ones, a few at a time: they
// were made from an old template, are over age, or sit on a node that is cordoned or
// not ready. At least replicas less maxUnavailable Pods stay ready, and one more for
// each claim that waits. Those that aren't ready go first; of them so many stay that
// these numbers are met even if no new one gets ready. These are the rules of a
// Deployment.
func (p *planner) renew() {
	maxUnavailable, _ := p.budget()
	keep := max(min(p.replicas(), p.allowed())-maxUnavailable, 0) + len(p.waiting)

	starting, idle := p.staying(p.starting), p.staying(p.idle)
	worse := p.withDrawback(starting)
	fresh := len(starting) - len(worse)
	p.renewFirst(worse, len(starting)+len(idle)-fresh-keep)
	if p.stuck() {
		return // what is ready is better than what doesn't get ready
	}
	p.renewFirst(p.withDrawback(idle), len(idle)-keep)
}

// renewFirst deletes the n Pods that are to go first: the least ready ones, those
// with the worst drawback, those whose template is the oldest, the oldest.
func (p *planner) renewFirst(pods []*corev1.Pod, n int) {
	lastMade := map[string]time.Time{}
	for _, pod := range pods {
		hash := pod.Labels[v1alpha1.LabelTemplateHash]
		if made := pod.CreationTimestamp.Time; made.After(lastMade[hash]) {
			lastMade[hash] = made
		}
	}
	age := func(pod *corev1.Pod) time.Time { return lastMade[pod.Labels[v1alpha1.LabelTemplateHash]] }
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(p.stage(a), p.stage(b)),
			cmp.Compare(p.drawback(b), p.drawback(a)),
			age(a).Compare(age(b)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name))
	})
	for _, pod := range pods[:max(min(n, len(pods)), 0)] {
		p.delete(pod, p.drawback(pod).String())
	}
}

// toRenew counts the Pods that are to be renewed.
func (p *planner) toRenew() int {
	return len(p.withDrawback(slices.Concat(p.starting, p.idle)))
}

// withDrawback returns those of pods that are to be renewed.
func (p *planner) withDrawback(pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return p.drawback(pod) == 0 })
}

// drawback is why a Pod is handed out after others, and replaced. The worst is the
// greatest; 0 is none.
type drawback int

const (
	overAge drawback = iota + 1
	ofOldTemplate
	onBadNode
)

// String is the reason to delete a Pod with that drawback.
func (d drawback) String() string {
	switch d {
	case overAge:
		return "older than maxIdleSeconds"
	case ofOldTemplate:
		return "made from an old template"
	case onBadNode:
		return "on a node that is cordoned or not ready"
	default:
		return ""
	}
}

func (p *planner) drawback(pod *corev1.Pod) drawback {
	switch {
	case isBad(p.nodes[pod.Spec.NodeName], pod):
		return onBadNode
	case p.outdated(pod) && p.pool.Spec.UpdateStrategy.Type != v1alpha1.OnHandOut:
		return ofOldTemplate
	case !p.now.Before(p.overAgeAt(pod)) && StateOfPod(pod, p.pool.Spec.MinReadySeconds, p.now) == PodIdle:
		// Not while it starts: if that takes longer, none would ever be ready.
		return overAge
	default:
		return 0
	}
}

// isBad tells whether a Pod has no future on its node. A node of which nothing is known
// is a good one. So is one that the scheduler gives such Pods all the same, or each
// successor would be put there and be replaced at once, for ever: one that is cordoned,
// where the Pod tolerates that, and one that wasn't ready when the Pod was made.
func isBad(node *corev1.Node, pod *corev1.Pod) bool {
	if node == nil {
		return false
	}
	if node.Spec.Unschedulable && !toleratesCordon(pod) {
		return true
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		madeBefore := c.LastTransitionTime.IsZero() || !pod.CreationTimestamp.After(c.LastTransitionTime.Time)
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && madeBefore
	})
}

// toleratesCordon tells whether new Pods like this one are put on cordoned nodes.
func toleratesCordon(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return (t.Key == "" || t.Key == corev1.TaintNodeUnschedulable) &&
			(t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule) &&
			(t.Operator == corev1.TolerationOpExists || t.Value == "")
	})
}

// outdated tells whether a Pod was made from another template than the pool has now.
func (p *planner) outdated(pod *corev1.Pod) bool {
	return pod.Labels[v1alpha1.LabelTemplateHash] != p.revision
}

// overAgeAt is when a Pod has been idle for too long.
func (p *planner) overAgeAt(pod *corev1.Pod) time.Time {
	if p.pool.Spec.MaxIdleSeconds == 0 {
		return never
	}
	return pod.CreationTimestamp.Add(seconds(p.pool.Spec.MaxIdleSeconds))
}

// replicas is how many idle Pods the pool is to keep.
func (p *planner) replicas() int { return int(ptr.Deref(p.pool.Spec.Replicas, 1)) }

// maxSize is how many Pods the pool may have in all.
func (p *planner) maxSize() int {
	if p.pool.Spec.MaxSize == 0 {
		return noLimit
	}
	return int(p.pool.Spec.MaxSize)
}

// noLimit is more than any pool has.
const noLimit = 1 << 40

// allowed is how many idle Pods maxSize leaves room for.
func (p *planner) allowed() int { return max(p.maxSize()-p.claimed, 0) }

// budget is how many ready Pods fewer, and idle Pods more, than asked for there may be
// while Pods are renewed.
func (p *planner) budget() (maxUnavailable, maxSurge int) {
	settings := ptr.Deref(p.pool.Spec.UpdateStrategy.RollingUpdate, v1alpha1.RollingUpdateSettings{})
	maxUnavailable = share(settings.MaxUnavailable, p.replicas(), p.replicas()/4, false)
	maxSurge = share(settings.MaxSurge, p.replicas(), 0, true)
	room := max(p.allowed()-p.replicas()-len(p.waiting), 0)
	if maxUnavailable == 0 && min(maxSurge, room) == 0 {
		// A share of a small pool may come to nothing, and maxSize may leave no room
		// for a surge; then nothing would ever go.
		maxUnavailable = 1
	}
	return maxUnavailable, maxSurge
}

// share is a number, or a share of total, or what it is where it isn't set. One that
// can't be understood, which the CRD refuses, is 0.
func share(value *intstr.IntOrString, total, unset int, roundUp bool) int {
	if value == nil {
		return unset
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, total, roundUp)
	if err != nil {
		return 0
	}
	return n
}
