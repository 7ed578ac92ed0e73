package history

// I8: what fails is tried again more and more slowly.

import (
	"math"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/test/faultproxy"
)

// Pace is a backoff: Base, then twice as long after each failure, up to Cap.
type Pace struct {
	Base, Cap time.Duration
	// Burst is how many requests for one target a try may send. 0 means 1.
	Burst int
}

// I8 judges that writes which fail are sent again at a pace.
//
// A failure is a write that was told 4xx or 5xx, or nothing. Failures are counted by
// target: who, verb, resource and name, or for a creation, whose name changes, the
// owner's UID. Events don't count. In the time D from the first failure of a target
// to any later one, there may be, both included, no more than
//
//	Burst * (2 + 2*log2(1 + D/Base) + D/Cap)
//
// that is, twice what the backoff alone would send, since an event of somebody else's
// may wake a key at any time, and start it anew. One success starts the count anew.
func I8(pace Pace, logs ...faultproxy.Log) []Violation {
	v := &verdict{rule: "I8"}
	type count struct {
		since    time.Time
		failures int
	}
	counts := map[target]*count{}
	for _, r := range allRequests(logs) {
		if !isStored(r) || isEvent(r) {
			continue
		}
		of := targetOf(r)
		if r.Told >= http.StatusOK && r.Told < http.StatusBadRequest {
			delete(counts, of)
			continue
		}
		if counts[of] == nil {
			counts[of] = &count{since: r.Arrived}
		}
		c := counts[of]
		c.failures++
		span := r.Arrived.Sub(c.since)
		if allowed := pace.allows(span); c.failures > allowed {
			v.inLog(r, "%s failed %d times in %s, where a backoff allows %d", r.Verb, c.failures, span, allowed)
		}
	}
	return v.found
}

// allows returns how many failures may come in a time.
func (p Pace) allows(span time.Duration) int {
	tries := 2 + 2*math.Log2(1+float64(span)/float64(p.Base)) + float64(span)/float64(p.Cap)
	return int(float64(max(p.Burst, 1)) * tries)
}

type target struct {
	who, verb, resource, namespace, name string
	owner                                types.UID
}

func targetOf(r *faultproxy.Request) target {
	t := target{who: r.Who, verb: r.Verb, resource: r.Resource + "/" + r.Subresource, namespace: r.Namespace, name: r.Name}
	if owner := OwnerOf(&r.Meta); r.Verb == "create" && owner.UID != "" {
		t.name, t.owner = "", owner.UID
	}
	return t
}
