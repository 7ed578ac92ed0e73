package history

// I9: nothing is written before the caches are full.

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"warmpool.dev/controller/test/faultproxy"
)

// I9 judges that a process writes nothing before it has seen everything: in the log of
// one process, from its start on, no write of a Pod, a WarmPool or a PodClaim arrived
// before the whole of each of the resources had been sent to it, by a list or by the
// initial events of a WatchList to their end. What the process made of it is its own
// affair, so this is a necessary condition, and no proof.
func I9(log faultproxy.Log, resources ...schema.GroupResource) []Violation {
	v := &verdict{rule: "I9"}
	for _, r := range allRequests([]faultproxy.Log{log}) {
		kind := r.GroupResource()
		if !r.IsWrite() || kind != Pods && kind != WarmPools && kind != PodClaims {
			continue
		}
		for _, resource := range resources {
			if log.SeenAt(resource, r.Arrived) == "" {
				v.inLog(r, "%s before the %s were seen", r.Verb, resource)
			}
		}
	}
	return v.found
}
