package history

// What the controller could know when it wrote something.

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/test/faultproxy"
)

// view is where the view back begins: of each resource at a revision, or else at a time.
// What was written up to there the controller knew; what came later it may not have known.
type view struct {
	revisions map[schema.GroupResource]int64 // nil: unknown
	time      time.Time
}

// includes tells whether what was so until a version was still so in the view.
func (a view) includes(until *Version) bool {
	if a.revisions != nil {
		return until.Revision > a.revisions[until.Resource]
	}
	return until.Time.After(a.time)
}

// viewOf returns how far back the controller's knowledge may lie at a write. did chooses
// the request that may have been the write. Where there is one in the logs, it is what had
// been delivered to its sender Terms.Lag before the request arrived; else it is Lag before
// the version.
func viewOf(written *Version, terms Terms, did func(*faultproxy.Request) bool) view {
	for i := range terms.Logs {
		log := &terms.Logs[i]
		for j := range log.Requests {
			if r := &log.Requests[j]; did(r) {
				back := view{revisions: map[schema.GroupResource]int64{}, time: r.Arrived.Add(-terms.Lag)}
				for _, resource := range []schema.GroupResource{Pods, WarmPools, PodClaims} {
					back.revisions[resource] = revisionOf(log.SeenAt(resource, back.time))
				}
				return back
			}
		}
	}
	return view{time: written.Time.Add(-terms.Lag)}
}

// mayHaveWritten tells whether a request may be what wrote a version, other than by a
// deletion.
func mayHaveWritten(r *faultproxy.Request, v *Version) bool {
	return r.IsWrite() && r.Verb != "delete" && r.Verb != "deletecollection" && (r.Committed() || r.InDoubt()) &&
		r.GroupResource() == v.Resource && r.Namespace == v.Object.GetNamespace() && r.Name == v.Object.GetName() &&
		!r.Forwarded.After(v.Time) && (r.AnswerRV == "" || r.AnswerRV == v.Object.GetResourceVersion())
}

// past is what others wrote.
type past struct {
	pools  map[types.UID][]*Version // each is in force until the next one
	claims []*Version               // those with which claims began to go that waited
}

func pastOf(h *History) *past {
	p := &past{pools: map[types.UID][]*Version{}}
	h.replay(func(s step) {
		switch {
		case s.pool != nil:
			p.pools[s.pool.UID] = append(p.pools[s.pool.UID], s.Version)
		case s.claim != nil && s.beginsToEnd() && s.world.waits(s.old.claim):
			p.claims = append(p.claims, s.Version)
		}
	})
	return p
}

// inForce returns the versions of a pool that were in force at any time from a view to a
// version. A pool that is gone stays gone: its last version is the one that tells so.
func (p *past) inForce(pool types.UID, since view, to *Version) []*Version {
	var all []*Version
	versions := p.pools[pool]
	for i, v := range versions {
		if v.Revision > to.Revision {
			break
		}
		over := i+1 < len(versions) && versions[i+1].Revision <= to.Revision
		if !over || since.includes(versions[i+1]) {
			all = append(all, v)
		}
	}
	return all
}

// lostClaims counts the claims on a pool that were deleted while they waited, from a view
// to a version.
func (p *past) lostClaims(namespace, pool string, since view, to *Version) int {
	n := 0
	for _, v := range p.claims {
		if v.Revision <= to.Revision && since.includes(v) && v.claim.Namespace == namespace && v.claim.Spec.PoolName == pool {
			n++
		}
	}
	return n
}

func revisionOf(resourceVersion string) int64 {
	revision, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return revision
}
