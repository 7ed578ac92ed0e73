package histories

// What must hold when the faults are over and everybody had the time to do his part.

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/pool"
)

// maxRounds is how many rounds of kubelet, garbage collector and controller the world
// may take to come to rest.
const maxRounds = 60

// settle ends the faults, first all but the admission policy, and judges the rest.
func (s *server) settle(t *rapid.T) {
	s.quota, s.nodes = false, goodNodes()
	s.keepForEver() // or it would never be at rest
	s.untilQuiet(t)
	s.checkOwners(t)
	s.checkClaims(t)
	s.policy = false
	s.untilQuiet(t)
	s.checkOwners(t)
	s.checkClaims(t)
	s.checkReplaced(t)
	s.checkPool(t)
	s.checkQuiet(t)
}

// keepForEver has the pool keep its Pods however old they are.
func (s *server) keepForEver() {
	if p := s.pools[poolName]; p != nil && p.Spec.MaxIdleSeconds > 0 {
		p = p.DeepCopy()
		p.Spec.MaxIdleSeconds = 0
		p.Generation++
		s.putPool(p)
	}
}

// untilQuiet runs rounds until one changes nothing and no time is due.
func (s *server) untilQuiet(t *rapid.T) {
	var last *reconcile
	for round := range maxRounds {
		version := s.version
		s.startPods()
		s.collectGarbage()
		last = s.reconcileFresh(t, noFaults)
		s.checkJudge(t)
		switch {
		case s.version > version:
		case last.actions.RequeueAfter > 0:
			s.now = s.now.Add(last.actions.RequeueAfter)
		default:
			reachedRounds(round + 1)
			return
		}
	}
	t.Fatalf("I6: not at rest after %d rounds; the last plan is %q", maxRounds, describe(last.actions))
}

// checkOwners judges I5 and I2: a Pod belongs to a living pool, or to the living claim
// whose status names it.
func (s *server) checkOwners(t *rapid.T) {
	for _, pod := range s.pods {
		owner := controllerOf(pod)
		claim := s.claimByUID(owner.UID)
		p := s.pools[poolName]
		switch {
		case p != nil && p.UID == owner.UID:
		case claim == nil:
			t.Fatalf("I5: the owner of Pod %s, %s %s, is gone", pod.Name, owner.Kind, owner.Name)
		case claim.Status.Pod == nil || claim.Status.Pod.UID != pod.UID:
			t.Fatalf("I2: claim %s has Pod %s, and its status says %+v", claim.Name, pod.Name, claim.Status.Pod)
		}
	}
}

// checkClaims judges I6 and I14: each claim has its Pod, is finished, or says why not.
func (s *server) checkClaims(t *rapid.T) {
	p := s.pools[poolName]
	for _, claim := range sorted(s.claims) {
		bound := conditionOf(claim.Status.Conditions, v1alpha1.ClaimBound)
		switch {
		case isFinished(claim):
		case claim.Status.Pod != nil:
			pod := s.podByUID(claim.Status.Pod.UID)
			if pod == nil || hasEnded(pod) || bound.Status != "True" || claim.Status.NodeName == "" || len(claim.Status.PodIPs) == 0 {
				t.Fatalf("I6: claim %s says %+v, and its Pod is %+v", claim.Name, claim.Status, pod)
			}
			ready := conditionOf(claim.Status.Conditions, v1alpha1.ClaimReady)
			if (ready.Status == "True") != isReady(pod) {
				t.Fatalf("I14: claim %s says %+v, and its Pod is %+v", claim.Name, ready, pod.Status)
			}
		default:
			want := s.whyNot(p, claim)
			if bound.Status != "False" || bound.Reason != want {
				t.Fatalf("I6: claim %s waits and says %s, want %s", claim.Name, bound.Reason, want)
			}
			reached("a claim waits in the end: " + want)
		}
	}
}

