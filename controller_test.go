package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/utils/clock"
)

func TestANewPodIsMadeFromTheTemplateAndMarkedAsThePools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners"))
		f.sync(t)
		yes := true
		want := corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ci",
				Labels:    map[string]string{"app": "runner", "warmpool.dev/pool": "runners", "warmpool.dev/state": "idle", "warmpool.dev/template-hash": presentHash},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "warmpool.dev/v1alpha1", Kind: "WarmPool", Name: "runners", UID: "uid-of-runners", Controller: &yes, BlockOwnerDeletion: &yes,
				}},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "runner", Image: "example.com/runner:1"}}},
		}
		for _, pod := range f.api.allPods(t) {
			pod.Name, pod.UID, pod.ResourceVersion, pod.CreationTimestamp = "", "", "", metav1.Time{}
			if d := diff.Diff(want, pod); d != "" {
				t.Errorf("the new Pod:\n%s", d)
			}
		}
	})
}

// TestTheStoryOfAPool works on one key after the other, and lets the caches catch up in
// between: the fakes' writes don't pass the guards' transport, so nothing but that keeps
// a second worker from acting on a cache that lacks them. test/e2e tells the same story
// with workers.
func TestTheStoryOfAPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners", replicas(2)))
		f.syncAll(t)
		f.api.makeReady(t)
		settle()
		f.syncAll(t)
		expect(t, "a full pool", f.api.state(t), []string{
			"pod runners-*: of WarmPool uid-of-runners, idle, ready",
			"pod runners-*: of WarmPool uid-of-runners, idle, ready",
			"pool runners: 2 idle, 2 ready, 0 claimed, 0 pending, Available",
		})

		f.api.put(t, aClaim("job-1"), aClaim("job-2"), aClaim("job-3"))
		for range 3 {
			settle()
			f.syncAll(t)
			f.api.makeReady(t)
		}
		settle()
		f.syncAll(t)
		claimed := map[string]bool{}
		for _, name := range []string{"job-1", "job-2", "job-3"} {
			claim := f.api.claim(t, name)
			if claim.Status.Pod == nil {
				t.Fatalf("%s has no Pod: %s", name, describeClaim(claim))
			}
			pod := f.api.pod(t, claim.Status.Pod.Name)
			if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != claim.UID {
				t.Errorf("%s, but its Pod is: %s", describeClaim(claim), describePod(pod))
			}
			claimed[pod.Name] = true
		}
		if len(claimed) != 3 {
			t.Errorf("got %d Pods for 3 claims", len(claimed))
		}
		if got, want := describePool(f.api.pool(t, "runners")), "pool runners: 2 idle, 2 ready, 3 claimed, 0 pending, Available"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}

		f.api.sent()
		elapse(time.Hour)
		f.syncAll(t)
		expect(t, "requests in an hour in which nothing happens", f.api.sent(), []string{})
		expect(t, "errors", f.errors(), nil)
	})
}

// planningClock calls once what happens while a pool is planned: Plan is given the time
// after the snapshot was read, and before the first write.
type planningClock struct {
	clock.Clock
	meanwhile func()
}

func (c *planningClock) Now() time.Time {
	if meanwhile := c.meanwhile; meanwhile != nil {
		c.meanwhile = nil
		meanwhile()
	}
	return c.Clock.Now()
}

func TestWhatArrivesWhileAPoolIsPlannedIsPlannedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners", replicas(1)))
		f.clock = &planningClock{Clock: f.clock, meanwhile: func() {
			f.api.put(t, aPod("a", ready))
			settle()
		}}
		f.sync(t)
		expect(t, "requests on a plan that is old", f.api.sent(), []string{})
		f.sync(t)
		expect(t, "requests", f.api.sent(), []string{"update warmpools/status runners"})
		expect(t, "state", f.api.state(t), []string{
			"pod a: of WarmPool uid-of-runners, idle, ready",
			"pool runners: 1 idle, 1 ready, 0 claimed, 0 pending, Available",
		})
		if got := f.queue.NumRequeues(runners); got != 0 {
			t.Errorf("the key counts %d failures", got)
		}
		expect(t, "errors", f.errors(), nil)
	})
}

func TestAStateThatIsAsItShouldBeCostsNoWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners", replicas(2)), aPod("a", ready), aPod("b", ready), aPod("c", ready), aClaim("job-1"),
			aClaim("job-2", on("missing")))
		f.syncAll(t)
		f.api.sent()
		// Every key again, as after a restart.
		for _, key := range []string{"runners", "missing"} {
			f.queue.Add(keyNamed(key))
			f.sync(t)
		}
		expect(t, "requests", f.api.sent(), []string{})
	})
}

func TestNothingIsCreatedForAPoolThatTheCacheIsBehindOn(t *testing.T) {
	for _, test := range []struct {
		name   string
		behind func(t *testing.T, api *apiServer)
	}{
		{"it is gone", func(t *testing.T, api *apiServer) { api.remove(t, aPool("runners")) }},
		{"it is another of the same name", func(t *testing.T, api *apiServer) {
			other := aPool("runners", replicas(3))
			other.UID = "another"
			api.put(t, other)
		}},
		{"its spec has changed", func(t *testing.T, api *apiServer) {
			changed := aPool("runners", replicas(0))
			changed.Generation = 2
			api.put(t, changed)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, aPool("runners", replicas(3)))
				f.api.behindTheCaches(func() { test.behind(t, f.api) })
				f.sync(t)
				for _, write := range f.api.sent() {
					if write == "create pods" {
						t.Error("a Pod was created")
					}
				}
				if f.queue.NumRequeues(runners) == 0 {
					t.Error("the key isn't tried again")
				}
			})
		})
	}
}

func TestEventsTellOfWhatWasDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners", replicas(2)), aPod("a", ready), aClaim("job-1"), aClaim("job-2", bound("b")))
		f.sync(t)
		expect(t, "events", sorted(f.events()), []string{
			"Normal HandedOut Pod a is this claim's",
			"Normal PodsCreated Created 2 Pods",
			"Warning PodLost Pod b is gone: delete this claim, and create a new one for another Pod",
		})
		f.api.put(t, aPool("runners", replicas(1)))
		f.syncAll(t)
		events := f.events()
		if len(events) != 1 || !strings.HasPrefix(events[0], "Normal PodDeleted Deleted Pod runners-") || !strings.HasSuffix(events[0], ": more idle Pods than asked for") {
			t.Errorf("got events %q, want one of a deletion, with its reason", events)
		}
	})
}
