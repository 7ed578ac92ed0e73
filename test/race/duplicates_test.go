package race

// A copy that is a little old, and a controller that counts on it: it makes again what it
// has made already.

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"warmpool.dev/controller/pkg/freshness"
	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

const duplicates = "scenario: duplicates"

// B01: a cluster's head counted its workers in a cache that didn't hold the last ones yet,
// made too many and then deleted some. Here the pool is looked at ten times before the
// events of its first Pods come, and again when it is made smaller.
func TestAPoolIsLookedAtAgainBeforeTheEventsOfItsPods(t *testing.T) {
	r := scenario(t, duplicates, patient)
	blind := r.goesWrong(blindFor("pods"))
	r.ns.CreatePool(environment.Pool(poolName, 5))
	r.waitSent(5, creations, (*faultproxy.Request).Committed)
	r.wake(10)
	r.want(creations, 5, 5)
	r.wantFired("backlog", "parked_behind")
	blind.release()
	r.settleSoon()

	blind = r.goesWrong(blindFor("pods"))
	r.ns.PatchPool(poolName, `{"spec": {"replicas": 3}}`)
	r.waitSent(2, deletions, (*faultproxy.Request).Committed)
	r.wake(10)
	blind.release()
	r.settleSoon()
	r.want(creations, 5, 5)
	r.want(deletions, 2, 2)
	r.end(history.Terms{})
}

// B02: a second reconcile, woken by the object's own status, ran before the cache held
// what the first one had made, under a name that the API server chose. Here the pool's own
// status wakes another worker.
func TestThePoolsOwnStatusWakesAWorkerBeforeThePodsEvent(t *testing.T) {
	r := scenario(t, duplicates, "--workers=2", patient)
	blind := r.goesWrong(blindFor("pods"))
	r.ns.CreatePool(environment.Pool(poolName, 1))
	status := r.waitSent(1, poolStatuses, (*faultproxy.Request).Committed)[0]
	r.waitDelivered(func(d faultproxy.Delivery) bool {
		return d.Resource == history.WarmPools && d.ResourceVersion == status.AnswerRV
	})
	r.waitForGuard("backlog", "parked_behind")
	r.want(creations, 1, 1)
	blind.release()
	r.settleSoon()
	r.want(creations, 1, 1)
	r.end(history.Terms{})
}

// B03: a controller waited for its cache for a while, gave up with an error, and its retry
// made the thing again. Here the events don't come until the guards have given up one by
// one to wait for the watch and have asked for a new list, which doesn't come either, and
// all the while the writes of the pool's status fail.
func TestTheWaitForTheCacheIsGivenUp(t *testing.T) {
	r := scenario(t, duplicates, quick)
	blind, unlisted := r.goesWrong(blindFor("pods")), r.goesWrong(unlisted("pods"))
	r.goesWrong(faultproxy.Rule{Match: poolStatuses, Do: faultproxy.Refuse(faultproxy.InternalError())})
	r.ns.CreatePool(environment.Pool(poolName, 3))
	r.waitSent(3, creations, (*faultproxy.Request).Committed)
	r.waitForGuard("validator", "relist")
	r.waitFired(unlisted, 1)
	r.wake(3)
	r.want(creations, 3, 3)
	blind.release()
	unlisted.release()
	r.heal()
	r.settle()
	r.want(creations, 3, 3)
	r.end(history.Terms{})
}

