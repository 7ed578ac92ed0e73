package history

// I3: no creation takes a pool beyond what was asked for.

import (
	"math"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/test/faultproxy"
)

// I3 judges that no creation takes a pool beyond its bounds. It is judged at each
// version that is the first of a Pod whose controller owner is a WarmPool; Pods that
// were there when the recording began are not judged, but count.
//
// At that revision, with the new Pod counted:
//
//	idle Pods         <=  spec.replicas + surge + waiting claims
//	all Pods          <=  spec.maxSize, if it isn't 0
//
// Idle Pods are World.Idle, all Pods are World.Using, waiting claims are World.Waiting.
// The surge is spec.updateStrategy.rollingUpdate.maxSurge, a share being one of
// spec.replicas, rounded up; it is granted whether a roll is under way or not, except
// to the other strategies. A pool that is paused, is being deleted or doesn't exist
// has a bound of zero: whatever is created is too much.
//
// What the controller wrote itself counts from the very revision on, whatever its
// cache says: that is the point. What others write it can't know at once, so their
// writes are judged with a view back. The view goes back to what had been delivered to
// the controller's process Terms.Lag before the request that created the Pod arrived at
// its proxy (found in Terms.Logs by its name), or, where there is no such log, to Lag
// before the version itself. Over all revisions from there to the creation, replicas,
// surge and maxSize are taken at their most generous, and claims that waited when they
// were deleted count as waiting. With no log and no Lag it is the revision alone.
//
// Terms.Excess forgives so many creations in all.
func I3(h *History, terms Terms) []Violation {
	v := &verdict{rule: "I3"}
	past := pastOf(h)
	h.replay(func(s step) {
		owner := Owner{}
		if s.pod != nil && s.old == nil && !s.Deleted && !s.Initial {
			owner = OwnerOf(s.pod)
		}
		if owner.Kind != kindPool {
			return
		}
		since := viewOf(s.Version, terms, func(r *faultproxy.Request) bool {
			return r.Verb == "create" && r.GroupResource() == Pods && r.Namespace == s.pod.Namespace && r.Name == s.pod.Name
		})
		b := boundOver(past.inForce(owner.UID, since, s.Version))
		idle := len(s.world.Idle(owner.UID))
		waiting := len(s.world.Waiting(s.pod.Namespace, owner.Name)) + past.lostClaims(s.pod.Namespace, owner.Name, since, s.Version)
		pool := s.world.Pools[owner.UID]
		switch {
		case !b.open:
			v.at(s.Version, "created for pool %s, which is paused, being deleted, or not there", owner.UID)
		case idle > b.idle+waiting:
			v.at(s.Version, "created as idle Pod number %d of pool %s, where replicas and surge are %d and %d claims wait", idle, owner.Name, b.idle, waiting)
		case pool != nil && len(s.world.Using(pool)) > b.size:
			v.at(s.Version, "created as Pod number %d of pool %s, where maxSize is %d", len(s.world.Using(pool)), owner.Name, b.size)
		}
	})
	if len(v.found) <= terms.Excess {
		return nil
	}
	return v.found
}

// bound is what a pool may have.
type bound struct {
	open bool // creation is allowed at all
	idle int  // replicas and surge
	size int  // maxSize
}

// boundOver returns the most generous of the bounds that a pool had in some versions.
func boundOver(versions []*Version) bound {
	var most bound
	for _, v := range versions {
		if v.Deleted || v.pool.DeletionTimestamp != nil || v.pool.Spec.Paused {
			continue
		}
		replicas := int(ptr.Deref(v.pool.Spec.Replicas, 1))
		_, surge := v.pool.budget()
		size := math.MaxInt
		if limit := int(v.pool.Spec.MaxSize); limit > 0 {
			size = limit
		}
		most.open = true
		most.idle, most.size = max(most.idle, replicas+surge), max(most.size, size)
	}
	return most
}

// budget is how many ready Pods fewer, and idle Pods more, than asked for there may be
// because Pods are replaced. Strategies other than RollingUpdate have its defaults.
func (p *Pool) budget() (maxUnavailable, maxSurge int) {
	unavailable, surge := intstr.FromString("25%"), intstr.FromInt32(0)
	if p.rolls() {
		rolling := p.Spec.UpdateStrategy.RollingUpdate
		unavailable, surge = ptr.Deref(rolling.MaxUnavailable, unavailable), rolling.MaxSurge
	}
	replicas := int(ptr.Deref(p.Spec.Replicas, 1))
	maxUnavailable, maxSurge = share(unavailable, replicas, false), share(surge, replicas, true)
	if maxUnavailable == 0 && maxSurge == 0 {
		maxUnavailable = 1
	}
	return maxUnavailable, maxSurge
}

// rolls tells whether a pool's strategy is RollingUpdate.
func (p *Pool) rolls() bool {
	return p.Spec.UpdateStrategy.Type != recreate && p.Spec.UpdateStrategy.Type != onHandOut
}

// share is a number, or a share of a total.
func share(value intstr.IntOrString, total int, roundUp bool) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(&value, total, roundUp)
	if err != nil {
		return 0 // the API server refuses it
	}
	return n
}
