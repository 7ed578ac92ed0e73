package race

// What a controller may see, and what it makes of not being allowed to.

import (
	"testing"

	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

const scope = "scenario: scope"

// B70: when the right to one namespace was taken away, all stood still; and whoever takes
// "forbidden" or "not found" for "there are none" makes everything again. Here lists and
// watches of Pods, and all other reads of them, are refused for a while. Nothing is made
// for what can't be seen, what can be done is done, and when the right is back all goes on.
// (The namespace that goes and comes back is TestTheNamespaceIsDeletedAndMadeAgain.)
func TestTheRightToSeePodsIsTakenAway(t *testing.T) {
	for name, reply := range map[string]faultproxy.Reply{"forbidden": faultproxy.Forbidden(), "not found": faultproxy.NotFound()} {
		t.Run(name, func(t *testing.T) {
			const pods, attempts = 3, 5
			r := filled(t, scope, pods)
			refused := r.goesWrong(faultproxy.Rule{
				Match: faultproxy.Match{Verb: faultproxy.Reads, Resource: "pods"},
				Do:    faultproxy.Refuse(reply),
			})
			r.current().proxy.EndWatches(faultproxy.Match{Verb: "watch", Resource: "pods"}, faultproxy.Closed())
			r.waitFired(refused, 1)
			r.createClaims("a")
			r.ns.WaitBound("a") // to a Pod that was seen before
			r.loseIdlePod()
			r.ns.PatchPool(poolName, `{"spec": {"replicas": 4}}`)
			r.waitFired(refused, attempts)
			if sent, _ := r.count(creations); sent > pods+1 {
				t.Errorf("%d Pods were created, unseen, want one at most", sent-pods)
			}
			r.wantFired("backlog", "parked_behind")
			refused.release()
			r.settleSoon()
			r.want(deletions, 0, 0)
			r.end(history.Terms{})
		})
	}
}
