package freshness

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// take takes n keys off the queue, and is done with each at once.
func take(t *testing.T, q *Queue[string], n int) []string {
	t.Helper()
	var keys []string
	for range n {
		key, shutdown := q.Get()
		if shutdown {
			t.Fatal("the queue is shut down")
		}
		q.Done(key)
		keys = append(keys, key)
	}
	return keys
}

func newTestQueue(t *testing.T) *Queue[string] {
	t.Helper()
	q := NewQueue(QueueConfig[string]{})
	t.Cleanup(q.ShutDown)
	return q
}

func TestKeysAreServedByClassAndWithinAClassInOrderOfArrival(t *testing.T) {
	q := newTestQueue(t)
	q.AddWithClass("listed", Routine)
	q.Add("changed")
	q.AddWithClass("released", Released)
	q.AddWithClass("waiting-1", Waiting)
	q.AddWithClass("waiting-2", Waiting)

	want := []string{"waiting-1", "waiting-2", "released", "changed", "listed"}
	if got := take(t, q, 5); !slices.Equal(got, want) {
		t.Errorf("got order %q, want %q", got, want)
	}
}

func TestAKeyThatIsAddedAgainKeepsTheHigherClassAndIsServedOnce(t *testing.T) {
	q := newTestQueue(t)
	q.AddWithClass("a", Routine)
	q.AddWithClass("b", Routine)
	q.AddWithClass("b", Waiting)
	q.AddWithClass("b", Changed)
	q.AddWithClass("c", Released)

	if got, want := q.Len(), 3; got != want {
		t.Errorf("got length %d, want %d", got, want)
	}
	for class, want := range map[Class]int{Routine: 1, Changed: 0, Released: 1, Waiting: 1} {
		if got := q.Depth(class); got != want {
			t.Errorf("got depth %d of class %s, want %d", got, class, want)
		}
	}
	want := []string{"b", "c", "a"}
	if got := take(t, q, 3); !slices.Equal(got, want) {
		t.Errorf("got order %q, want %q", got, want)
	}
	if got := q.Len(); got != 0 {
		t.Errorf("got length %d after all keys were taken, want 0", got)
	}
}

func TestAnEventRaisesAKeyOfTheInitialList(t *testing.T) {
	q := newTestQueue(t)
	q.AddWithClass("a", Routine)
	q.AddWithClass("b", Routine)
	q.Add("b")
	if got, want := take(t, q, 2), []string{"b", "a"}; !slices.Equal(got, want) {
		t.Errorf("got order %q, want %q", got, want)
	}
}

func TestAKeyThatAWorkerHasComesBackWithItsClassWhenTheWorkerIsDone(t *testing.T) {
	q := newTestQueue(t)
	q.Add("busy")
	key, _ := q.Get()
	q.Add("other")
	q.AddWithClass("busy", Waiting)
	if got := q.Len(); got != 1 {
		t.Errorf("got length %d while a worker has the key, want 1", got)
	}
	q.Done(key)
	if got, want := take(t, q, 2), []string{"busy", "other"}; !slices.Equal(got, want) {
		t.Errorf("got order %q, want %q", got, want)
	}
}

func TestAFloodOfUrgentKeysDoesNotStarveTheOthers(t *testing.T) {
	q := newTestQueue(t)
	q.AddWithClass("patient", Routine)
	for i := range 100 {
		q.AddWithClass(fmt.Sprint("urgent-", i), Waiting)
	}
	served := take(t, q, 8)
	if got := slices.Index(served, "patient"); got != 7 {
		t.Errorf("the key that had waited longest was served at place %d of %q, want the eighth", got, served)
	}

	// And under a flood that never ends, each of ten keys is served in the end.
	for i := range 10 {
		q.AddWithClass(fmt.Sprint("routine-", i), Routine)
	}
	served = nil
	for i := range 1000 {
		q.AddWithClass(fmt.Sprint("more-", i), Waiting)
		served = append(served, take(t, q, 1)...)
	}
	for i := range 10 {
		if key := fmt.Sprint("routine-", i); !slices.Contains(served, key) {
			t.Errorf("%s was not served among 1000", key)
		}
	}
}

func TestAKeyThatFailsIsDelayedByAGrowingBackoffOfAtMostAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(QueueConfig[string]{})
		defer q.ShutDown()
		var delays []time.Duration
		for range 16 {
			start := time.Now()
			q.AddRateLimited("a")
			take(t, q, 1)
			delays = append(delays, time.Since(start))
		}
		want := []time.Duration{5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond}
		if !slices.Equal(delays[:3], want) {
			t.Errorf("got first delays %v, want %v", delays[:3], want)
		}
		if got := delays[15]; got != time.Minute {
			t.Errorf("got a delay of %v after 16 failures, want 1m0s", got)
		}
		q.Forget("a")
		start := time.Now()
		q.AddRateLimited("a")
		take(t, q, 1)
		if got := time.Since(start); got != 5*time.Millisecond {
			t.Errorf("got a delay of %v after Forget, want 5ms", got)
		}
	})
}

func TestTheQueueMeasuresHowLongAKeyWaitedAndCountsWhoOvertook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := NewMetrics()
		q := NewQueue(QueueConfig[string]{Metrics: metrics})
		defer q.ShutDown()
		q.AddWithClass("patient", Routine)
		elapse(time.Second)
		for i := range 8 {
			q.AddWithClass(fmt.Sprint("urgent-", i), Waiting)
		}
		elapse(time.Second)
		take(t, q, 9)
		for action, want := range map[string]int{"urgent_first": 7, "fair_turn": 1} {
			if got := firings(t, metrics, GuardQueue, action); got != want {
				t.Errorf("counted %s %d times, want %d", action, got, want)
			}
		}
		for class, want := range map[string]float64{"routine": 2, "waiting": 8} {
			if got := histogramSum(t, metrics, "freshness_queue_wait_seconds", class); got != want {
				t.Errorf("keys of class %s waited %vs in all, want %vs", class, got, want)
			}
		}
	})
}

func TestAQueueThatIsShutDownIsEmptiedAndThenSaysSo(t *testing.T) {
	q := NewQueue(QueueConfig[string]{})
	q.AddWithClass("a", Waiting)
	q.ShutDown()
	q.Add("b")
	if key, shutdown := q.Get(); key != "a" || shutdown {
		t.Errorf("got %q, %t; want the key that was in the queue", key, shutdown)
	}
	if _, shutdown := q.Get(); !shutdown {
		t.Error("an empty queue that is shut down must say so")
	}
}
