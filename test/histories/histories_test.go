package histories

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/pool"
)

func TestMain(m *testing.M) {
	// What the command line says still wins.
	for name, value := range map[string]string{"rapid.checks": "500", "rapid.steps": "60"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// TestRandomHistoriesKeepTheInvariants is the one property: whatever happens, in
// whatever order, the invariants hold, and when it is over the world comes to rest.
func TestRandomHistoriesKeepTheInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newServer()
		s.poolIsCreated(t)
		t.Repeat(s.steps())
		s.settle(t)
		reached("history")
	})
	reach.check(t)
}

// steps are what a history is made of: events, and the controller's turns.
func (s *server) steps() map[string]func(*rapid.T) {
	steps := map[string]func(*rapid.T){"": s.checkJudge}
	for name, event := range s.events() {
		steps[name] = func(t *rapid.T) {
			if !event(t) {
				t.Skip("there is nothing that it could happen to")
			}
		}
	}
	// More than once, so that the controller has its turn as often as the events.
	for i := range 3 {
		steps[fmt.Sprintf("the controller plans on the present (%d)", i+1)] = func(t *rapid.T) {
			s.reconcileFresh(t, noFaults)
		}
		steps[fmt.Sprintf("the controller plans on the past (%d)", i+1)] = s.reconcileStale
	}
	steps["the controller plans on the present, and its writes fail"] = func(t *rapid.T) {
		s.reconcileFresh(t, func(string) fault { return drawFault(t) })
	}
	// What follows then looks like two leaders, or like a crash between the two writes
	// of a hand-out: the Pod has its claim, and the claim doesn't know.
	steps["the controller plans on the present, and can't write to claims"] = func(t *rapid.T) {
		s.reconcileFresh(t, func(what string) fault {
			if what == "claim status" {
				return unavailable
			}
			return noFault
		})
	}
	steps["a deposed leader hands a Pod out"] = func(t *rapid.T) {
		if !s.handOutBlindly(t) {
			t.Skip("there is no Pod or no claim")
		}
	}
	steps["everything comes to rest"] = func(t *rapid.T) {
		if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
			t.Skip("not now")
		}
		s.settle(t)
		s.policy = true
	}
	return steps
}

func drawFault(t *rapid.T) fault {
	return rapid.SampledFrom([]fault{noFault, noFault, noFault, unavailable, conflicting, answerLost}).Draw(t, "fault")
}

// reconcileStale plans on caches that are some writes behind, each by its own number,
// and lets the world move between the writes. Only the server's conditions stand
// between such a plan and damage, and they must hold I1 and I4.
func (s *server) reconcileStale(t *rapid.T) {
	past := func(of string) view {
		behind := rapid.IntRange(0, len(s.past)-1).Draw(t, "writes that the cache of "+of+" is behind")
		return s.past[len(s.past)-1-behind]
	}
	r := s.newReconcile(t, view{pools: past("pools").pools, claims: past("claims").claims, pods: past("Pods").pods})
	r.fault = func(string) fault { return drawFault(t) }
	r.before = func() {
		if rapid.IntRange(0, 3).Draw(t, "something happens meanwhile") == 0 {
			s.anEvent(t)
		}
	}
	r.planAndCarryOut(func() {})
	reached("plan on the past")
}

// handOutBlindly hands any Pod of the pool out to any claim, as a leader might whose
// caches know nothing of what its successor did. It may live to tell the claim, or not.
func (s *server) handOutBlindly(t *rapid.T) bool {
	p := s.pools[poolName]
	if p == nil || len(s.idle(p)) == 0 || len(s.claims) == 0 {
		return false
	}
	pod, claim := one(t, s.idle(p)), one(t, sorted(s.claims))
	patch, err := pool.HandOutPatch(pod, claim)
	if err != nil {
		return false
	}
	pod, err = s.patchPod(pod.Name, patch)
	if err != nil || isFinished(claim) || rapid.Bool().Draw(t, "dies before it tells the claim") {
		return true
	}
	told := claim.DeepCopy()
	told.Status = pool.BoundStatus(claim, pod, nil, s.now)
	told.Status.Pod = &v1alpha1.PodReference{Name: pod.Name, UID: pod.UID} // the server allows it once
	_, err = s.updateClaimStatus(told)
	reached("a deposed leader tells a claim of its Pod: " + class(err))
	return true
}

func namesOf[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// reach counts what the histories came to, since a test that never gets where it hurts
// proves nothing.
var reach = &reachCounter{counts: map[string]int{}}

type reachCounter struct {
	mu     sync.Mutex
	counts map[string]int
	rounds int
}

func reached(what string) {
	reach.mu.Lock()
	defer reach.mu.Unlock()
	reach.counts[what]++
}

func reachedRounds(n int) {
	reach.mu.Lock()
	defer reach.mu.Unlock()
	reach.rounds = max(reach.rounds, n)
}

// mustReach is what five hundred histories can't miss.
var mustReach = []string{
	"history", "rest", "plan on the present", "plan on the past", "hand-out",
	"hand out: done", "hand out: " + errConflict.Error(), "hand out: refused", "answer lost: hand out",
	"claim status: done", "claim status: " + errConflict.Error(), "claim status: " + errNotFound.Error(), "answer lost: claim status",
	"delete Pod: done", "delete Pod: " + errConflict.Error(), "answer lost: delete Pod",
	"create Pod: done", "create Pod: refused", "answer lost: create Pod",
	"a claim's second Pod goes", "a deposed leader tells a claim of its Pod: " + errWriteOnce.Error(),
	"a Pod that was said to be gone is there",
	"claim finished: PodLost", "claim finished: TimedOut", "claim finished: PodSucceeded", "claim finished: PodFailed",
	"claim finished: Expired", "a claim is deleted whose time is over",
	"a Pod of rank 1 is deleted", "a Pod of rank 2 is deleted", "a Pod of rank 3 is deleted", "ready Pods are deleted", "a surge",
	"a claim waits in the end: PoolNotFound", "a claim waits in the end: PoolExhausted", "a claim waits in the end: AtCapacity", "a claim waits in the end: HandOutRefused",
}

func (r *reachCounter) check(t *testing.T) {
	t.Helper()
	var lines []string
	for _, what := range namesOf(r.counts) {
		lines = append(lines, fmt.Sprintf("%8d  %s", r.counts[what], what))
	}
	t.Logf("reached, how often:\n%s\nat most %d rounds to come to rest", strings.Join(lines, "\n"), r.rounds)
	if t.Failed() || r.counts["history"] < 500 {
		return
	}
	for _, what := range mustReach {
		if r.counts[what] == 0 {
			t.Errorf("%d histories never reached this: %s", r.counts["history"], what)
		}
	}
}
