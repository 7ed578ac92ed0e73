package history

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// filled is a pool of one with its Pod.
func filled(s *story) {
	s.pool("pool", 1)
	s.pod("a", "pool")
	s.ready("a")
	s.count("pool", 1, 1, 0)
}

// old is a pool of one whose Pod is of an old template.
func old(s *story) {
	filled(s)
	s.set(WarmPools, "pool", "v2", "status", "updateRevision")
	s.set(WarmPools, "pool", 0, "status", "updatedReplicas")
	s.set(WarmPools, "pool", 0, "status", "updatedReadyReplicas")
}

// stuck has a pool say that it got on at the beginning, and not since.
func (s *story) stuck(pool string, deadline int) {
	s.t.Helper()
	s.set(WarmPools, pool, deadline, "spec", "progressDeadlineSeconds")
	s.set(WarmPools, pool, after(0).Format(time.RFC3339), "status", "lastProgressTime")
	s.set(WarmPools, pool, []any{condition("Progressing", "False", "ProgressDeadlineExceeded", 0)}, "status", "conditions")
}

func TestUnsettledTellsWhatIsNotWhereItBelongs(t *testing.T) {
	for _, c := range []struct {
		name  string
		story func(*story)
		want  []Unsettled
	}{
		{name: "nothing", story: func(*story) {}},
		{name: "a pool that is full", story: filled},
		{name: "a correct story", story: correct},
		{
			name:  "a pool that has nothing yet",
			story: func(s *story) { s.pool("pool", 1) },
			want: []Unsettled{
				{"warmpools ns/pool", "it has 0 idle Pods, and should have 1"},
				{"warmpools ns/pool", "its status speaks of generation 0, and it is 1"},
			},
		},
		{
			name:  "a pool that is being deleted",
			story: func(s *story) { s.pool("pool", 1); s.ending(WarmPools, "pool") },
		},
		{
			name: "a Pod that isn't Ready, and a status that is old",
			story: func(s *story) {
				s.pool("pool", 1)
				s.pod("a", "pool")
				s.count("pool", 2, 1, 3)
			},
			want: []Unsettled{
				{"warmpools ns/pool", "its Pod a isn't Ready"},
				{"warmpools ns/pool", "its status says 1 ready, and there are 0"},
				{"warmpools ns/pool", "its status says 1 updated and ready, and there are 0"},
				{"warmpools ns/pool", "its status says 2 replicas, and there are 1"},
				{"warmpools ns/pool", "its status says 2 updated, and there are 1"},
				{"warmpools ns/pool", "its status says 3 pending claims, and there are 0"},
			},
		},
		{
			name: "one Pod too many",
			story: func(s *story) {
				filled(s)
				s.pod("b", "pool")
				s.ready("b")
				s.count("pool", 2, 2, 0)
			},
			want: []Unsettled{{"warmpools ns/pool", "it has 2 idle Pods, and should have 1"}},
		},
		{
			name: "one Pod too many, within the tolerance",
			story: func(s *story) {
				filled(s)
				s.set(WarmPools, "pool", "10%", "spec", "tolerance")
				s.pod("b", "pool")
				s.ready("b")
				s.count("pool", 2, 2, 0)
			},
		},
		{
			name: "one Pod too many, within the tolerance, and beyond maxSize",
			story: func(s *story) {
				filled(s)
				s.set(WarmPools, "pool", 1, "spec", "tolerance")
				s.set(WarmPools, "pool", 1, "spec", "maxSize")
				s.pod("b", "pool")
				s.ready("b")
				s.count("pool", 2, 2, 0)
			},
			want: []Unsettled{{"warmpools ns/pool", "it has 2 idle Pods, and should have 1"}},
		},
		{name: "an old Pod", story: old, want: []Unsettled{{"warmpools ns/pool", "it has 1 idle Pods of another template"}}},
		{name: "an old Pod until it is taken", story: func(s *story) { old(s); s.set(WarmPools, "pool", onHandOut, "spec", "updateStrategy", "type") }},
		{name: "an old Pod in a pool that is paused", story: func(s *story) { old(s); s.set(WarmPools, "pool", true, "spec", "paused") }},
		{
			name: "an old Pod that is counted among the updated ones",
			story: func(s *story) {
				old(s)
				s.set(WarmPools, "pool", onHandOut, "spec", "updateStrategy", "type")
				s.set(WarmPools, "pool", 1, "status", "updatedReplicas")
				s.set(WarmPools, "pool", 1, "status", "updatedReadyReplicas")
			},
			want: []Unsettled{
				{"warmpools ns/pool", "its status says 1 updated and ready, and there are 0"},
				{"warmpools ns/pool", "its status says 1 updated, and there are 0"},
			},
		},
		{
			name: "a pool that can't get on, and says so in time",
			story: func(s *story) {
				old(s)
				s.pod("b", "pool")
				s.count("pool", 2, 1, 0)
				s.set(WarmPools, "pool", 0, "status", "updatedReadyReplicas")
				s.set(WarmPools, "pool", 1, "status", "updatedReplicas")
				s.set(Pods, "b", "v2", "metadata", "labels", labelHash)
				s.set(WarmPools, "pool", "v2", "status", "updateRevision")
				s.stuck("pool", 3)
			},
		},
		{
			name: "a pool that is said not to get on, too early",
			story: func(s *story) {
				filled(s)
				s.stuck("pool", 3600)
			},
			want: []Unsettled{{"warmpools ns/pool", "it is said not to get on (ProgressDeadlineExceeded), before its progressDeadlineSeconds are over"}},
		},
		{
			name: "a pool that is paused, and one whose creations are refused",
			story: func(s *story) {
				s.pool("paused", 1)
				s.count("paused", 0, 0, 0)
				s.set(WarmPools, "paused", true, "spec", "paused")
				s.pool("refused", 1)
				s.count("refused", 0, 0, 0)
				s.set(WarmPools, "refused", []any{condition("ReplicaFailure", "True", "Forbidden", 1)}, "status", "conditions")
			},
		},
		{
			name: "a claim whose hand-out isn't in its status yet",
			story: func(s *story) {
				s.claim("claim", "pool")
				s.pod("a", "pool")
				s.handOut("a", "claim")
			},
			want: []Unsettled{{"podclaims ns/claim", "it has the Pod a, and its status doesn't say so"}},
		},
		{
			name: "a claim whose Pod is gone, until it is finished",
			story: func(s *story) {
				s.claim("claim", "pool")
				s.bind("claim", "a")
			},
			want: []Unsettled{{"podclaims ns/claim", "its status names the Pod a (a), which it doesn't have"}},
		},
		{
			name: "a claim that has finished, and one that has timed out without a timeout",
			story: func(s *story) {
				s.claim("lost", "pool")
				s.set(PodClaims, "lost", []any{condition("Finished", "True", "PodLost", 1)}, "status", "conditions")
				s.claim("late", "pool")
				s.set(PodClaims, "late", []any{condition("Finished", "True", "TimedOut", 1)}, "status", "conditions")
			},
			want: []Unsettled{{"podclaims ns/late", "it has timed out, without a timeoutSeconds"}},
		},
		{
			name: "a claim whose time is over, and one that has expired",
			story: func(s *story) {
				for _, name := range []string{"over", "expired"} {
					s.claim(name, "pool")
					s.pod("pod-"+name, "pool")
					s.handOut("pod-"+name, name)
					s.bind(name, "pod-"+name)
					s.set(PodClaims, name, after(5).Format(time.RFC3339), "status", "expirationTime")
				}
				s.set(PodClaims, "expired", []any{condition("Finished", "True", "Expired", 5)}, "status", "conditions")
			},
			want: []Unsettled{
				{"podclaims ns/expired", "its time was over at 12:00:05"},
				{"podclaims ns/over", "its time was over at 12:00:05"},
			},
		},
		{
			name: "a claim that has a Pod and isn't Bound, and one that has two",
			story: func(s *story) {
				for _, name := range []string{"a", "b", "c"} {
					s.pod(name, "pool")
				}
				s.claim("one", "pool")
				s.handOut("a", "one")
				s.set(PodClaims, "one", fields{"name": "a", "uid": "a"}, "status", "pod")
				s.claim("two", "pool")
				s.handOut("b", "two")
				s.bind("two", "b")
				s.handOut("c", "two")
			},
			want: []Unsettled{
				{"podclaims ns/one", "its status names a Pod, and it isn't Bound"},
				{"podclaims ns/two", "it has 2 Pods"},
			},
		},
		{
			name: "a claim that waits and says nothing",
			story: func(s *story) {
				s.claim("claim", "pool")
			},
			want: []Unsettled{{"podclaims ns/claim", "it waits, and doesn't say so"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStory(t)
			c.story(s)
			if diff := cmp.Diff(c.want, s.h.end().Unsettled()); diff != "" {
				t.Errorf("unsettled (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWaitingClaimTellsTheTruth(t *testing.T) {
	noPool := func(*story) {}
	full := func(s *story) {
		s.pool("pool", 0)
		s.set(WarmPools, "pool", 1, "spec", "maxSize")
		s.pod("a", "pool")
		s.handOut("a", "another")
	}
	paused := func(s *story) {
		s.pool("pool", 1)
		s.set(WarmPools, "pool", true, "spec", "paused")
	}
	starting := func(s *story) {
		s.pool("pool", 1)
		s.pod("a", "pool")
	}
	ready := func(s *story) {
		starting(s)
		s.ready("a")
		s.set(WarmPools, "pool", true, "spec", "paused")
		s.set(WarmPools, "pool", 1, "spec", "maxSize")
	}
	for _, c := range []struct {
		world  string
		story  func(*story)
		truths []string
	}{
		{"there is no pool", noPool, []string{"PoolNotFound"}},
		{"the pool is going", func(s *story) { s.pool("pool", 1); s.ending(WarmPools, "pool") }, []string{"PoolNotFound"}},
		{"the pool is at its capacity", full, []string{"AtCapacity", "HandOutRefused"}},
		{"the pool is paused", paused, []string{"PoolExhausted", "HandOutRefused"}},
		{"a Pod is starting", starting, []string{"Pending", "HandOutRefused"}},
		{"a Pod is ready", ready, []string{"HandOutRefused"}},
		{"a Pod is ready that Recreate doesn't hand out", func(s *story) {
			ready(s)
			s.set(WarmPools, "pool", recreate, "spec", "updateStrategy", "type")
			s.set(WarmPools, "pool", "v2", "status", "updateRevision")
		}, []string{"AtCapacity", "PoolExhausted", "Pending", "HandOutRefused"}},
	} {
		for _, reason := range []string{"PoolNotFound", "AtCapacity", "PoolExhausted", "Pending", "HandOutRefused", "Whatever"} {
			s := newStory(t)
			c.story(s)
			s.claim("claim", "pool")
			s.wait("claim", reason)
			lie := slices.Contains(s.h.end().Unsettled(), Unsettled{"podclaims ns/claim", "it waits for the reason " + reason + ", which isn't true"})
			if truth := slices.Contains(c.truths, reason); lie == truth {
				t.Errorf("when %s, %s is held to be a lie: %t, want %t", c.world, reason, lie, !truth)
			}
		}
	}
}

func TestEndIsJudged(t *testing.T) {
	s := newStory(t)
	filled(s)
	s.remove(Pods, "a")
	want := []string{
		"I6 5 warmpools ns/pool: it has 0 idle Pods, and should have 1",
		"I6 5 warmpools ns/pool: its status says 1 ready, and there are 0",
		"I6 5 warmpools ns/pool: its status says 1 replicas, and there are 0",
		"I6 5 warmpools ns/pool: its status says 1 updated and ready, and there are 0",
		"I6 5 warmpools ns/pool: its status says 1 updated, and there are 0",
	}
	if diff := cmp.Diff(want, lines(I6(&s.h))); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
}

func TestSettlingTakesItsTimeAndStays(t *testing.T) {
	late := func(s *story) {
		filled(s)           // settled at 4
		s.remove(Pods, "a") // at 5
		s.pod("b", "pool")
		s.ready("b") // settled again at 7
		s.set(Pods, "b", "x", "metadata", "annotations", "x")
	}
	for _, c := range []struct {
		name   string
		story  func(*story)
		healed time.Time
		within time.Duration
		took   time.Duration
		want   []string
	}{
		{name: "it was never unsettled", story: filled, healed: after(4), within: time.Second},
		{name: "it took three seconds", story: filled, healed: after(1), within: 3 * time.Second, took: 3 * time.Second},
		{
			name: "it took too long", story: filled, healed: after(1), within: time.Second, took: 3 * time.Second,
			want: []string{"O15 3 pods ns/a: 2s after the faults were over: warmpools ns/pool: it has 1 idle Pods of another template"},
		},
		{
			name: "it settled and didn't stay", story: late, healed: after(4), within: 500 * time.Millisecond, took: 3 * time.Second,
			want: []string{
				"O15 5 pods ns/a: 1s after the faults were over: warmpools ns/pool: it has 0 idle Pods, and should have 1",
				"O15 6 pods ns/b: 2s after the faults were over: warmpools ns/pool: its Pod b isn't Ready",
			},
		},
		{
			name: "it never settles", story: func(s *story) { s.pool("pool", 1) }, healed: after(1), within: time.Hour,
			want: []string{"O15 1 warmpools ns/pool: since then, to the end: warmpools ns/pool: it has 0 idle Pods, and should have 1"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStory(t)
			c.story(s)
			took, found := O15(&s.h, c.healed, c.within)
			if diff := cmp.Diff(c.want, lines(found)); diff != "" || took != c.took {
				t.Errorf("took %s, want %s; violations (-want +got):\n%s", took, c.took, diff)
			}
		})
	}
}
