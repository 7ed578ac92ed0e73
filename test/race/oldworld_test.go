package race

// The world as it was, served again: by an API server that lags and doesn't pretend that
// what it has is new, or by one that does. The second is what a restore of etcd from a
// backup looks like. Then even a quorum read is old, and the guards have nothing to go by:
// what is promised is what the preconditions of the writes keep, I1 to I4.

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

const olderWorld = "scenario: an older world"

// served are resources that are served as they were.
type served []schema.GroupVersionResource

var (
	pools  = v1alpha1.WarmPoolKind.GroupVersion().WithResource("warmpools")
	claims = v1alpha1.PodClaimKind.GroupVersion().WithResource("podclaims")
	pods   = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	// The watches of the caches are never in step, so one may be much older than the
	// others.
	each = map[string]served{
		"all of it":            {pools, claims, pods},
		"its pools":            {pools},
		"its claims":           {claims},
		"its pods":             {pods},
		"all of it but claims": {pools, pods},
	}
)

// snapshot records resources as they are now.
func (r *run) snapshot(resources served) *faultproxy.Snapshot {
	r.t.Helper()
	ctx, cancel := r.within(settleTimeout)
	defer cancel()
	old, err := r.current().proxy.Record(ctx, r.ns.Name, resources...)
	if err != nil {
		r.t.Fatal(err)
	}
	return old
}

// aged returns a run and a snapshot from before a claim got its Pod, and before the pool
// was made smaller, and larger again.
func aged(t *testing.T, resources served) (*run, *faultproxy.Snapshot) {
	t.Helper()
	r := filled(t, olderWorld, 3)
	old := r.snapshot(resources)
	r.createClaims("a")
	r.settle()
	for _, replicas := range []string{"1", "3"} {
		r.ns.PatchPool(poolName, `{"spec": {"replicas": `+replicas+`}}`)
		r.settle()
	}
	return r, old
}

// lasts lets time pass in which the current process must not end.
func (r *run) lasts(d time.Duration, meanwhile string) {
	r.t.Helper()
	environment.For(r.t, d, meanwhile, func() error {
		if r.current().controller.Ended() {
			return errors.New("the controller has ended")
		}
		return nil
	})
}

// B14: after a restart a controller was served an older world by an API server that lagged,
// and acted on it. Here such a server is asked for the newest world, and can't serve it: the
// controller isn't ready and writes nothing.
func TestARestartMeetsAServerThatLags(t *testing.T) {
	for _, name := range []string{"all of it", "its pods"} {
		t.Run(name, func(t *testing.T) {
			r, old := aged(t, each[name])
			lags := r.startsAnew(faultproxy.Rule{Do: faultproxy.LaggingServer(old)})
			r.createClaims("b", "c")
			r.waitFired(lags, 1)
			r.sendsNothing(held, guarded, "while the API server lags")
			r.isNotReady("while the API server lags")
			lags.release()
			r.settleSoon()
			r.wantFired("gate", "made_workers_wait")
			r.end(history.Terms{})
		})
	}
}

// B14, as it was reported: the restarted controller is served the older world as if it were
// the newest. Free Pods in it are claimed by now, or gone. It can't know; claims come, and
// the pool is made smaller. It hands none out twice and deletes none that is claimed.
func TestARestartIsServedAnOlderWorldAsTheNewest(t *testing.T) {
	for name, resources := range each {
		t.Run(name, func(t *testing.T) {
			r, old := aged(t, resources)
			lies := r.startsAnew(faultproxy.Rule{Do: faultproxy.OldWorld(old)})
			r.current().controller.WaitReady()
			r.createClaims("b", "c")
			r.ns.PatchPool(poolName, `{"spec": {"replicas": 1}}`)
			r.lasts(held, "served an older world")
			lies.release()
			r.settleSoon()
			// Of three Pods that seemed free one was claim a's, and one was gone.
			if slices.Contains(resources, pods) && !slices.Contains(resources, claims) {
				r.wantFired("ledger", "outdated_cache_noticed")
			}
			r.end(history.Terms{})
		})
	}
}

