package history

// The state of everything at one revision.

import (
	"cmp"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// World is what exists at one revision. Its objects must not be changed. It is not
// safe for concurrent use.
type World struct {
	Revision int64
	// Changed is the last revision that was one of something else than a Lease, which
	// is renewed all the time.
	Changed int64
	Time    time.Time
	Pools   map[types.UID]*Pool
	Claims  map[types.UID]*Claim
	Pods    map[types.UID]*corev1.Pod
	Leases  map[types.UID]*coordinationv1.Lease

	versions map[types.UID]*Version
	owned    map[types.UID]map[types.UID]*corev1.Pod // Pods by the UID of their Owner
}

// NewWorld returns a world in which nothing exists.
func NewWorld() *World {
	return &World{
		Pools:    map[types.UID]*Pool{},
		Claims:   map[types.UID]*Claim{},
		Pods:     map[types.UID]*corev1.Pod{},
		Leases:   map[types.UID]*coordinationv1.Lease{},
		versions: map[types.UID]*Version{},
		owned:    map[types.UID]map[types.UID]*corev1.Pod{},
	}
}

// apply moves the world on by one version, and returns that before of the same object.
func (w *World) apply(v *Version) (old *Version) {
	uid := v.UID()
	old = w.versions[uid]
	w.Revision, w.Time = max(w.Revision, v.Revision), v.Time
	if v.Resource != Leases {
		w.Changed = max(w.Changed, v.Revision)
	}
	if old != nil && old.pod != nil {
		delete(w.owned[OwnerOf(old.pod).UID], uid)
	}
	if v.Deleted {
		delete(w.versions, uid)
		delete(w.Pools, uid)
		delete(w.Claims, uid)
		delete(w.Pods, uid)
		delete(w.Leases, uid)
		return old
	}
	w.versions[uid] = v
	switch {
	case v.pod != nil:
		w.Pods[uid] = v.pod
		owner := OwnerOf(v.pod).UID
		if w.owned[owner] == nil {
			w.owned[owner] = map[types.UID]*corev1.Pod{}
		}
		w.owned[owner][uid] = v.pod
	case v.pool != nil:
		w.Pools[uid] = v.pool
	case v.claim != nil:
		w.Claims[uid] = v.claim
	case v.lease != nil:
		w.Leases[uid] = v.lease
	}
	return old
}

// Owner is who a Pod belongs to: its controller owner, if that is of this API.
type Owner struct {
	Kind string // WarmPool or PodClaim. Empty: somebody else, or nobody
	Name string
	UID  types.UID
}

// The kinds of owners.
const (
	kindPool  = "WarmPool"
	kindClaim = "PodClaim"
)

// OwnerOf tells who an object belongs to. The version of the owner's API doesn't
// matter, its group and kind do.
func OwnerOf(object metav1.Object) Owner {
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil || !strings.HasPrefix(ref.APIVersion, group+"/") {
		return Owner{}
	}
	if ref.Kind != kindPool && ref.Kind != kindClaim {
		return Owner{}
	}
	return Owner{Kind: ref.Kind, Name: ref.Name, UID: ref.UID}
}

// ours tells whether a Pod was made by a pool, as far as the Pod itself says.
func ours(pod *corev1.Pod) bool {
	return pod != nil && (OwnerOf(pod).Kind != "" || pod.Labels[labelPool] != "")
}

// ended tells whether all containers of a Pod have stopped for good.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// IsReady tells whether a Pod's condition Ready is True.
func IsReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Idle returns the pool's live idle Pods, by name: owned by the pool's UID, not being
// deleted, not ended.
func (w *World) Idle(pool types.UID) []*corev1.Pod {
	return choose(w.owned[pool], func(pod *corev1.Pod) bool {
		return OwnerOf(pod).Kind == kindPool && pod.DeletionTimestamp == nil && !ended(pod)
	})
}

// Using returns all Pods that count for a pool's maxSize, by name: idle ones, claimed
// ones and terminating ones, without those that ended.
func (w *World) Using(pool *Pool) []*corev1.Pod {
	return choose(w.Pods, func(pod *corev1.Pod) bool {
		switch owner := OwnerOf(pod); {
		case ended(pod) || pod.Namespace != pool.Namespace:
			return false
		case owner.Kind == kindPool:
			return owner.UID == pool.UID
		default:
			return owner.Kind == kindClaim && pod.Labels[labelPool] == pool.Name
		}
	})
}

// PodsOf returns the Pods whose controller owner is the claim of this UID, by name.
func (w *World) PodsOf(claim types.UID) []*corev1.Pod {
	return choose(w.owned[claim], func(pod *corev1.Pod) bool { return OwnerOf(pod).Kind == kindClaim })
}

// choose returns some of the Pods, by name.
func choose(from map[types.UID]*corev1.Pod, chosen func(*corev1.Pod) bool) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range from {
		if chosen(pod) {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return pods
}

// PoolNamed returns the pool of a name; nil: there is none.
func (w *World) PoolNamed(namespace, name string) *Pool {
	for _, pool := range w.Pools {
		if pool.Namespace == namespace && pool.Name == name {
			return pool
		}
	}
	return nil
}

// Waiting returns the claims that wait for a Pod of a pool, by name: not finished, not
// being deleted, no Pod in the status, and no Pod that they own.
func (w *World) Waiting(namespace, pool string) []*Claim {
	var waiting []*Claim
	for _, claim := range w.Claims {
		if claim.Namespace == namespace && claim.Spec.PoolName == pool && claim.DeletionTimestamp == nil && w.waits(claim) {
			waiting = append(waiting, claim)
		}
	}
	slices.SortFunc(waiting, func(a, b *Claim) int { return cmp.Compare(a.Name, b.Name) })
	return waiting
}

// waits tells whether a claim has no Pod yet and may still get one.
func (w *World) waits(claim *Claim) bool {
	return claim.Status.Pod == nil && !isTrue(claim.Status.Conditions, "Finished") && len(w.PodsOf(claim.UID)) == 0
}

// living tells whether an owner exists, under its UID, and isn't being deleted.
func (w *World) living(o Owner) bool {
	switch o.Kind {
	case kindPool:
		pool, ok := w.Pools[o.UID]
		return ok && pool.DeletionTimestamp == nil
	case kindClaim:
		claim, ok := w.Claims[o.UID]
		return ok && claim.DeletionTimestamp == nil
	default:
		return false
	}
}

func isTrue(conditions []metav1.Condition, kind string) bool {
	return meta.IsStatusConditionTrue(conditions, kind)
}
