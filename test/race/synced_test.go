package race

// A controller that begins before it has seen everything, or never begins and doesn't say.

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

const synced = "scenario: work before sync"

// listEnd chooses the bookmark that ends a streamed list of a resource.
func listEnd(resource string) faultproxy.Match {
	return faultproxy.Match{Verb: "watch", Resource: resource, Event: "BOOKMARK", WhereEvent: func(e *faultproxy.Event) bool { return e.InitialEnd }}
}

// podWrites are what is done to Pods.
var podWrites = faultproxy.Match{Verb: faultproxy.Writes, Resource: "pods"}

// startsAnew ends the current process and launches another, for which something is wrong
// from the beginning.
func (r *run) startsAnew(rule faultproxy.Rule) *mishap {
	r.t.Helper()
	r.stop(r.current())
	r.current().replaced = true
	m := &mishap{rule: rule, until: allIsOver}
	r.trouble = append(r.trouble, m)
	r.launch()
	return m
}

// isNotReady checks that the current process doesn't say that it is ready.
func (r *run) isNotReady(meanwhile string) {
	r.t.Helper()
	if state, err := r.current().controller.State(); err == nil {
		r.t.Errorf("%s: the controller says that it is %s", meanwhile, state)
	}
}

// B20: a controller took the word of its informers that all was there, while what its
// handlers build was half done. Here all of a long list has come but its end, and a claim
// waits: nothing is written, and the controller isn't ready, until the end has come and the
// handlers have been handed it. (A handler that is slow is the unit tests' of the gate.)
func TestTheEndOfALongFirstListIsLate(t *testing.T) {
	const pods = 60
	r := filled(t, synced, pods)
	r.ns.CreateClaim(environment.Claim("waits", "nothing-yet"))
	r.settle()
	late := r.startsAnew(faultproxy.Rule{Match: listEnd("pods"), Do: faultproxy.HoldStream()})
	r.waitFired(late, 1)
	r.createClaims("a")
	r.sendsNothing(held, guarded, "before the end of the list of Pods")
	r.isNotReady("before the end of the list of Pods")
	late.release()
	r.settleSoon()
	r.wantFired("gate", "made_workers_wait")
	r.wantMade(pods + 1)
	r.end(history.Terms{})
}

// B21: without a right, or without a definition, informers list for ever in silence, and
// nothing reconciles although the Pod is Ready. Here the right, or the definition, comes
// some seconds after the start: until then the controller isn't ready and writes nothing,
// and then it works. A start where they never come ends with an error that names them: see
// TestAStartThatCanNotSucceedSaysWhatIsMissing in test/e2e.
func TestWhatTheStartLacksComesLater(t *testing.T) {
	for name, missing := range map[string]struct {
		resource string
		reply    faultproxy.Reply
	}{
		"the right to Pods":       {"pods", faultproxy.Forbidden()},
		"the definition of pools": {"warmpools", faultproxy.NotFound()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRun(t, env, synced)
			r.flags = append(r.flags, "--cache-sync-timeout=1m")
			r.ns.CreatePool(environment.Pool(poolName, 3))
			lacks := &mishap{until: allIsOver, rule: faultproxy.Rule{
				Match: faultproxy.Match{Verb: faultproxy.Reads, Resource: missing.resource},
				Do:    faultproxy.Refuse(missing.reply),
			}}
			r.trouble = trouble{lacks}
			r.launch()
			const attempts = 6 // several seconds
			r.waitFired(lacks, attempts)
			r.isNotReady("without " + name)
			if sent, _ := r.count(guarded); sent > 0 {
				t.Errorf("without %s %d writes were sent", name, sent)
			}
			lacks.release()
			r.settleSoon()
			r.wantFired("gate", "made_workers_wait")
			r.end(history.Terms{})
		})
	}
}

// B23: after a crash, nodes were bought again: the accounts were empty until the events of
// what was there had come. Here the first list of Pods comes one by one.
func TestTheFirstListComesInDropByDrop(t *testing.T) {
	const pods, drop = 20, 150 * time.Millisecond
	r := filled(t, synced, pods)
	ticker := time.NewTicker(drop)
	defer ticker.Stop()
	initial := initial()
	initial.Resource = "pods"
	slow := r.startsAnew(faultproxy.Rule{Match: initial, Do: faultproxy.OnEvent(func(*faultproxy.Event) { <-ticker.C })})
	r.waitFired(slow, pods-1)
	r.isNotReady("while the list of Pods drips in")
	r.waitFired(slow, pods)
	r.current().controller.WaitReady()
	r.wantFired("gate", "made_workers_wait")
	r.wantMade(pods)
	r.want(deletions, 0, 0)
	r.end(history.Terms{})
}

// B24: machines were made for a cluster that was being deleted, since its children were
// seen to go before it was seen itself. Here a pool is deleted, its own events don't come,
// and those of its Pods do.
func TestOnlyThePodsOfAPoolAreSeenToGo(t *testing.T) {
	const pods = 3
	r := filled(t, synced, pods)
	r.seesPool()
	r.goesWrong(blindFor("warmpools"))
	r.ns.DeletePool(poolName, metav1.DeletePropagationForeground)
	r.waitFor("the Pods to be gone", func(w *history.World) bool { return len(w.Pods) == 0 })
	r.sendsNothing(held, creations, "the pool is being deleted, unseen")
	if r.metric(`warmpool_conflicts_total{write="create pods of pool"}`) == 0 {
		t.Error("nobody has asked the API server for the pool before creating Pods")
	}
	r.wantMade(pods)
	r.end(history.Terms{})
}

// B24, the other half: the controller is started while a pool is being deleted, and its
// Pods go one after the other.
func TestTheControllerStartsWhileAPoolIsBeingDeleted(t *testing.T) {
	const pods = 3
	r := filled(t, synced, pods)
	r.stop(r.current())
	r.current().replaced = true
	last := r.idle()[0].Name
	r.patchPod(last, `{"metadata": {"finalizers": ["example.com/wait"]}}`)
	r.ns.DeletePool(poolName, metav1.DeletePropagationForeground)
	r.launch().controller.WaitReady()
	r.waitFor("the other Pods to be gone", func(w *history.World) bool { return len(w.Pods) == 1 })
	r.sendsNothing(held, podWrites, "the pool is being deleted")
	r.patchPod(last, `{"metadata": {"finalizers": null}}`)
	r.waitFor("the pool to be gone", func(w *history.World) bool { return len(w.Pods)+len(w.Pools) == 0 })
	r.wantMade(pods)
	r.end(history.Terms{})
}
