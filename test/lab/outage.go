package lab

// The stories in which something is broken: a right, a connection, a process, a pool.

import (
	"fmt"
	"strings"
	"time"

	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

const (
	// syncTimeout is how long the controller waits for its caches where a story needs it
	// to give up.
	syncTimeout = 5 * time.Second
	// blindAfterTakeOver is how long a standby is blind after it has the lease.
	blindAfterTakeOver = 2 * time.Second
	// restartPools is how many pools are to be filled after a restart.
	restartPools = 60
)

// The controller starts, and may not list Pods.
func podsForbidden(s *telling) {
	s.flags = append(s.flags, "--cache-sync-timeout="+syncTimeout.String())
	s.asOfNow()
	p := s.launch(faultproxy.Rule{
		Match: faultproxy.Match{Verb: faultproxy.Reads, Resource: "pods"},
		Do:    faultproxy.Refuse(faultproxy.Forbidden()),
	})
	s.ns.CreatePool(environment.Pool(poolName, 1))
	for time.Since(s.from) < patience && !p.controller.Ended() {
		s.lasts(100 * time.Millisecond)
	}
	s.over, s.took = true, time.Since(s.from)
	if s.stuck = !p.controller.Ended(); s.stuck {
		s.outcome = "hangs"
		return
	}
	code := p.controller.WaitForEnd()
	if strings.Contains(p.controller.Log(), "pods: forbidden") {
		s.outcome = fmt.Sprintf("ends with exit code %d and says which right is missing", code)
	} else {
		s.outcome = fmt.Sprintf("ends with exit code %d and doesn't say why", code)
	}
}

// The controller starts beside a pool that is filled, and its list of Pods comes late.
func podsListedLate(s *telling) {
	before := s.launch()
	s.filled(3)
	before.controller.Kill()
	here := make(chan struct{})
	p := s.launch(faultproxy.Rule{
		Match: faultproxy.Match{Verb: faultproxy.Reads, Resource: "pods", Where: func(r *faultproxy.Request) bool { return r.Name == "" }},
		Do:    faultproxy.Before(func(*faultproxy.Exchange) { <-here }),
	})
	s.hears(p, "warmpools", "0")
	s.lasts(2 * time.Second)
	s.asOfNow()
	close(here)
}

// The connection of a watch dies without a word. What is written goes over another.
func watchConnectionDies(s *telling) {
	p := s.start()
	s.filled(2)
	p.proxy.BlackHole(faultproxy.Match{Verb: "watch", Resource: "pods"})
	s.until = isBound("a")
	s.asOfNow()
	s.ns.CreateClaim(environment.Claim("a", poolName))
}

// A controller that was down has a lot to do, and somebody waits.
func claimAfterRestart(s *telling) {
	for n := range restartPools {
		s.ns.CreatePool(environment.Pool(fmt.Sprintf("other-%03d", n), 1))
	}
	s.ns.CreatePool(environment.Pool(poolName, 0))
	s.ns.CreateClaim(environment.Claim("a", poolName))
	s.flags = append(s.flags, "--workers=1")
	s.until = isBound("a")
	s.asOfNow()
	s.launch(faultproxy.Rule{
		Match: faultproxy.Match{Verb: faultproxy.Writes, Where: history.IsGuarded},
		Do:    faultproxy.LagAnswer(20 * time.Millisecond),
	})
}

// There is a pool on which every reconcile panics, and another one is to grow.
func brokenPool(s *telling) {
	p := s.start()
	s.filled(2)
	s.ns.CreatePool(environment.Pool("broken", 1))
	s.lasts(pause)
	s.until = func(w *history.World) bool {
		pool := w.PoolNamed(s.ns.Name, poolName)
		return pool != nil && pool.Status.ReadyReplicas == 4
	}
	s.asOfNow()
	s.patchPool(`{"spec": {"replicas": 4}}`)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	<-timer.C
	if p.controller.Ended() {
		s.outcome = "the process ends, with all other pools"
	}
}