// whyNot is the reason for which a claim may still be waiting, or "" if there is none.
func (s *server) whyNot(p *v1alpha1.WarmPool, claim *v1alpha1.PodClaim) string {
	if !active(p) {
		return v1alpha1.ReasonPoolNotFound
	}
	all, claimed := population(s.snapshot().Pods, p)
	switch {
	case handOutRefused(claim) && asksForForbidden(claim) && (s.policy || len(s.serving(p)) == 0):
		return v1alpha1.ReasonHandOutRefused // and without a Pod there was no other attempt
	case len(s.serving(p)) > 0:
		return "" // it could have one of those
	case p.Spec.Paused:
		return v1alpha1.ReasonPoolExhausted
	case p.Spec.MaxSize > 0 && (all >= int(p.Spec.MaxSize) || claimed >= int(p.Spec.MaxSize)):
		return v1alpha1.ReasonAtCapacity
	default:
		return ""
	}
}

// checkPool judges I6: the pool has the Pods that it is to have, and they are ready.
func (s *server) checkPool(t *rapid.T) {
	p := s.pools[poolName]
	if !active(p) || p.Spec.Paused {
		return
	}
	want := int(*p.Spec.Replicas) + len(s.waiting())
	most := want + shareOf(p.Spec.Tolerance, "0%", *p.Spec.Replicas, true)
	if _, claimed := population(s.snapshot().Pods, p); p.Spec.MaxSize > 0 {
		allowed := max(int(p.Spec.MaxSize)-claimed, 0)
		want, most = min(want, allowed), min(most, allowed)
	}
	if idle, serving := len(s.idle(p)), len(s.serving(p)); idle < want || idle > most || serving != idle {
		t.Fatalf("I6: the pool has %d idle Pods, %d of them ready, want %d to %d", idle, serving, want, most)
	}
	for kind, want := range map[string]bool{
		v1alpha1.PoolAvailable:      want >= int(*p.Spec.Replicas),
		v1alpha1.PoolReplicaFailure: false,
		v1alpha1.PoolProgressing:    true,
	} {
		if c := conditionOf(p.Status.Conditions, kind); (c.Status == "True") != want {
			t.Fatalf("I14: condition %s of the pool, want %t: %+v", kind, want, c)
		}
	}
}

// checkReplaced judges I6: no Pod is left that was to be replaced. It can't be asked while
// claims wait that are refused every Pod: so many are always about to be handed out.
func (s *server) checkReplaced(t *rapid.T) {
	p := s.pools[poolName]
	if !active(p) || p.Spec.Paused {
		return
	}
	for _, pod := range s.idle(p) {
		if s.rank(p, pod) > 0 {
			t.Fatalf("I6: Pod %s was to be replaced (rank %d), and is there", pod.Name, s.rank(p, pod))
		}
	}
}

// checkQuiet judges I7: nothing is planned any more, now or later, and the status stays.
func (s *server) checkQuiet(t *rapid.T) {
	for _, later := range []time.Duration{0, time.Millisecond, time.Hour, 365 * 24 * time.Hour} {
		now := s.now.Add(later)
		snapshot := s.snapshotOf(s.view)
		actions := pool.Plan(snapshot, now)
		if n := len(actions.HandOuts) + len(actions.ClaimStatuses) + len(actions.ExpiredClaims) + len(actions.Deletions) + actions.Creations; n > 0 || actions.RequeueAfter > 0 {
			t.Fatalf("I7: at rest, %s later, the plan is %q, again in %s", later, describe(actions), actions.RequeueAfter)
		}
		if snapshot.Pool == nil {
			continue
		}
		if status, change := pool.Status(snapshot, actions, pool.Outcome{}, now); change != pool.Unchanged {
			t.Fatalf("I7: at rest, %s later, the status changes:\n from %+v\n   to %+v", later, snapshot.Pool.Status, status)
		}
	}
	reached("rest")
}

// checkJudge fails with what the judge has found.
func (s *server) checkJudge(t *rapid.T) {
	if len(s.judge.violations) > 0 {
		t.Fatalf("%q", slices.Clone(s.judge.violations))
	}
}
