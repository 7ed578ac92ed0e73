package race

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"warmpool.dev/controller/test/faultproxy"
)

// held is how long events are held back at least.
const held = 3 * time.Second

// P6: from one event of a resource on, the controller sees none of them for a while, in no
// watch, while the others flow and the story goes on.
func TestTheControllerIsBlindForPodsFromEveryEventOn(t *testing.T)   { blindFromEvery(t, "pods") }
func TestTheControllerIsBlindForClaimsFromEveryEventOn(t *testing.T) { blindFromEvery(t, "podclaims") }
func TestTheControllerIsBlindForPoolsFromEveryEventOn(t *testing.T)  { blindFromEvery(t, "warmpools") }

func blindFromEvery(t *testing.T, resource string) {
	t.Helper()
	t.Parallel()
	events := slices.DeleteFunc(eventsIn(reference(t)), func(p point) bool { return p.resource != resource })
	everyPoint(t, "blind for "+resource, groups(events, eventsPerTelling), strict, func(_ *run, p point) *mishap {
		return &mishap{rule: p.blindness(), steps: 2, atLeast: held}
	})
}

// blindness is a rule that holds everything in the watches of a resource, bookmarks too,
// from the point on.
func (p point) blindness() faultproxy.Rule {
	var seen atomic.Int64
	return faultproxy.Rule{
		Name: p.String(),
		Match: faultproxy.Match{Verb: "watch", Resource: p.resource, WhereEvent: func(e *faultproxy.Event) bool {
			if isObject(e.Type) {
				seen.Add(1)
			}
			return seen.Load() >= int64(p.n)
		}},
		Do: faultproxy.HoldStream(),
	}
}
