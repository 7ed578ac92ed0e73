package history

// I3: no creation takes a pool beyond what was asked for.

import (
	"math"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
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
	past := boundsOf(h)
	h.replay(func(s step) {
		owner := Owner{}
		if s.pod != nil && s.old == nil && !s.Deleted && !s.Initial {
			owner = OwnerOf(s.pod)
		}
		if owner.Kind != kindPool {
			return
		}
		b := past.over(owner.UID, viewOf(s.Version, terms), s.Version)
		idle := len(s.world.Idle(owner.UID))
		waiting := len(s.world.Waiting(s.pod.Namespace, owner.Name)) + b.lostClaims
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

// view is where the view back begins: at a revision, or else at a time.
type view struct {
	revision int64 // 0: unknown
	time     time.Time
}

func (a view) includes(until int64, untilTime time.Time) bool {
	if a.revision > 0 {
		return until > a.revision
	}
	return untilTime.After(a.time)
}

// viewOf returns how far back the controller's knowledge may lie at a creation.
func viewOf(created *Version, terms Terms) view {
	for i := range terms.Logs {
		log := &terms.Logs[i]
		for j := range log.Requests {
			r := &log.Requests[j]
			if r.Verb == "create" && r.Resource == Pods.Resource && r.Namespace == created.pod.Namespace && r.Name == created.pod.Name {
				at := r.Arrived.Add(-terms.Lag)
				pools, claims := revisionOf(log.SeenAt(WarmPools, at)), revisionOf(log.SeenAt(PodClaims, at))
				// Where it had seen nothing of one of them yet, the view goes back
				// to the beginning.
				return view{revision: max(min(pools, claims), 1), time: at}
			}
		}
	}
	return view{time: created.Time.Add(-terms.Lag)}
}

// bound is what a pool may have in a state of what others write.
type bound struct {
	open       bool // creation is allowed at all
	idle       int  // replicas and surge
	size       int  // maxSize
	lostClaims int  // waiting claims that were deleted
}

// bounds is the past of all pools.
type bounds struct {
	pools  map[types.UID][]poolState
	claims []lostClaim
}

// poolState is a bound and when it began; the next one ends it.
type poolState struct {
	bound
	from     int64
	fromTime time.Time
}

// lostClaim is a claim that was deleted while it waited.
type lostClaim struct {
	namespace, pool string
	at              int64
	time            time.Time
}

func boundsOf(h *History) *bounds {
	b := &bounds{pools: map[types.UID][]poolState{}}
	h.replay(func(s step) {
		switch {
		case s.pool != nil:
			b.pools[s.pool.UID] = append(b.pools[s.pool.UID], poolState{boundOf(s), s.Revision, s.Time})
		case s.claim != nil && s.old != nil:
			// A deletion can come in two steps; the first is what counts.
			leaves := s.Deleted || s.claim.DeletionTimestamp != nil
			if leaves && s.old.claim.DeletionTimestamp == nil && s.world.waits(s.old.claim) {
				b.claims = append(b.claims, lostClaim{s.claim.Namespace, s.claim.Spec.PoolName, s.Revision, s.Time})
			}
		}
	})
	return b
}

func boundOf(s step) bound {
	spec := s.pool.Spec
	b := bound{open: !s.Deleted && s.pool.DeletionTimestamp == nil && !spec.Paused, idle: 1, size: math.MaxInt}
	if spec.Replicas != nil {
		b.idle = int(*spec.Replicas)
	}
	if strategy := spec.UpdateStrategy; strategy.Type == "" || strategy.Type == "RollingUpdate" {
		if surge, err := intstr.GetScaledValueFromIntOrPercent(&strategy.RollingUpdate.MaxSurge, b.idle, true); err == nil {
			b.idle += surge
		}
	}
	if spec.MaxSize > 0 {
		b.size = int(spec.MaxSize)
	}
	return b
}

// over returns the most generous of the bounds that a pool has had since a view, up to
// a version.
func (b *bounds) over(pool types.UID, since view, to *Version) bound {
	var most bound
	states := b.pools[pool]
	for i, state := range states {
		if state.from > to.Revision {
			break
		}
		ended := i+1 < len(states) && states[i+1].from <= to.Revision
		if ended && !since.includes(states[i+1].from, states[i+1].fromTime) || !state.open {
			continue
		}
		most.open = true
		most.idle, most.size = max(most.idle, state.idle), max(most.size, state.size)
	}
	for _, claim := range b.claims {
		if claim.at <= to.Revision && since.includes(claim.at, claim.time) &&
			claim.namespace == to.pod.Namespace && claim.pool == OwnerOf(to.pod).Name {
			most.lostClaims++
		}
	}
	return most
}

func revisionOf(resourceVersion string) int64 {
	revision, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return revision
}
