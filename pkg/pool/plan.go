package pool

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

// failedPodPace is the least age at which a Pod that ended by itself is replaced.
// A Pod that ran for a while is replaced at once; a template whose Pods end as
// soon as they start costs the cluster one Pod a replica in this time, and not as
// many as the API server can take.
const failedPodPace = 10 * time.Second

// Snapshot is one pool with its claims and Pods, as the listers hold them at one
// moment. The objects may be a cache's own: nothing here changes them.
type Snapshot struct {
	// Pool is nil when there is none of that name.
	Pool *v1alpha1.WarmPool
	// Claims are those whose spec.poolName is the pool's name.
	Claims []*v1alpha1.PodClaim
	// Pods are those whose controller owner is this pool, by UID, and those
	// whose controller owner is a claim of this pool, also one that is gone.
	Pods []*corev1.Pod
	// Nodes are those of the Pods, by name, as far as they are known: nodes are an
	// optional cache. A node that isn't here is taken for a good one.
	Nodes map[string]*corev1.Node
}

// Objects returns the objects of the snapshot.
func (s Snapshot) Objects() []metav1.Object {
	objects := make([]metav1.Object, 0, 1+len(s.Claims)+len(s.Pods))
	if s.Pool != nil {
		objects = append(objects, s.Pool)
	}
	for _, claim := range s.Claims {
		objects = append(objects, claim)
	}
	for _, pod := range s.Pods {
		objects = append(objects, pod)
	}
	return objects
}

// Actions is what a pool needs next. The zero value is nothing at all.
type Actions struct {
	// HandOuts come first: somebody waits for them.
	HandOuts []HandOut
	// ClaimStatuses are the statuses to write of claims that aren't handed a
	// Pod now.
	ClaimStatuses []ClaimStatus
	// ExpiredClaims are the claims to delete, since their time is over and their
	// status says so. Their Pods go with them.
	ExpiredClaims []*v1alpha1.PodClaim
	// Deletions are the Pods to delete.
	Deletions []Deletion
	// Creations is how many Pods to create from the pool's template.
	Creations int
	// AtCapacity tells that maxSize keeps the pool from having more Pods.
	AtCapacity bool
	// RequeueAfter is when time alone will change the plan; 0 if it won't.
	RequeueAfter time.Duration
}

// HandOut gives one idle, ready Pod to one claim.
type HandOut struct {
	Pod   *corev1.Pod
	Claim *v1alpha1.PodClaim
}

// Deletion deletes one Pod, for a reason that a person can read.
type Deletion struct {
	Pod    *corev1.Pod
	Reason string
}

// ClaimStatus is the new status of one claim.
type ClaimStatus struct {
	Claim  *v1alpha1.PodClaim
	Status v1alpha1.PodClaimStatus
	// ConfirmGone tells that the status rests on the absence of the claim's Pod.
	// A cache is no proof of absence, and Finished is for good: the controller
	// asks the API server first.
	ConfirmGone bool
}

// Plan decides what the pool of a snapshot needs at the time now. The same
// arguments give the same answer.
func Plan(snapshot Snapshot, now time.Time) Actions {
	p := newPlanner(snapshot, now)
	p.projectClaims()
	if p.pool == nil || p.pool.DeletionTimestamp != nil {
		// What is idle goes with its owner, by the garbage collector; what is
		// claimed stays with its claim.
		p.explainPoolNotFound()
		return p.result()
	}
	p.handOut()
	if !p.pool.Spec.Paused {
		p.replace()
		p.scale()
	}
	p.explainWaiting()
	return p.result()
}

// planner holds what the steps of one Plan share.
type planner struct {
	pool    *v1alpha1.WarmPool
	now     time.Time
	actions Actions
	// next is the earliest time at which the clock alone changes the plan.
	next time.Time

	claims  []*v1alpha1.PodClaim
	owned   map[types.UID][]*corev1.Pod // by the UID of the claim that owns them
	waiting []*v1alpha1.PodClaim        // in the order in which they are served

	idle     []*corev1.Pod // in the order in which they are handed out
	starting []*corev1.Pod
	failed   []*corev1.Pod
	live     int // all Pods that use resources, maxSize's measure
	claimed  int // those of them that claims have
}

func newPlanner(snapshot Snapshot, now time.Time) *planner {
	p := &planner{
		pool:   snapshot.Pool,
		now:    now,
		next:   never,
		claims: snapshot.Claims,
		owned:  map[types.UID][]*corev1.Pod{},
	}
	var minReadySeconds int32
	if p.pool != nil {
		minReadySeconds = p.pool.Spec.MinReadySeconds
	}
	for _, pod := range snapshot.Pods {
		p.addPod(pod, minReadySeconds)
	}
	slices.SortFunc(p.idle, func(a, b *corev1.Pod) int {
		// The longest Ready first: it has proved itself, and the order is the
		// same in every plan.
		return cmp.Or(readyAt(a, 0).Compare(readyAt(b, 0)), cmp.Compare(a.Name, b.Name))
	})
	for _, pods := range p.owned {
		slices.SortFunc(pods, func(a, b *corev1.Pod) int {
			return cmp.Or(compareBool(a.DeletionTimestamp != nil, b.DeletionTimestamp != nil), cmp.Compare(a.Name, b.Name))
		})
	}
	return p
}

