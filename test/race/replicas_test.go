package race

// Two replicas, of which one leads, or believes so.

import (
	"strings"
	"testing"
	"time"

	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

const replicas = "scenario: replicas"

// leaseDuration is what electionFlags say.
const leaseDuration = 4 * time.Second

// leases chooses all requests that are about the lease.
var leases = faultproxy.Match{Resource: "leases"}

// fillByLeader launches two replicas and has the first fill a pool.
func (r *run) fillByLeader(pods int32) (leader, standby *process) {
	r.t.Helper()
	leader, standby = r.launchPair()
	r.ns.CreatePool(environment.Pool(poolName, pods))
	r.settle()
	r.rest()
	return leader, standby
}

// goesWrongAt makes a rule go wrong in one process only.
func (r *run) goesWrongAt(p *process, rule faultproxy.Rule) *mishap {
	m := &mishap{rule: rule, until: allIsOver}
	m.faults = append(m.faults, p.proxy.Add(rule))
	r.trouble = append(r.trouble, m)
	return m
}

// B47: a replica that had lost the lease was held up in its shutdown by something that
// hung, its other parts worked on, and the same address range was given out twice. Here the
// leader's requests for the lease hang and so do its hand-outs, which happen when the
// standby has led for a while and has served the claims itself. The leader is gone by then,
// and its hand-outs are refused.
func TestTheLeaderIsDeposedWithHandOutsUnderWay(t *testing.T) {
	t.Parallel()
	r := newElection(t, replicas)
	leader, standby := r.fillByLeader(2)
	late := r.goesWrongAt(leader, faultproxy.Rule{Match: handOuts, Do: faultproxy.LateCommit(faultproxy.Hang())})
	r.goesWrongAt(leader, faultproxy.Rule{Match: leases, Do: faultproxy.Refuse(faultproxy.Hang())})
	r.createClaims("a", "b")
	r.waitFired(late, 1)
	if code := leader.controller.WaitForEnd(); code != 1 || !strings.Contains(leader.controller.Log(), "lost the lease") {
		t.Errorf("the leader ended with exit code %d, and not because it had lost the lease", code)
	}
	leader.replaced = true
	standby.controller.WaitLeading()
	r.settle()
	late.release()
	r.heal()
	for _, q := range leader.proxy.Log().Select(handOuts) {
		if !conflicted(&q) {
			t.Errorf("the deposed leader's hand-out of %s was answered %d, want it to be refused", q.Name, q.Code)
		}
	}
	r.wantFired("fence", "passed")
	r.end(history.Terms{})
}

// B50: the lease was given up when the leader was told to end, and not when its work had
// ended, so that two worked at once. Here it is told so with a hand-out under way whose
// answer doesn't come: the lease is given up when that is over, and not left to expire.
func TestTheLeaderIsStoppedWithAHandOutUnderWay(t *testing.T) {
	t.Parallel()
	r := newElection(t, replicas)
	leader, standby := r.fillByLeader(2)
	hangs := r.goesWrongAt(leader, faultproxy.Rule{Match: handOuts, Times: 1, Do: faultproxy.HoldAnswer()})
	r.createClaims("a")
	r.waitFired(hangs, 1)
	r.stop(leader)
	leader.replaced = true
	stopped := time.Now()
	standby.controller.WaitLeading()
	if took := time.Since(stopped); took > leaseDuration-time.Second {
		t.Errorf("the standby led %s after the leader's end, as if the lease hadn't been given up", took)
	}
	log := leader.proxy.Log()
	renewals, hung := log.Select(leases), log.Select(handOuts)[0]
	release := renewals[len(renewals)-1]
	// The time is the controller's from when it has sent it, and the proxy's from when it
	// has read it.
	if d := release.Arrived.Sub(hung.Arrived); d < writeTimeout/2 {
		t.Errorf("the lease was given up %s after the hand-out was sent, which could take %s", d, writeTimeout)
	}
	for _, q := range log.Select(guarded) {
		if q.Arrived.After(release.Arrived) {
			t.Errorf("%s %s was sent after the lease was given up", q.Verb, q.Resource)
		}
	}
	r.settle()
	r.want(handOuts, 1, 1)
	r.end(history.Terms{})
}

// B51: what happened between two leaders was done by neither, until a resync minutes later:
// the standby had been told and had let it pass. Here claims come and Pods are lost while
// nobody leads.
func TestTheWorldMovesWhileNobodyLeads(t *testing.T) {
	t.Parallel()
	r := newElection(t, replicas)
	leader, standby := r.fillByLeader(3)
	r.createClaims("a", "b")
	r.settle()
	r.crash(leader)
	r.createClaims("c", "d", "e", "f", "g")
	r.losePodOf("a")
	r.loseIdlePod()
	standby.controller.WaitLeading()
	r.settleSoon()
	r.ns.WaitBound("b", "c", "d", "e", "f", "g")
	r.ns.WaitCondition("a", "Finished", "True", "PodLost")
	r.wantFired("fence", "passed")
	r.end(history.Terms{})
}

// B52: a replica that had lost the lease once never tried again, and in the end none led.
// Here one after the other loses it; each ends, as a process that its Deployment starts
// anew, and there is a leader each time.
func TestOneAfterTheOtherLosesTheLease(t *testing.T) {
	t.Parallel()
	const losses = 3
	r := newElection(t, replicas)
	r.fillByLeader(3)
	for n := range losses {
		leader := r.processes[n]
		leader.controller.WaitLeading()
		r.loseLease(leader)
		r.trouble[len(r.trouble)-1].release()
		r.launch()
		begun := time.Now()
		r.processes[n+1].controller.WaitLeading()
		if took := time.Since(begun); took > soon {
			t.Errorf("nobody led for %s", took)
		}
		r.settle()
	}
	r.end(history.Terms{})
}
