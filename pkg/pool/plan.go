package pool

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

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
		p.replaceBroken()
		p.scale()
		p.renew()
		p.watchProgress()
	}
	p.explainWaiting()
	return p.result()
}

// planner holds what the steps of one Plan share.
type planner struct {
	pool    *v1alpha1.WarmPool
	nodes   map[string]*corev1.Node
	now     time.Time
	actions Actions
	// next is the earliest time at which the clock alone changes the plan.
	next time.Time

	claims  []*v1alpha1.PodClaim
	owned   map[types.UID][]*corev1.Pod // by the UID of the claim that owns them
	waiting []*v1alpha1.PodClaim        // in the order in which they are served

	revision string        // the hash of the pool's template
	idle     []*corev1.Pod // in the order in which they are handed out
	starting []*corev1.Pod
	failed   []*corev1.Pod
	retired  []*corev1.Pod // old ones that Recreate hands out no more
	live     int           // all Pods that use resources, maxSize's measure
	claimed  int           // those of them that claims have
	deleting map[types.UID]bool
}

func newPlanner(snapshot Snapshot, now time.Time) *planner {
	p := &planner{
		pool:     snapshot.Pool,
		nodes:    snapshot.Nodes,
		now:      now,
		next:     never,
		claims:   snapshot.Claims,
		owned:    map[types.UID][]*corev1.Pod{},
		deleting: map[types.UID]bool{},
	}
	if p.pool != nil {
		p.revision = TemplateHash(&p.pool.Spec.Template)
	}
	for _, pod := range snapshot.Pods {
		p.addPod(pod)
	}
	slices.SortFunc(p.idle, func(a, b *corev1.Pod) int {
		// The longest Ready first: it has proved itself, and the order is the
		// same in every plan.
		return cmp.Or(
			cmp.Compare(p.drawback(a), p.drawback(b)),
			readyAt(a, 0).Compare(readyAt(b, 0)),
			cmp.Compare(a.Name, b.Name))
	})
	for _, pods := range p.owned {
		slices.SortFunc(pods, func(a, b *corev1.Pod) int {
			return cmp.Or(compareBool(a.DeletionTimestamp != nil, b.DeletionTimestamp != nil), cmp.Compare(a.Name, b.Name))
		})
	}
	return p
}

func (p *planner) addPod(pod *corev1.Pod) {
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
	switch state := StateOfPod(pod, p.pool.Spec.MinReadySeconds, p.now); {
	case state == PodFailed:
		p.failed = append(p.failed, pod)
	case state == PodEnding:
	case p.outdated(pod) && p.pool.Spec.UpdateStrategy.Type == v1alpha1.Recreate:
		p.retired = append(p.retired, pod)
	case state == PodIdle:
		p.idle = append(p.idle, pod)
		p.wakeAt(p.overAgeAt(pod))
	case state == PodStarting:
		p.starting = append(p.starting, pod)
		p.wakeAt(readyAt(pod, p.pool.Spec.MinReadySeconds))
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
	p.deleting[pod.UID] = true
	p.actions.Deletions = append(p.actions.Deletions, Deletion{Pod: pod, Reason: reason})
}

// staying returns those of pods that aren't deleted by this plan.
func (p *planner) staying(pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return p.deleting[pod.UID] })
}

// wakeAt asks for another plan at the time t, if that is to come.
func (p *planner) wakeAt(t time.Time) {
	if t.Before(p.next) && p.now.Before(t) {
		p.next = t
	}
}

func (p *planner) result() Actions {
	if p.next.Before(never) {
		// At least a millisecond keeps a rounding from turning into a loop.
		p.actions.RequeueAfter = max(p.next.Sub(p.now), time.Millisecond)
	}
	return p.actions
}
