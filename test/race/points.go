package race

// The points of a story at which something can go wrong.

import (
	"fmt"
	"sync/atomic"

	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

// point is a place in the story that has the same name in each telling: the nth request
// of its kind that a process sends, or the nth event of a resource that it is sent.
type point struct {
	verb, resource, subresource string
	n                           int // from 1
}

// String is the point's name, fit for the name of a test.
func (p point) String() string {
	resource := p.resource
	if p.subresource != "" {
		resource += "." + p.subresource
	}
	return fmt.Sprintf("%s-%s-%d", p.verb, resource, p.n)
}

// rule makes a rule that does something once, at a point that is a request. Planted in
// several proxies it counts the requests in all of them.
func (p point) rule(do faultproxy.Action) faultproxy.Rule {
	var seen atomic.Int64
	return faultproxy.Rule{
		Name: p.String(),
		Match: faultproxy.Match{Verb: p.verb, Resource: p.resource, Subresource: p.subresource, Where: func(*faultproxy.Request) bool {
			return seen.Add(1) == int64(p.n)
		}},
		Do: do,
	}
}

// writesIn are the points of a log that are writes, in the order in which they came.
func writesIn(log faultproxy.Log) []point {
	return number(log.Requests, history.IsGuarded, func(r *faultproxy.Request) point {
		return point{verb: r.Verb, resource: r.Resource, subresource: r.Subresource}
	})
}

// eventsIn are the points of a log that are events of a watch, in the order in which
// they were sent. Bookmarks aren't counted: they come when time passes.
func eventsIn(log faultproxy.Log) []point {
	return number(log.Deliveries, func(d *faultproxy.Delivery) bool { return isObject(d.Type) }, func(d *faultproxy.Delivery) point {
		return point{verb: "event", resource: d.Resource.Resource}
	})
}

func isObject(eventType string) bool {
	return eventType == "ADDED" || eventType == "MODIFIED" || eventType == "DELETED"
}

// number makes points of what is chosen, and numbers those of a kind.
func number[T any](all []T, choose func(*T) bool, pointOf func(*T) point) []point {
	var points []point
	seen := map[point]int{}
	for i := range all {
		if !choose(&all[i]) {
			continue
		}
		p := pointOf(&all[i])
		seen[p]++
		p.n = seen[p]
		points = append(points, p)
	}
	return points
}
