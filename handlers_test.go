package main

import (
	"fmt"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/freshness"
)

func keyOf(obj any) (cache.ObjectName, freshness.Class) {
	switch obj.(type) {
	case *v1alpha1.WarmPool:
		return keyOfPool(obj)
	case *v1alpha1.PodClaim:
		return keyOfClaim(obj)
	default:
		return keyOfPod(obj)
	}
}

// TestHandlers is which keys an event adds to the queue, and how urgent they are.
func TestHandlers(t *testing.T) {
	of := func(options ...func(*corev1.Pod)) *corev1.Pod { return aPod("a", options...) }
	listed := func(obj any) func(cache.ResourceEventHandler) {
		return func(h cache.ResourceEventHandler) { h.OnAdd(obj, true) }
	}
	added := func(obj any) func(cache.ResourceEventHandler) {
		return func(h cache.ResourceEventHandler) { h.OnAdd(obj, false) }
	}
	updated := func(from, to any) func(cache.ResourceEventHandler) {
		return func(h cache.ResourceEventHandler) { h.OnUpdate(from, to) }
	}
	deleted := func(obj any) func(cache.ResourceEventHandler) {
		return func(h cache.ResourceEventHandler) { h.OnDelete(obj) }
	}
	tombstone := func(obj any) func(cache.ResourceEventHandler) {
		return deleted(cache.DeletedFinalStateUnknown{Key: "ci/a", Obj: obj})
	}
	for _, test := range []struct {
		name  string
		event func(cache.ResourceEventHandler)
		want  []string
	}{
		{"a pool of the initial list", listed(aPool("runners")), []string{"ci/runners routine"}},
		{"a new pool", added(aPool("runners")), []string{"ci/runners changed"}},
		{"a pool that changed", updated(aPool("runners"), aPool("runners")), []string{"ci/runners changed"}},
		{"a pool that is gone", deleted(aPool("runners")), []string{"ci/runners changed"}},
		{"a pool that is gone, as the cache last knew it", tombstone(aPool("runners")), []string{"ci/runners changed"}},

		{"a claim of the initial list that waits", listed(aClaim("job")), []string{"ci/runners waiting"}},
		{"a claim of the initial list that has its Pod", listed(aClaim("job", bound("a"))), []string{"ci/runners routine"}},
		{"a claim of the initial list that is finished", listed(aClaim("job", finished)), []string{"ci/runners routine"}},
		{"a new claim", added(aClaim("job")), []string{"ci/runners waiting"}},
		{"a claim that got its Pod", updated(aClaim("job"), aClaim("job", bound("a"))), []string{"ci/runners changed"}},
		{"a claim that is gone", deleted(aClaim("job", bound("a"))), []string{"ci/runners changed"}},
		{"a claim that is gone, as the cache last knew it", tombstone(aClaim("job", bound("a"))), []string{"ci/runners changed"}},
		{"a claim that was deleted and made again for another pool",
			updated(aClaim("job", bound("a")), aClaim("job", claimUID("second"), on("builders"))),
			[]string{"ci/builders waiting", "ci/runners changed"}},

		{"an idle Pod of the initial list", listed(of()), []string{"ci/runners routine"}},
		{"a claimed Pod of the initial list", listed(of(ofClaim("job"))), []string{"ci/runners routine"}},
		{"a new Pod", added(of()), []string{"ci/runners changed"}},
		{"a Pod that became ready", updated(of(), of(ready)), []string{"ci/runners changed"}},
		{"a Pod that was handed out", updated(of(ready), of(ready, ofClaim("job"))), []string{"ci/runners changed"}},
		{"a claimed Pod that is gone", deleted(of(ofClaim("job"))), []string{"ci/runners changed"}},
		{"an idle Pod that is gone, as the cache last knew it", tombstone(of()), []string{"ci/runners changed"}},
		{"a claimed Pod that is gone, as the cache last knew it", tombstone(of(ofClaim("job"))), []string{"ci/runners changed"}},
		{"a Pod whose owner was taken away", updated(of(), of(ofNobody)), []string{"ci/runners changed"}},
		{"a Pod that was deleted and made again by another pool",
			updated(of(), of(withUID("second"), ofPool("builders"))),
			[]string{"ci/builders changed", "ci/runners changed"}},
		{"an idle Pod whose label names another pool than its owner",
			added(of(labelledFor("builders"))), []string{"ci/runners changed"}},
		{"a Pod of nobody", added(of(ofNobody)), nil},
		{"a Pod of a ReplicaSet", added(of(func(pod *corev1.Pod) {
			pod.OwnerReferences[0].APIVersion, pod.OwnerReferences[0].Kind = "apps/v1", "ReplicaSet"
		})), nil},
		{"a Pod whose pool is of another API version", added(of(func(pod *corev1.Pod) {
			pod.OwnerReferences[0].APIVersion = "warmpool.dev/v1"
		})), []string{"ci/runners changed"}},

		{"a tombstone without an object", tombstone(nil), nil},
		{"a tombstone of something else", tombstone(&corev1.Node{}), nil},
		{"a deletion of something else", deleted(&corev1.Node{}), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				test.event(f.enqueue(keyOf))
				expect(t, "keys", f.queued(), test.want)
			})
		})
	}
}

// TestEachInformerHasItsHandler is the same through the informers, as far as it shows
// that each of them has the handler that is meant for it.
func TestEachInformerHasItsHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("a"), aClaim("job", on("b")), aPod("p", ofPool("c")))
		expect(t, "keys of the initial list", f.queued(), []string{"ci/a routine", "ci/b waiting", "ci/c routine"})

		f.api.put(t, aPool("a"), aClaim("job", on("b"), bound("x")), aPod("p", ofPool("c"), ready))
		settle()
		expect(t, "keys of updates", f.queued(), []string{"ci/a changed", "ci/b changed", "ci/c changed"})

		f.api.remove(t, aPool("a"))
		f.api.remove(t, aClaim("job"))
		f.api.remove(t, aPod("p"))
		settle()
		expect(t, "keys of deletions", f.queued(), []string{"ci/a changed", "ci/b changed", "ci/c changed"})
	})
}

func TestEventsOfOnePoolMakeOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners"), aPod("a"), aPod("b"), aPod("c", ofClaim("job-1")), aClaim("job-1", bound("c")), aClaim("job-2"))
		expect(t, "keys", f.queued(), []string{"ci/runners waiting"})
	})
}

// queued takes all keys off the queue, and returns them with their classes, sorted.
func (f *fixture) queued() []string {
	depths := func() (depths [4]int) {
		for class := freshness.Routine; class <= freshness.Waiting; class++ {
			depths[class] = f.queue.Depth(class)
		}
		return depths
	}
	var keys []string
	for f.queue.Len() > 0 {
		before := depths()
		key, _ := f.queue.Get()
		after := depths()
		for class := freshness.Routine; class <= freshness.Waiting; class++ {
			if after[class] < before[class] {
				keys = append(keys, fmt.Sprintf("%s %s", key, class))
			}
		}
		f.queue.Done(key)
	}
	return sorted(keys)
}
