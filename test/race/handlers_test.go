package race

// What is handed to handlers, and what they must not do with it.

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

const handlers = "scenario: handlers"

// isGone tells whether a Pod of this UID is gone.
func isGone(uids ...types.UID) func(*history.World) bool {
	return func(w *history.World) bool {
		return !slices.ContainsFunc(uids, func(uid types.UID) bool { return w.Pods[uid] != nil })
	}
}

// deletedByPool makes the pool smaller, unseen, and returns the Pod that the controller has
// deleted for it, as it was.
func (r *run) deletedByPool(replicas int) *corev1.Pod {
	r.t.Helper()
	before := r.idle()
	_, done := r.count(deletions)
	r.ns.PatchPool(poolName, fmt.Sprintf(`{"spec": {"replicas": %d}}`, replicas))
	deleted := r.waitSent(done+1, deletions, (*faultproxy.Request).Committed)
	name := deleted[len(deleted)-1].Name
	pod := before[slices.IndexFunc(before, func(pod *corev1.Pod) bool { return pod.Name == name })]
	r.waitFor("Pod "+name+" to be gone", isGone(pod.UID))
	return pod
}

// hasDeleted checks that this is the only Pod of which the controller has asked the deletion.
func (r *run) hasDeleted(pod *corev1.Pod) {
	r.t.Helper()
	for _, q := range r.current().proxy.Log().Select(deletions) {
		if q.Name != pod.Name || ptr.Deref(q.Preconditions.UID, "") != pod.UID {
			r.t.Errorf("Pod %s was to be deleted, of UID %v", q.Name, q.Preconditions.UID)
		}
	}
}

// B25: what was deleted while the watch was down came as a tombstone, and the controller
// died of it, or dropped it in silence. Here three Pods of a pool go that way: a claimed
// one, an idle one, and one that the controller has deleted itself and waits to see gone;
// and the Pod of another pool, of which nothing else reminds it.
func TestPodsAreDeletedWhileTheWatchIsDown(t *testing.T) {
	r := filled(t, handlers, 3)
	r.createClaims("a")
	others := r.ns.CreatePool(environment.Pool("others", 1))
	r.settle()
	regain := r.loseSight("pods")
	claimed := r.ns.Claim("a").Status.Pod
	deleted := r.deletedByPool(2)
	other := r.ns.PodsOf(others.UID)[0]
	uids := []types.UID{deleted.UID, claimed.UID, r.idle()[0].UID, other.UID}
	r.losePod(claimed.Name, claimed.UID)
	r.loseIdlePod()
	r.losePod(other.Name, other.UID)
	r.waitFor("the Pods to be gone", isGone(uids...))
	regain()
	r.settleSoon()
	for _, d := range r.current().proxy.Log().Deliveries {
		if d.Type == "DELETED" && slices.Contains(uids, d.UID) {
			t.Errorf("the deletion of Pod %s came as an event", d.Name)
		}
	}
	r.ns.WaitCondition("a", "Finished", "True", "PodLost")
	r.wantFired("backlog", "parked_behind")
	r.hasDeleted(deleted)
	r.wantMade(7)
	r.end(history.Terms{})
}

// B27: what is deleted and made again under its name while the watch is down comes as an
// update of the one to the other, and the controller treats the new one by its record of
// the old. Here it happens to a claim that has its Pod, to an idle Pod, and to a Pod whose
// deletion by the controller itself it hasn't seen.
func TestAllIsMadeAgainUnderItsNameWhileTheWatchesAreDown(t *testing.T) {
	r := filled(t, handlers, 3)
	r.createClaims("a", "b")
	r.settle()
	used := r.ns.Claim("a").Status.Pod.UID
	regain := r.loseSight("pods", "podclaims")

	deleted := r.deletedByPool(2)
	r.ns.PatchPool(poolName, `{"spec": {"replicas": 3}}`)
	again := []*corev1.Pod{r.makeAgain(deleted)}
	other := r.idle()[0]
	if other.Name == deleted.Name {
		other = r.idle()[1]
	}
	r.losePod(other.Name, other.UID)
	again = append(again, r.makeAgain(other))
	r.ns.DeleteClaim("a")
	r.waitFor("the Pod of the deleted claim to be gone", isGone(used))
	r.createClaims("a")
	for _, pod := range again {
		r.waitFor("the new Pod to be ready", func(w *history.World) bool { return w.Pods[pod.UID] != nil && history.IsReady(w.Pods[pod.UID]) })
	}

	regain()
	r.settleSoon()
	if pod := r.ns.WaitBound("a", "b")["a"]; pod == used {
		t.Error("the new claim has the Pod of the old one of its name")
	}
	for _, pod := range again {
		if r.ns.Pods()[pod.UID] == nil {
			t.Errorf("Pod %s was deleted for what the old one of its name was to be", pod.Name)
		}
	}
	r.hasDeleted(deleted)
	r.end(history.Terms{})
}