// B14 within one process: the watches end, and the lists that follow are from the older
// world. The caches go back, which is noticed, and nothing is written.
func TestAListIsFromAnOlderWorld(t *testing.T) {
	for name, resources := range each {
		t.Run(name, func(t *testing.T) {
			r, old := aged(t, resources)
			r.hasCaughtUp()
			lies := r.goesWrong(faultproxy.Rule{Do: faultproxy.OldWorld(old)})
			r.listsAnew()
			r.createClaims("b", "c")
			r.ns.PatchPool(poolName, `{"spec": {"replicas": 1}}`)
			r.sendsNothing(held, guarded, "while the caches are from an older world")
			lies.release()
			r.settleSoon()
			r.wantFired("backlog", "parked_went_back")
			r.end(history.Terms{})
		})
	}
}

// listsAnew makes the current process, which has listed everything once, list it again, and
// waits until that is in its caches.
func (r *run) listsAnew() {
	r.t.Helper()
	r.current().proxy.EndWatches(faultproxy.Match{}, faultproxy.Expired())
	r.ns.Eventually("new lists to be in the caches", func() error {
		log := r.current().controller.Log()
		lists := strings.Count(log, `"Caches populated"`) - strings.Count(log, `"Caches populated" type="*v1.Node"`)
		queued := 0
		for _, resource := range each["all of it"] {
			queued += r.metric(fmt.Sprintf(`freshness_informer_queued_events{resource=%q}`, resource.GroupResource()))
		}
		if lists < 2*len(each["all of it"]) || queued > 0 {
			return fmt.Errorf("%d lists have come, and %d events are queued", lists, queued)
		}
		return nil
	})
}

// B15: controllers took what they saw of an earlier object of the same name, that it was
// being deleted, for the present one, and deleted what belonged to that. Here the old pool
// is served after a restart, when another of its name has Pods, and claims have some.
func TestARestartIsServedTheOldPoolOfTheSameName(t *testing.T) {
	for name, resources := range each {
		if !slices.Contains(resources, pools) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			r := filled(t, olderWorld, 2)
			r.ns.PatchPool(poolName, `{"metadata": {"finalizers": ["example.com/wait"]}}`)
			r.ns.DeletePool(poolName, "")
			r.settle()
			old := r.snapshot(resources)
			r.ns.PatchPool(poolName, `{"metadata": {"finalizers": null}}`)
			r.settle()
			r.ns.CreatePool(environment.Pool(poolName, 2))
			r.createClaims("a", "b")
			r.settle()
			lies := r.startsAnew(faultproxy.Rule{Do: faultproxy.OldWorld(old)})
			r.current().controller.WaitReady()
			r.createClaims("c")
			r.sendsNothing(held, faultproxy.Match{Verb: faultproxy.Writes, Resource: "pods", Subresource: faultproxy.Any}, "served the old pool")
			lies.release()
			r.settleSoon()
			r.end(history.Terms{})
		})
	}
}

// B59: an informer that moves to an API server which is behind is told "Too large resource
// version", and never recovered. Here it is told so for 20 s, whatever it asks for; it asks
// again at a pace, and recovers at once when it is served.
func TestEveryListIsTooNewForTheServer(t *testing.T) {
	const behindFor = 20 * time.Second
	r := filled(t, olderWorld, 2)
	behind := r.goesWrong(faultproxy.Rule{Match: relist(""), Do: faultproxy.Refuse(faultproxy.TooLargeResourceVersion())})
	r.current().proxy.EndWatches(faultproxy.Match{}, faultproxy.Expired())
	r.createClaims("a", "b", "c")
	r.ns.PatchPool(poolName, `{"spec": {"replicas": 3}}`)
	r.waitFired(behind, len(each["all of it"]))
	r.sendsNothing(behindFor, guarded, "without a list")
	tries, _ := r.count(relist(""))
	behind.release()
	r.settleSoon()
	// The API server's answer tells to try again in a second.
	if most := (2 + int(behindFor.Seconds())) * len(each["all of it"]); tries < most/4 || tries > 2*most {
		t.Errorf("lists were asked for %d times in %s, want about %d", tries, behindFor, most)
	}
	r.end(history.Terms{})
}
