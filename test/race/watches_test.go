package race

// Watches that die, fall silent, or can't be had.

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

const watches = "scenario: watches"

// silence is how long nothing has been heard of a resource.
func (r *run) silence(resource string) time.Duration {
	r.t.Helper()
	return time.Duration(r.metric(fmt.Sprintf("freshness_feed_silence_seconds{resource=%q}", resource))) * time.Second
}

// B57: a connection was open at one end only, and no event came for a quarter of an hour;
// a proxy that answers pings defeats the one thing that notices. Here the watches of Pods
// and claims say nothing more, new ones neither, until the guards have done about it what
// they can: a new watch, a comparison, new connections, a list. (At one minute they would
// say that it isn't ready, and end at two: see TestTheCacheLagsLongerThanEveryTimeout.)
// Writes pass, and there is work.
func TestTheWatchesFreezeWithoutAWord(t *testing.T) {
	r := filled(t, watches, 3)
	frozen := r.goesWrong(faultproxy.Rule{
		Match: faultproxy.Match{Verb: "watch", Where: func(q *faultproxy.Request) bool { return q.Resource != "warmpools" }},
		Do:    faultproxy.Freeze(),
	})
	r.ns.PatchPool(poolName, `{"spec": {"replicas": 4}}`)
	r.createClaims("a", "b")
	r.loseIdlePod()
	r.waitSent(4, creations, (*faultproxy.Request).Committed)
	r.waitForGuard("validator", "relist")
	for _, step := range []string{"nudge", "compare", "reconnect"} {
		r.wantFired("validator", step)
	}
	const long = 10 * time.Second
	if silence := r.silence("pods"); silence < long {
		t.Errorf("the metric says that Pods have been silent for %s, want more than %s", silence, long)
	}
	r.wantMade(4)
	frozen.release()
	r.settleSoon()
	r.end(history.Terms{})
}

// B62: of two informers one was stuck, and a Pod that was deleted never came back. Here the
// open watch of Pods, and no other, falls silent, the pool's only Pod is lost, and a claim
// comes. The hand-out is refused, which tells that the cache is old, and the watch is
// replaced. (Where nobody asks for anything it is found within two and a half minutes:
// TestAFrozenWatchIsFoundEvenIfNoKeyWaits in pkg/freshness.)
func TestOnlyTheWatchOfPodsFallsSilent(t *testing.T) {
	r := filled(t, watches, 1, patientWrites)
	var open []int64
	for _, q := range r.current().proxy.OpenWatches(faultproxy.Match{Verb: "watch", Resource: "pods"}) {
		open = append(open, q.ID)
	}
	r.goesWrong(faultproxy.Rule{
		Match: faultproxy.Match{Verb: "watch", Where: func(q *faultproxy.Request) bool { return slices.Contains(open, q.ID) }},
		Do:    faultproxy.Freeze(),
	})
	r.loseIdlePod()
	r.waitFor("the Pod to be gone", func(w *history.World) bool { return len(w.Pods) == 0 })
	r.createClaims("a")
	r.settleSoon()
	r.ns.WaitBound("a")
	r.wantFired("ledger", "outdated_cache_noticed")
	r.wantFired("validator", "nudge")
	r.end(history.Terms{})
}

// B61: "too old resource version" again and again, for hours, with the same version. Here
// every watch is refused so, only lists work, and not streamed ones; work is done from the
// lists. They are asked for at a pace, nothing is done twice because all is listed again
// and again, and watches that work are used soon.
func TestEveryWatchIsTooOldForAWhile(t *testing.T) {
	const (
		last  = 20 * time.Second
		paced = 4 * 20 // for four resources, one a second
	)
	r := filled(t, watches, 3)
	r.goesWrong(faultproxy.Rule{Match: relist("watch"), Do: faultproxy.Refuse(faultproxy.Invalid())})
	refused := r.goesWrong(faultproxy.Rule{Match: rewatch(), Do: faultproxy.Refuse(faultproxy.Expired())})
	r.current().proxy.EndWatches(faultproxy.Match{Verb: "watch"}, faultproxy.Expired())
	r.createClaims("a", "b")
	r.loseIdlePod()
	ctx, cancel := r.within(last)
	defer cancel()
	if err := refused.faults[0].WaitFired(ctx, paced); err == nil {
		t.Errorf("watches were asked for %d times within %s", paced, last)
	}
	t.Logf("watches were asked for %d times in %s", refused.faults[0].Fired(), last)
	r.heal()
	r.settleSoon()
	r.end(history.Terms{})
}

// B58: the bookmark that ends a streamed list was lost on the way, and the informers waited
// for it for ever without a word. Here it is lost at a start, which ends with an error that
// names the cache; and later, when somebody waits, for a list that follows a watch. A list
// that has fallen silent is left, and asked for in another way.
func TestTheEndOfAStreamedListNeverComes(t *testing.T) {
	t.Parallel()
	r := newRun(t, env, watches)
	r.mayEnd = true
	r.flags = append(r.flags, "--cache-sync-timeout=3s")
	lost := &mishap{until: allIsOver, rule: faultproxy.Rule{Match: listEnd("pods"), Do: faultproxy.DropEvents()}}
	r.trouble = trouble{lost}
	r.ns.CreatePool(environment.Pool(poolName, 2))
	first := r.launch()
	if code := first.controller.WaitForEnd(); code != 1 {
		t.Errorf("the start ended with exit code %d, want 1", code)
	}
	if log := first.controller.Log(); !strings.Contains(log, "1 of 3 caches not synced within 3s") || !strings.Contains(log, "  pods: ") {
		t.Error("the log doesn't say which cache is missing")
	}
	if sent := first.proxy.Log().Select(guarded); len(sent) > 0 {
		t.Errorf("%d writes were sent before the end of the list of Pods", len(sent))
	}
	lost.release()
	r.settle()

	again := r.goesWrong(faultproxy.Rule{Match: listEnd("pods"), Do: faultproxy.DropEvents()})
	r.current().proxy.EndWatches(faultproxy.Match{Verb: "watch", Resource: "pods"}, faultproxy.Expired())
	r.waitFired(again, 1)
	r.createClaims("a")
	r.ns.WaitBound("a") // to a Pod that was seen before
	r.waitForGuard("feed", "stalled_list_left")
	r.settleSoon()
	r.wantFired("backlog", "parked_behind")
	r.end(history.Terms{})
}
