package main

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

func TestPace(t *testing.T) {
	runners := aPool("runners")
	again := aPool("runners")
	again.UID = "uid-of-the-second-runners"
	for _, test := range []struct {
		name  string
		pool  *v1alpha1.WarmPool
		after time.Duration
		want  time.Duration
	}{
		{"right after a write", runners, 0, time.Second},
		{"a while after a write", runners, 300 * time.Millisecond, 700 * time.Millisecond},
		{"a second after a write", runners, time.Second, 0},
		{"long after a write", runners, time.Hour, 0},
		{"when the clock was set back", runners, -time.Hour, time.Second},
		{"for another pool", aPool("builders"), 0, 0},
		{"for another pool of the same name", again, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPace()
			p.wrote(runners, start)
			if got := p.putOff(test.pool, start.Add(test.after)); got != test.want {
				t.Errorf("new counts wait for %s, want %s", got, test.want)
			}
		})
	}
}

func TestPaceForgets(t *testing.T) {
	p := newPace()
	p.wrote(aPool("runners"), start)
	p.forget(runners)
	if got := p.putOff(aPool("runners"), start); got != 0 {
		t.Errorf("new counts of a pool that was forgotten wait for %s", got)
	}
	if len(p.written) != 0 {
		t.Errorf("it remembers %v", p.written)
	}
}

// TestNewCountsAreWrittenOnceASecond has a Pod become Ready every 100 ms: the counts are
// written at their pace, and the last ones aren't lost.
func TestNewCountsAreWrittenOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := []runtime.Object{aPool("runners", replicas(40))}
		for i := range 40 {
			objects = append(objects, aPod(fmt.Sprintf("pod-%d", i)))
		}
		f := newFixture(t, objects...)
		f.run()
		f.api.sent()
		for i := range 40 {
			f.api.makeOneReady(t)
			if elapse(100 * time.Millisecond); i == 30 {
				if got := f.api.pool(t, "runners").Status.ReadyReplicas; got < 20 {
					t.Errorf("%d Pods are Ready, and the status says %d", i+1, got)
				}
			}
		}
		elapse(time.Second)
		if got, want := describePool(f.api.pool(t, "runners")), "pool runners: 40 idle, 40 ready, 0 claimed, 0 pending, Available"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		// One a second for 4 s, and one when the pool turns Available.
		if writes := len(f.api.sent()); writes < 4 || writes > 6 {
			t.Errorf("the status was written %d times in 5 s, want about 5", writes)
		}
		elapse(time.Hour)
		expect(t, "requests in an hour in which nothing happens", f.api.sent(), []string{})
	})
}

func TestATurnOfAConditionIsWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners", replicas(1)), aPod("a", ready))
		f.syncAll(t)
		for _, isReady := range []metav1.ConditionStatus{"False", "True", "False"} {
			pod := f.api.pod(t, "a")
			pod.Status.Conditions[0].Status = "False"
			if isReady == "True" {
				ready(pod)
			}
			f.api.put(t, pod)
			settle()
			f.syncAll(t)
			if got := condition(f.api.pool(t, "runners"), v1alpha1.PoolAvailable); got != isReady {
				t.Errorf("Available is %s, want %s", got, isReady)
			}
		}
	})
}

// TestNewCountsDoNotWaitForABackoff: a pool whose Pods are refused is tried again once a
// minute; what its status counts isn't a minute old.
func TestNewCountsDoNotWaitForABackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners", replicas(5)), aPod("a"), aPod("b"))
		f.api.refuse(refusing("create pods", overQuota))
		f.run()
		elapse(3 * time.Minute)
		for i := range 2 {
			f.api.makeOneReady(t)
			elapse(100 * time.Millisecond)
			if got := f.api.pool(t, "runners").Status.ReadyReplicas; got != 1 {
				t.Errorf("%d ms after the first Pod is Ready the status says %d", 100*(i+1), got)
			}
		}
		elapse(time.Second)
		if got := f.api.pool(t, "runners").Status.ReadyReplicas; got != 2 {
			t.Errorf("two Pods are Ready, and the status says %d", got)
		}
	})
}

// TestCountsThatWaitAreWrittenAfterAConflict: a conflict on one write is tried again, and
// the counts that are put off come all the same.
func TestCountsThatWaitAreWrittenAfterAConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners", replicas(1)), aPod("a", ready))
		f.syncAll(t)
		f.api.put(t, aPod("b", ready))
		settle()
		f.api.behindTheCaches(func() { f.api.put(t, aPod("a", ready), aPod("b", ready)) })
		f.sync(t)
		if got := f.queue.NumRequeues(runners); got == 0 {
			t.Error("the deletion that met a conflict isn't tried again")
		}
		f.api.put(t, aPod("a", ready), aPod("b", ready)) // the caches catch up
		f.run()
		elapse(time.Second)
		if got, want := describePool(f.api.pool(t, "runners")), "pool runners: 1 idle, 1 ready, 0 claimed, 0 pending, Available"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestThePaceOfAPoolIsForgottenWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners", replicas(0)))
		f.syncAll(t)
		if len(f.pace.written) != 1 {
			t.Fatalf("it remembers %v, want the write of one status", f.pace.written)
		}
		f.api.remove(t, aPool("runners"))
		settle()
		f.syncAll(t)
		if len(f.pace.written) != 0 {
			t.Errorf("it remembers %v, want nothing", f.pace.written)
		}
	})
}

func condition(p *v1alpha1.WarmPool, kind string) metav1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return "missing"
}

func TestEarlier(t *testing.T) {
	for _, test := range []struct{ a, b, want time.Duration }{
		{0, 0, 0}, {0, 2, 2}, {2, 0, 2}, {1, 2, 1}, {2, 1, 1},
	} {
		t.Run(fmt.Sprint(test.a, test.b), func(t *testing.T) {
			if got := earlier(test.a, test.b); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}