func (p *planner) addPod(pod *corev1.Pod, minReadySeconds int32) {
	if owner := OwnerClaim(pod); owner != nil {
		p.owned[owner.UID] = append(p.owned[owner.UID], pod)
		if !ended(pod) {
			p.live++
			p.claimed++
		}
		return
	}
	if p.pool == nil || !ownedBy(pod, p.pool.UID) {
		return
	}
	if !ended(pod) {
		p.live++
	}
	switch StateOfPod(pod, minReadySeconds, p.now) {
	case PodIdle:
		p.idle = append(p.idle, pod)
	case PodStarting:
		p.starting = append(p.starting, pod)
		p.wakeAt(readyAt(pod, minReadySeconds))
	case PodFailed:
		p.failed = append(p.failed, pod)
	}
}

// handOut gives the ready Pods to the claims that wait, first come, first served.
func (p *planner) handOut() {
	n := min(len(p.waiting), len(p.idle))
	for i := range n {
		p.actions.HandOuts = append(p.actions.HandOuts, HandOut{Pod: p.idle[i], Claim: p.waiting[i]})
	}
	p.idle, p.waiting = p.idle[n:], p.waiting[n:]
	p.claimed += n
}

// replace deletes the idle Pods that will never serve. Their successors are
// created when the cache shows that they are going, so that a delete that is
// refused never makes the pool too large.
func (p *planner) replace() {
	for _, pod := range p.failed {
		if due := pod.CreationTimestamp.Add(failedPodPace); p.now.Before(due) {
			p.wakeAt(due)
			continue
		}
		p.delete(pod, fmt.Sprintf("ended by itself: %s", pod.Status.Phase))
	}
	timeout := ptr.Deref(p.pool.Spec.ReadinessTimeoutSeconds, 300)
	if timeout == 0 {
		return
	}
	for _, pod := range p.starting {
		if !readyAt(pod, 0).Equal(never) {
			continue // Ready, and waits for minReadySeconds only
		}
		if due := notReadySince(pod).Add(seconds(timeout)); p.now.Before(due) {
			p.wakeAt(due)
			continue
		}
		p.delete(pod, fmt.Sprintf("not Ready for %d s (readinessTimeoutSeconds)", timeout))
	}
}

// scale creates the Pods that are missing and deletes those that are too many.
//
// Wanted are replicas idle Pods, and one for each claim that waits, as far as
// maxSize leaves room. Failed Pods hold their place until they are replaced.
func (p *planner) scale() {
	maxSize := int(p.pool.Spec.MaxSize)
	wanted := int(ptr.Deref(p.pool.Spec.Replicas, 1)) + len(p.waiting)
	if allowed := max(maxSize-p.claimed, 0); maxSize > 0 && wanted > allowed {
		p.actions.AtCapacity = true
		wanted = allowed
	}
	have := len(p.idle) + len(p.starting) + len(p.failed)
	if have > wanted {
		p.deleteSurplus(have - wanted)
		return
	}
	p.actions.Creations = wanted - have
	// Pods that are terminating still use what maxSize is there to limit.
	if room := max(maxSize-p.live, 0); maxSize > 0 && p.actions.Creations > room {
		p.actions.AtCapacity = true
		p.actions.Creations = room
	}
}

// deleteSurplus deletes n Pods of those that can be missed best: failed ones,
// then those that are furthest from being ready, the youngest first.
func (p *planner) deleteSurplus(n int) {
	starting := slices.SortedFunc(slices.Values(p.starting), func(a, b *corev1.Pod) int {
		return cmp.Or(
			compareBool(scheduled(a), scheduled(b)),
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name))
	})
	failed := slices.SortedFunc(slices.Values(p.failed), func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	idle := slices.Clone(p.idle)
	slices.Reverse(idle)
	all := slices.Concat(failed, starting, idle)
	staying := slices.DeleteFunc(all, p.deletes)
	n -= len(all) - len(staying) // those go already
	for _, pod := range staying[:max(n, 0)] {
		p.delete(pod, "more idle Pods than asked for")
	}
}

func scheduled(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" }

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

func (p *planner) delete(pod *corev1.Pod, reason string) {
	p.actions.Deletions = append(p.actions.Deletions, Deletion{Pod: pod, Reason: reason})
}

func (p *planner) deletes(pod *corev1.Pod) bool {
	return slices.ContainsFunc(p.actions.Deletions, func(d Deletion) bool { return d.Pod == pod })
}

// wakeAt asks for another plan at the time t.
func (p *planner) wakeAt(t time.Time) {
	if t.Before(p.next) {
		p.next = t
	}
}

func (p *planner) result() Actions {
	if p.next.Before(never) {
		// A plan that is due now would have been made; at least a millisecond
		// keeps a rounding from turning into a loop.
		p.actions.RequeueAfter = max(p.next.Sub(p.now), time.Millisecond)
	}
	return p.actions
}
