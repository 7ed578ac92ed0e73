package lab

// The stories in which two replicas run.

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"

	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

// electionFlags make the lease as short as the flags allow for with writes of a second.
var electionFlags = []string{
	"--leader-elect",
	"--leader-elect-lease-duration=4s",
	"--leader-elect-renew-deadline=3s",
	"--leader-elect-retry-period=250ms",
}

// leaseName is the lease that they take.
const leaseName = "warmpool-controller"

// elect makes the controllers of the telling elect a leader, and launches a leader and a
// standby.
func (s *telling) elect(flags ...string) (leader, standby *process) {
	s.t.Helper()
	s.ns.GrantLease()
	s.flags = slices.Concat(s.flags, electionFlags, flags, []string{"--leader-elect-namespace=" + s.ns.Name})
	leader = s.launch()
	leader.controller.WaitLeading()
	standby = s.launch()
	standby.controller.WaitReady()
	return leader, standby
}

// holder is who has the lease.
func holder(w *history.World) string {
	for _, lease := range w.Leases {
		return ptr.Deref(lease.Spec.HolderIdentity, "")
	}
	return ""
}

// succeeded waits until another has the lease.
func (s *telling) succeeded(before string) {
	s.t.Helper()
	s.world("another leader", func(w *history.World) bool { return holder(w) != "" && holder(w) != before })
}

// leaseholder is who has the lease now.
func (s *telling) leaseholder() (identity string) {
	s.t.Helper()
	s.world("a leader", func(w *history.World) bool {
		identity = holder(w)
		return identity != ""
	})
	return identity
}

// The standby hasn't seen its predecessor's last work when it takes over.
func blindStandby(s *telling) {
	leader, standby := s.elect()
	s.filled(2)
	held := standby.proxy.Add(blindFor("pods"))
	s.patchPool(`{"spec": {"replicas": 6}}`)
	s.settle()
	before := s.leaseholder()
	leader.controller.Kill()
	s.succeeded(before)
	s.lasts(blindAfterTakeOver)
	s.asOfNow()
	held.Release()
}

// Somebody gives the lease to the standby, as by kubectl edit. The leader doesn't give up
// before its renewals have failed for ten seconds.
func leaseTaken(s *telling) {
	_, standby := s.elect("--leader-elect-lease-duration=15s", "--leader-elect-renew-deadline=10s")
	s.filled(2)
	before := s.leaseholder()
	patch := fmt.Sprintf(`{"spec": {"holderIdentity": %q}}`, standby.identity(s.t))
	leases := s.env.Kube.CoordinationV1().Leases(s.ns.Name)
	if _, err := leases.Patch(s.t.Context(), leaseName, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.succeeded(before)
	standby.controller.WaitLeading()
	s.lasts(pause) // the leader has tried to renew
	s.asOfNow()
	s.patchPool(`{"spec": {"replicas": 10}}`)
}

// identityInLog finds the name under which a controller is a candidate.
var identityInLog = regexp.MustCompile(`"Waiting for the lease" .*identity="([^"]+)"`)

// identity is the name under which the process is a candidate.
func (p *process) identity(t testing.TB) string {
	t.Helper()
	match := identityInLog.FindStringSubmatch(p.controller.Log())
	if match == nil {
		t.Fatal("the standby hasn't said who it is")
	}
	return match[1]
}

// overlapping launches two controllers that both act, as two leaders do, and fills a pool,
// which can't grow any further: of what both create there would be twice as much.
func (s *telling) overlapping(replicas int32) (one, other *process) {
	s.t.Helper()
	one = s.start()
	s.filled(replicas, func(pool *v1alpha1.WarmPool) { pool.Spec.MaxSize = replicas })
	other = s.start()
	return one, other
}

// One leader has handed a Pod to a claim; the other hasn't seen it, and hands it to another.
func handedOutTwice(s *telling) {
	one, other := s.overlapping(3)
	blind := other.proxy.Add(blindFor("pods"))
	late := other.proxy.Add(blindFor("podclaims"))
	s.firstClaim()
	held := one.proxy.Add(blindFor("podclaims"))
	s.ns.CreateClaim(environment.Claim("b", poolName))
	s.fires(held)
	// The other one lists claims anew, and sees that a is bound, and b. Event by event it
	// might try to serve a first.
	late.Remove()
	other.proxy.EndWatches(faultproxy.Match{Verb: "watch", Resource: "podclaims"}, faultproxy.Expired())
	s.sends(other, 1, podWrites("patch"))
	s.asOfNow()
	blind.Release()
	held.Release()
}

// One leader has handed a Pod to a claim; the other hasn't seen it, and deletes it as one too
// many.
func claimedPodDeleted(s *telling) {
	one, other := s.overlapping(2)
	blind := other.proxy.Add(blindFor("pods"))
	late := other.proxy.Add(blindFor("podclaims")) // or it would have tried to serve a itself
	s.firstClaim()
	held := one.proxy.Add(blindFor("warmpools"))
	s.patchPool(`{"spec": {"replicas": 0}}`)
	s.fires(held)
	s.sends(other, 1, podWrites("delete"))
	s.lasts(pause)
	s.asOfNow()
	blind.Release()
	late.Release()
	held.Release()
}