// B04: six machines for one, since names were random and the cache late. Whoever mends
// that with a memory in the process must not lose it. Here no event of a Pod ever comes,
// after the lists: not to the first process, not to the next one after a crash, and not to
// a standby that takes over.
func TestNoEventOfAPodComesInThreeProcesses(t *testing.T) {
	t.Parallel()
	const touches = 5
	r := newElection(t, duplicates)
	// Not so short that a busy machine loses the lease.
	r.flags = append(r.flags, "--leader-elect-lease-duration=12s", "--leader-elect-renew-deadline=9s", quick)
	r.trouble = trouble{{rule: blindAfterListing("pods"), until: allIsOver}}
	first := r.launch()
	first.controller.WaitLeading()
	r.ns.CreatePool(environment.Pool(poolName, 3))
	r.waitSent(3, creations, (*faultproxy.Request).Committed)
	r.wake(touches)
	r.wantFired("backlog", "parked_behind")
	r.crash(first)

	second := r.launch()
	second.controller.WaitLeading()
	r.wake(touches)
	r.want(creations, 3, 3)

	// Made before the takeover, and not seen by the standby.
	r.launch().controller.WaitReady()
	r.ns.PatchPool(poolName, `{"spec": {"replicas": 4}}`)
	ctx, cancel := r.within(settleTimeout)
	defer cancel()
	if _, err := second.proxy.WaitRequests(ctx, 1, creations, (*faultproxy.Request).Committed); err != nil {
		r.fatal("%v", err)
	}
	r.stop(second)
	second.replaced = true
	r.current().controller.WaitLeading()
	r.wake(touches)
	r.want(creations, 4, 4)
	r.wantFired("fence", "relist")
	r.end(history.Terms{})
}

// crash ends a process, which isn't replaced by itself.
func (r *run) crash(p *process) {
	r.t.Helper()
	tally.noteFirings(p.controller.Metrics())
	p.kill()
	p.replaced = true
}

// B06: a Job's status and its Pods are two copies that lag apart, and what was decided on
// both counted a Pod twice or made a second one. Here the write that binds a claim isn't
// seen in one of the copies while the other goes on to show that the Pod is lost.
func TestTwoWatchesAreOutOfStep(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]faultproxy.Match{
		"the claim comes late": {Verb: "watch", Resource: "podclaims", Event: "MODIFIED"},
		"the Pod comes late":   {Verb: "watch", Resource: "pods", Labels: map[string]string{"warmpool.dev/state": "claimed"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := filled(t, duplicates, 2, patient)
			blind := r.goesWrong(faultproxy.Rule{Match: late, Do: faultproxy.HoldStream()})
			r.createClaims("a")
			r.ns.WaitBound("a")
			r.waitFired(blind, 1)
			r.losePodOf("a")
			r.wake(3)
			r.want(handOuts, 1, 1)
			r.wantFired("backlog", "parked_behind")
			blind.release()
			r.settleSoon()
			r.ns.WaitCondition("a", "Finished", "True", "PodLost")
			r.want(handOuts, 1, 1)
			r.want(creations, 3, 3)
			r.end(history.Terms{})
		})
	}
}

// B07: two Pods for one run since the answer to the creation came late; and when names
// were fixed, "already exists" was taken for a failure although the Pod was one's own.
// Here the answer comes after the controller has given up, or never, and the client
// library sends the creation again by itself.
func TestAPodExistsBeforeItsCreationIsAnswered(t *testing.T) {
	t.Parallel()
	t.Run("the answer is late", func(t *testing.T) {
		r := scenario(t, duplicates, quick)
		r.goesWrong(faultproxy.Rule{Match: creations, Times: 1, Do: faultproxy.LagAnswer(3 * writeTimeout)})
		r.ns.CreatePool(environment.Pool(poolName, 2))
		r.waitSent(1, creations, (*faultproxy.Request).Committed)
		r.ns.PatchPool(poolName, `{"metadata": {"annotations": {"example.com/touched": "yes"}}}`)
		r.settleSoon()
		r.wantFired("ledger", "settled_by_cache")
		r.want(creations, 2, 2)
		r.end(history.Terms{})
	})
	t.Run("the client tries again by itself", func(t *testing.T) {
		r := scenario(t, duplicates, patient)
		r.goesWrong(faultproxy.Rule{Match: creations, Times: 1, Do: faultproxy.Do("LoseAnswer(try again)", tryAgain)})
		r.ns.CreatePool(environment.Pool(poolName, 2))
		r.settleSoon()
		r.wantFired("ledger", "silent_retry_seen")
		r.wantFired("ledger", "refusal_after_lost_answer")
		r.want(creations, 3, 2)
		taken := r.waitSent(1, creations, func(q *faultproxy.Request) bool { return q.Code == http.StatusConflict })
		if len(taken) != 1 {
			t.Errorf("%d creations met a name that was taken, want one", len(taken))
		}
		r.end(history.Terms{})
	})
}