// makeAgain creates a Pod from the manifest of one that is gone, as kubectl replace --force
// does.
func (r *run) makeAgain(gone *corev1.Pod) *corev1.Pod {
	r.t.Helper()
	pod := gone.DeepCopy()
	pod.UID, pod.ResourceVersion, pod.DeletionTimestamp = "", "", nil
	pod.Spec.NodeName, pod.Status = "", corev1.PodStatus{}
	created, err := r.env.Kube.CoreV1().Pods(r.ns.Name).Create(r.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return created
}

// B28: a lock was written into an object of the cache before it was sent, and stayed there
// when the API server refused it. Here every third hand-out and status of a claim is
// refused, or fails, in a whole story. What stayed behind would be seen: by client-go's
// detector, which ends the process, by the race detector, and by the judges.
func TestEveryThirdWriteForAClaimFails(t *testing.T) {
	t.Parallel()
	r := newRun(t, env, handlers)
	for i, reply := range []faultproxy.Reply{faultproxy.Conflict(), faultproxy.InternalError()} {
		var writes atomic.Int64
		r.trouble = append(r.trouble, &mishap{until: allIsOver, rule: faultproxy.Rule{
			Match: faultproxy.Match{Verb: faultproxy.Writes, Where: func(q *faultproxy.Request) bool {
				isForAClaim := q.Resource == "pods" && q.Verb == "patch" || q.Resource == "podclaims"
				return isForAClaim && writes.Add(1)%6 == int64(3*i)
			}},
			Do: faultproxy.Refuse(reply),
		}})
	}
	r.launch()
	r.tell(story())
	r.end(history.Terms{})
}

// B29: a handler waited for a lock that a worker held while it talked to the API server,
// and the events behind it piled up. Here a worker hangs in a hand-out, and eight hundred
// events of its pool's Pods come. They are taken in all the same, and another pool's claim
// is served as if nothing were.
func TestAWorkerHangsWhileHundredsOfEventsCome(t *testing.T) {
	const updates = 800
	r := filled(t, handlers, 2, "--write-timeout=1m", "--workers=2")
	r.ns.CreatePool(environment.Pool("others", 1))
	r.settle()
	hangs := handOuts
	hangs.Name = poolName + "-*"
	hanging := r.goesWrong(faultproxy.Rule{Match: hangs, Do: faultproxy.HoldAnswer()})
	r.createClaims("a")
	r.waitFired(hanging, 1)
	heap := r.metric("go_memstats_heap_inuse_bytes")
	r.touchPods(updates)
	var newest []string
	for _, pod := range r.idle() {
		newest = append(newest, pod.ResourceVersion)
	}
	ctx, cancel := r.within(settleTimeout)
	defer cancel()
	last := func(d faultproxy.Delivery) bool { return slices.Contains(newest, d.ResourceVersion) }
	if err := r.current().proxy.WaitDeliveries(ctx, len(newest), last); err != nil {
		r.fatal("%v", err)
	}
	r.ns.Eventually("the events to be taken in", func() error {
		if queued := r.metric(`freshness_informer_queued_events{resource="pods"}`); queued > 0 {
			return fmt.Errorf("%d are queued", queued)
		}
		return nil
	})
	begun := time.Now()
	r.ns.CreateClaim(environment.Claim("b", "others"))
	r.waitFor("the other pool to serve its claim and to refill", func(w *history.World) bool {
		others := w.PoolNamed(r.ns.Name, "others")
		return others.Status.PendingClaims == 0 && others.Status.ReadyReplicas == 1 && len(w.Idle(others.UID)) == 1 && hasBound(w, "b")
	})
	if took := time.Since(begun); took > soon {
		t.Errorf("the other pool's claim was served after %s", took)
	}
	const more = 64 << 20
	if now := r.metric("go_memstats_heap_inuse_bytes"); now > heap+more {
		t.Errorf("the heap has grown from %d to %d bytes", heap, now)
	}
	r.end(history.Terms{})
}

// touchPods makes so many events of the pool's idle Pods.
func (r *run) touchPods(n int) {
	r.t.Helper()
	pods := r.idle()
	const users = 4
	var touching sync.WaitGroup
	for user := range users {
		touching.Go(func() {
			for i := range n / users {
				patch := fmt.Sprintf(`{"metadata": {"annotations": {"example.com/touched": "%d %d"}}}`, user, i)
				_, err := r.env.Kube.CoreV1().Pods(r.ns.Name).Patch(r.t.Context(), pods[i%len(pods)].Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
				if err != nil {
					r.t.Error(err)
					return
				}
			}
		})
	}
	touching.Wait()
}

// hasBound tells whether a claim has its Pod.
func hasBound(w *history.World, claim string) bool {
	for _, c := range w.Claims {
		if c.Name == claim {
			return c.Status.Pod != nil
		}
	}
	return false
}

// B30: reading whole lists again and again kept the cache's writer from its lock, and the
// cache fell behind. Here sixty claims come within a second to a pool of a hundred
// Pods, through which each hand-out looks: the cache stays close behind the API server, and
// the claims are served as they come.
func TestClaimsComeFastToALargePool(t *testing.T) {
	const (
		pods, claims = 100, 60
		every        = 20 * time.Millisecond
	)
	r := filled(t, handlers, pods, patientWrites)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for i := range claims {
		r.createClaims(fmt.Sprintf("claim-%d", i))
		<-ticker.C
	}
	r.settleSoon()
	r.judgeWaits(claims, soon)
	const lags = "freshness_write_to_cache_seconds"
	all := r.metric(lags + `_count{resource="pods"}`)
	if soonSeen := r.metric(lags + `_bucket{resource="pods",le="2.5"}`); soonSeen < all*99/100 {
		t.Errorf("of %d writes of Pods the cache has seen %d within 2.5 s", all, soonSeen)
	}
	r.wantMade(pods + claims)
	r.end(history.Terms{})
}

// judgeWaits checks that as many claims as are given have been bound, 99 of 100 of them
// within a time.
func (r *run) judgeWaits(claims int, within time.Duration) {
	r.t.Helper()
	came, waited := map[types.UID]time.Time{}, map[types.UID]time.Duration{}
	for _, v := range r.past().Versions {
		if v.Resource != history.PodClaims || v.Deleted {
			continue
		}
		if _, known := came[v.UID()]; !known {
			came[v.UID()] = v.Time
		}
		_, bound, _ := unstructured.NestedMap(v.Object.Object, "status", "pod") // an error: it isn't there
		if _, known := waited[v.UID()]; bound && !known {
			waited[v.UID()] = v.Time.Sub(came[v.UID()])
		}
	}
	var all []time.Duration
	for _, d := range waited {
		all = append(all, d)
	}
	slices.Sort(all)
	if len(all) != claims {
		r.t.Fatalf("%d claims were bound, want %d", len(all), claims)
	}
	slowest := all[(len(all)-1)*99/100]
	r.t.Logf("the claims waited %s (median), %s (99 of 100)", all[len(all)/2].Round(time.Millisecond), slowest.Round(time.Millisecond))
	if slowest > within {
		r.t.Errorf("of 100 claims 99 were bound within %s, want %s", slowest, within)
	}
}
