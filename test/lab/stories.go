package lab

// The stories in which a cache is old.

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

// poolName is the pool that the stories are about.
const poolName = "runners"

// blindFor holds back the events of a resource: a network that has become slow.
func blindFor(resource string) faultproxy.Rule {
	return faultproxy.Rule{Match: faultproxy.Match{Verb: "watch", Resource: resource}, Do: faultproxy.HoldStream()}
}

// podWrites chooses writes of Pods, by their verb.
func podWrites(verb string) faultproxy.Match {
	return faultproxy.Match{Verb: verb, Resource: "pods"}
}

// patchPool changes the pool and returns its version then.
func (s *telling) patchPool(patch string) string {
	s.t.Helper()
	pools := s.env.Warmpool.WarmpoolV1alpha1().WarmPools(s.ns.Name)
	pool, err := pools.Patch(s.t.Context(), poolName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return pool.ResourceVersion
}

// touchPool changes nothing that matters of the pool, and waits until the controller is told.
func (s *telling) touchPool(p *process, n int) {
	s.t.Helper()
	s.hears(p, "warmpools", s.patchPool(fmt.Sprintf(`{"metadata": {"annotations": {"touched": "%d"}}}`, n)))
}

// touchPod changes nothing that matters of a Pod, and returns its version then.
func (s *telling) touchPod(name, value string) string {
	s.t.Helper()
	patch := fmt.Sprintf(`{"metadata": {"annotations": {"touched": %q}}}`, value)
	pod, err := s.env.Kube.CoreV1().Pods(s.ns.Name).Patch(s.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return pod.ResourceVersion
}

// filled creates a pool of so many Pods, and waits until it is filled.
func (s *telling) filled(replicas int32, change ...func(*v1alpha1.WarmPool)) {
	s.t.Helper()
	s.ns.CreatePool(environment.Pool(poolName, replicas, change...))
	s.settle()
}

// firstClaim creates the claim a, and waits until it has its Pod.
func (s *telling) firstClaim() {
	s.t.Helper()
	s.ns.CreateClaim(environment.Claim("a", poolName))
	s.world("claim a to be bound", isBound("a"))
}

// A pool fills while no Pod event comes, and each touch makes it be looked at again.
func poolTouchedWhileBlind(s *telling) {
	p := s.start()
	held := p.proxy.Add(blindFor("pods"))
	s.ns.CreatePool(environment.Pool(poolName, 5))
	s.fires(held)
	for n := range 5 {
		s.touchPool(p, n)
		s.lasts(pause)
	}
	s.asOfNow()
	held.Release()
}

// pause is the time between two events of a story: enough for a reconcile.
const pause = 400 * time.Millisecond

// Claims come while no Pod event does: the Pod that was handed out looks idle.
func claimsWhileBlind(s *telling) {
	p := s.start()
	s.filled(3)
	held := p.proxy.Add(blindFor("pods"))
	for _, name := range []string{"a", "b", "c"} {
		s.hears(p, "podclaims", s.ns.CreateClaim(environment.Claim(name, poolName)).ResourceVersion)
		s.lasts(pause)
	}
	s.asOfNow()
	held.Release()
}

// Creations happen, the answers are lost, and the events come late.
func answersLost(s *telling) {
	p := s.start()
	held := p.proxy.Add(blindFor("pods"))
	p.proxy.Add(faultproxy.Rule{Match: podWrites("create"), Times: 6, Do: faultproxy.LoseAnswer(faultproxy.Reset())})
	s.ns.CreatePool(environment.Pool(poolName, 2))
	s.fires(held)
	s.lasts(2 * time.Second)
	s.asOfNow()
	held.Release()
}

// A key is stale for long, and then its writes are refused for a second. maxSize keeps the
// reconcile from creating a Pod, whose event would wake the key.
func refusedAfterLag(s *telling) {
	p := s.start()
	s.filled(1, func(pool *v1alpha1.WarmPool) { pool.Spec.MaxSize = 2 })
	held := p.proxy.Add(blindFor("pods"))
	s.firstClaim()
	s.ns.CreateClaim(environment.Claim("b", poolName))
	s.lasts(6 * time.Second)
	refused := p.proxy.Add(faultproxy.Rule{
		Match: faultproxy.Match{Verb: faultproxy.Writes, Where: history.IsGuarded},
		Do:    faultproxy.Refuse(faultproxy.Forbidden()),
	})
	held.Release()
	s.fires(refused)
	s.lasts(time.Second)
	s.until = isBound("b")
	s.asOfNow()
	refused.Release()
}

// The Pod that was handed out comes back as it was before, as from a list of an API server
// that lags, and the events that follow make the cache look new.
func oldPodComesBack(s *telling) {
	p := s.start()
	s.filled(2)
	first, ctx := s.firstToGo(poolName), s.t.Context()
	old := p.proxy.Add(faultproxy.Rule{
		Match: faultproxy.Match{Verb: "watch", Resource: "pods", Event: "MODIFIED", Name: first.Name},
		Times: 1,
		Do:    faultproxy.HoldEvents(),
	})
	s.touchPod(first.Name, "once")
	s.fires(old)
	s.firstClaim()
	s.settle()
	if owner := history.OwnerOf(s.pod(first.Name)); owner.Name != "a" {
		s.t.Fatalf("Pod %s went to %s, and not to the first claim", first.Name, owner.Name)
	}
	delivered := len(p.proxy.Log().Deliveries)
	s.asOfNow()
	old.Release()
	if err := p.proxy.WaitDeliveries(ctx, delivered+1, func(faultproxy.Delivery) bool { return true }); err != nil {
		s.t.Fatal(err)
	}
	s.touchPod(s.firstToGo(poolName).Name, "later")
	s.ns.CreateClaim(environment.Claim("b", poolName))
}

// The controller lists anew, and is served the world from before the pool was filled.
func cacheGoesBack(s *telling) {
	p, ctx := s.start(), s.t.Context()
	before, err := p.proxy.Record(ctx, s.ns.Name, corev1.SchemeGroupVersion.WithResource("pods"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.filled(4)
	old := p.proxy.Add(faultproxy.Rule{
		Match: faultproxy.Match{Verb: faultproxy.Reads, Resource: "pods", Where: func(r *faultproxy.Request) bool { return r.Name == "" }},
		Do:    faultproxy.OldWorld(before),
	})
	p.proxy.EndWatches(faultproxy.Match{Verb: "watch", Resource: "pods"}, faultproxy.Expired())
	s.fires(old)
	s.lasts(2 * time.Second)
	s.asOfNow()
	old.Release()
}

func (s *telling) pod(name string) *corev1.Pod {
	s.t.Helper()
	pod, err := s.env.Kube.CoreV1().Pods(s.ns.Name).Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return pod
}

// The watch that is open dies, and nobody says so. Those after it are well.
func watchDies(s *telling) {
	p := s.start()
	s.filled(3)
	var last int64
	for _, watch := range p.proxy.OpenWatches(faultproxy.Match{Verb: "watch", Resource: "pods"}) {
		last = max(last, watch.ID)
	}
	p.proxy.Add(faultproxy.Rule{
		Match: faultproxy.Match{Verb: "watch", Resource: "pods", Where: func(r *faultproxy.Request) bool { return r.ID <= last }},
		Do:    faultproxy.Freeze(),
	})
	s.asOfNow()
	s.ns.CreateClaim(environment.Claim("a", poolName))
}

// A creation is sent, and never arrives. Nothing will ever tell of it.
func creationLost(s *telling) {
	p := s.start()
	p.proxy.Add(faultproxy.Rule{Match: podWrites("create"), Times: 1, Do: faultproxy.Refuse(faultproxy.Reset())})
	s.asOfNow()
	s.ns.CreatePool(environment.Pool(poolName, 1))
}

// All Pods that are to go change between the plan and the first deletion.
func podsChangeWhilePlanned(s *telling) {
	p := s.start()
	s.filled(4)
	s.quiet(4 * pause) // the last plan is over
	pods := s.ns.PodsOf(s.ns.Pool(poolName).UID)
	s.hears(p, "warmpools", s.patchPool(`{"spec": {"replicas": 0}}`))
	s.asOfNow()
	for _, pod := range pods {
		s.touchPod(pod.Name, "now")
	}
}

// The pool is deleted, and the garbage collector's deletions of its Pods are seen first.
func poolDeletedUnseen(s *telling) {
	p := s.start()
	s.filled(4)
	held := p.proxy.Add(blindFor("warmpools"))
	s.ns.DeletePool(poolName, "")
	s.fires(held)
	s.lasts(2 * time.Second)
	s.asOfNow()
	held.Release()
}

// Kubelets report that all is as it was.
func heartbeats(s *telling) {
	p := s.start()
	s.filled(4)
	pods := s.ns.PodsOf(s.ns.Pool(poolName).UID)
	s.asOfNow()
	for n := range 10 {
		for _, pod := range pods {
			s.hears(p, "pods", s.touchPod(pod.Name, fmt.Sprint(n)))
		}
	}
}