// tryAgain lets a request happen, and answers as a load balancer does that has lost its
// server.
func tryAgain(_ *faultproxy.Exchange, forward func() *faultproxy.Answer) *faultproxy.Answer {
	forward()
	return &faultproxy.Answer{Code: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"1"}}}
}

// B08: a crash between making a thing and noting its name left the thing to nobody, and
// another was made. Here the controller dies right after a creation, again and again, and
// each successor finds what the others have made by its owner.
func TestTheControllerDiesAfterEachCreation(t *testing.T) {
	t.Parallel()
	const pods = 6
	r := newRun(t, env, duplicates)
	r.flags = append(r.flags, patient)
	r.trouble = trouble{{until: allIsOver, rule: faultproxy.Rule{
		Match: creations,
		Times: 1,
		Do:    faultproxy.After(func(x *faultproxy.Exchange, _ *faultproxy.Answer) { r.sender(x).kill() }),
	}}}
	r.launch()
	r.ns.CreatePool(environment.Pool(poolName, pods))
	r.settle()
	r.want(creations, pods, pods)
	if deaths := len(r.processes) - 1; deaths != pods {
		t.Errorf("the controller has died %d times, want %d", deaths, pods)
	}
	r.end(history.Terms{})
}

// B10: a fixed wait after each creation was shorter than the cache's lag at times. Here
// the lag is longer than all the times that the guards have: no watch, no list mends it,
// the process says that it isn't ready and in the end gives up (2 min, twice
// freshness.DefaultGiveUpAfter). Nobody has made anything twice meanwhile.
func TestTheCacheLagsLongerThanEveryTimeout(t *testing.T) {
	r := scenario(t, duplicates, patient)
	r.mayEnd = true
	blind, unlisted := r.goesWrong(blindFor("pods")), r.goesWrong(unlisted("pods"))
	r.ns.CreatePool(environment.Pool(poolName, 3))
	r.waitSent(3, creations, (*faultproxy.Request).Committed)
	created := func() error {
		if sent, _ := r.count(creations); sent != 3 {
			return fmt.Errorf("%d Pods were created, want 3", sent)
		}
		return nil
	}
	environment.For(t, freshness.DefaultGiveUpAfter, "while the cache lags", created)
	r.ns.Eventually("the controller not to be ready", func() error {
		if state, err := r.current().controller.State(); err == nil {
			return fmt.Errorf("it is %s", state)
		}
		return nil
	})
	r.ns.Eventually("the controller to give up", func() error {
		if !r.current().controller.Ended() {
			return errors.New("it runs")
		}
		return nil
	})
	r.want(creations, 3, 3)
	blind.release()
	unlisted.release()
	r.settle()
	r.want(creations, 3, 3)
	r.end(history.Terms{})
}

// B11: names were cut to fit and were the same then, so that one of two never got what
// the other had. Here the names of pools and of claims are the same up to where they are
// cut, and one has a dot there.
func TestNamesAreTheSameUpToWhereTheyAreCut(t *testing.T) {
	r := scenario(t, duplicates, patient)
	same := strings.Repeat("a", 53)
	pools := []string{same + "-one", same + ".two", same + "aaaaaaa3", same + "aaaaaaa4"}
	for _, name := range pools {
		r.ns.CreatePool(environment.Pool(name, 2))
	}
	for i, name := range pools {
		r.ns.CreateClaim(environment.Claim(fmt.Sprintf("%saaaaaaa%d", same, i), name))
	}
	r.settleSoon()
	for name, claim := range r.ns.Claims() {
		pod := r.ns.Pods()[claim.Status.Pod.UID]
		if pod == nil || pod.Labels["warmpool.dev/pool"] != claim.Spec.PoolName {
			t.Errorf("claim %s on pool %s has Pod %v", name, claim.Spec.PoolName, pod)
		}
	}
	r.want(creations, 12, 12)
	r.want(handOuts, 4, 4)
	r.end(history.Terms{})
}
