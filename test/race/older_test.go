package race

// Old state that comes over new: an event that is late, a list from before, a decision on
// what is no longer so.

import (
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

const older = "scenario: older state"

// B12: a controller put its own write into the cache, an older event replaced it there,
// and the work was done again. Here an event from before a Pod was handed out comes after
// the one of the hand-out, and to the cache the Pod looks free. Three more claims come.
func TestAnEventFromBeforeTheHandOutComesAfterIt(t *testing.T) {
	r := filled(t, older, 1, patient)
	pod := r.idle()[0]
	late := r.goesWrong(faultproxy.Rule{
		Match: faultproxy.Match{Verb: "watch", Resource: "pods", Name: pod.Name, Event: "MODIFIED"},
		Times: 1,
		Do:    faultproxy.HoldEvents(),
	})
	r.patchPod(pod.Name, `{"metadata": {"annotations": {"example.com/heartbeat": "1"}}}`)
	r.waitFired(late, 1)
	r.createClaims("a")
	r.settle()
	if bound := r.ns.Claim("a").Status.Pod; bound == nil || bound.UID != pod.UID {
		t.Fatalf("claim a has Pod %v, want %s", bound, pod.Name)
	}
	late.release()
	r.waitForGuard("watermark", "old_event_dropped")
	r.createClaims("b", "c", "d")
	r.settleSoon()
	r.want(handOuts, 4, 4) // nobody has even tried to hand it out again
	r.end(history.Terms{})
}

// B13: a Pod was made again hours after its work was done, since the guard against an old
// cache looked its records up under other names than it had kept them. Here the lists and
// watches go back to when a claim had its Pod, which is gone, and a claim of the same name
// comes. That the guard isn't dead is a part of each of these scenarios.
func TestTheCacheGoesBackToWhenAReleasedPodWasClaimed(t *testing.T) {
	r := filled(t, older, 2, patient)
	r.createClaims("a")
	r.settle()
	ctx, cancel := r.within(settleTimeout)
	defer cancel()
	before, err := r.current().proxy.Record(ctx, r.ns.Name,
		corev1.SchemeGroupVersion.WithResource("pods"), v1alpha1.PodClaimKind.GroupVersion().WithResource("podclaims"))
	if err != nil {
		t.Fatal(err)
	}
	used := r.ns.Claim("a").Status.Pod.UID
	r.ns.DeleteClaim("a")
	r.settle()
	r.hasCaughtUp()

	old := r.goesWrong(faultproxy.Rule{
		Match: faultproxy.Match{Verb: faultproxy.Reads, Where: func(q *faultproxy.Request) bool { return q.Resource != "warmpools" }},
		Do:    faultproxy.OldWorld(before),
	})
	isGoneBack := faultproxy.Match{Verb: "watch", Where: func(q *faultproxy.Request) bool { return q.Resource != "warmpools" }}
	r.current().proxy.EndWatches(isGoneBack, faultproxy.Expired())
	r.waitFired(old, 2)
	r.wake(1)
	r.wantFired("backlog", "parked_went_back")
	_, patched := r.count(handOuts)
	_, created := r.count(creations)
	r.createClaims("a")
	r.wake(3)
	r.want(handOuts, patched, patched)
	r.want(creations, created, created)
	r.want(deletions, 0, 0)
	old.release()
	r.settleSoon()
	if pod := r.ns.Claim("a").Status.Pod; pod == nil || pod.UID == used {
		t.Errorf("the second claim of the name has Pod %v, want another than the first one had (%s)", pod, used)
	}
	r.want(handOuts, 2, 2)
	r.end(history.Terms{})
}

// B17: a status that was needed wasn't written, since it was compared with an old copy
// that said the same, and nothing came afterwards to mend it. Here a status goes from A to
// B and back to A while the pool's own events are held, so that the copy says A all along.
func TestAStatusGoesThereAndBackWhileItsOwnEventsAreHeld(t *testing.T) {
	r := filled(t, older, 2, patient)
	pod := r.idle()[0]
	_, before := r.count(poolStatuses)
	blind := r.goesWrong(blindFor("warmpools"))
	r.ns.SetReady(pod, false)
	r.waitSent(before+1, poolStatuses, (*faultproxy.Request).Committed)
	r.ns.SetReady(pod, true)
	r.waitForGuard("backlog", "parked_behind")
	blind.release()
	r.settleSoon()
	r.rest() // a write is in etcd before its answer is counted
	if ready := r.ns.Pool(poolName).Status.ReadyReplicas; ready != 2 {
		t.Errorf("the status says %d ready Pods, want 2", ready)
	}
	if _, written := r.count(poolStatuses); written != before+2 {
		t.Errorf("the status was written %d times, want twice", written-before)
	}
	r.end(history.Terms{})
}

// B18: a patch that replaced a whole list, on an old copy, removed the finalizer of
// somebody else. Here somebody adds a finalizer and an owner to a Pod, and the hand-out is
// decided on without them. Where the other owner comes first, the hand-out is refused once
// and waits until the cache shows it.
func TestSomebodyAddsAnOwnerAndAFinalizerUnseen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		owners   func(pool, other metav1.OwnerReference) []metav1.OwnerReference
		refusals int
	}{
		"behind the pool": {func(pool, other metav1.OwnerReference) []metav1.OwnerReference {
			return []metav1.OwnerReference{pool, other}
		}, 0},
		"before the pool": {func(pool, other metav1.OwnerReference) []metav1.OwnerReference {
			return []metav1.OwnerReference{other, pool}
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := scenario(t, older, patient)
			// There is no other Pod to hand out.
			r.ns.CreatePool(environment.Pool(poolName, 1, func(p *v1alpha1.WarmPool) { p.Spec.MaxSize = 1 }))
			r.settle()
			pod, other := r.idle()[0], r.otherOwner()
			blind := r.goesWrong(blindFor("pods"))
			pod.OwnerReferences = c.owners(pod.OwnerReferences[0], other)
			pod.Finalizers = []string{"example.com/wait"}
			if _, err := r.env.Kube.CoreV1().Pods(r.ns.Name).Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			r.createClaims("a")
			first := r.waitSent(1, handOuts, answered)[0]
			if refused := first.Code == http.StatusUnprocessableEntity; refused != (c.refusals == 1) {
				t.Errorf("the first hand-out was answered %d", first.Code)
			}
			blind.release()
			r.settleSoon()
			r.want(handOuts, 1+c.refusals, 1)
			if c.refusals > 0 {
				r.wantFired("ledger", "outdated_cache_noticed")
			}
			r.checkForeign(pod, other)
			r.ns.Kubectl("patch", "pod", pod.Name, "--type=merge", "--patch", `{"metadata": {"finalizers": null}}`)
			r.end(history.Terms{})
		})
	}
}

// otherOwner makes an object that can own a Pod beside its pool.
func (r *run) otherOwner() metav1.OwnerReference {
	r.t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	created, err := r.env.Kube.CoreV1().ConfigMaps(r.ns.Name).Create(r.t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: created.Name, UID: created.UID}
}

// checkForeign checks that a Pod is claim a's, and has what somebody else has added.
func (r *run) checkForeign(pod *corev1.Pod, other metav1.OwnerReference) {
	r.t.Helper()
	now := r.ns.Pods()[pod.UID]
	owner := metav1.GetControllerOf(now)
	if owner == nil || owner.UID != r.ns.Claim("a").UID {
		r.t.Errorf("the controller owner of the Pod is %v, want claim a", owner)
	}
	if len(now.OwnerReferences) != 2 || fmt.Sprint(now.Finalizers) != "[example.com/wait]" {
		r.t.Errorf("the Pod has the owners %v and the finalizers %v, want also those of somebody else", now.OwnerReferences, now.Finalizers)
	}
	for _, reference := range now.OwnerReferences {
		if reference.Controller == nil && reference.UID != other.UID {
			r.t.Errorf("an owner of the Pod is %v, want %v", reference, other)
		}
	}
}
