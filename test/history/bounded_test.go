package history

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/test/faultproxy"
)

func TestNoCreationGoesBeyondTheBound(t *testing.T) {
	judgeAll(t, I3, []judgement{
		{name: "a correct story", story: correct},
		{
			name: "one more than replicas",
			story: func(s *story) {
				s.pool("pool", 1)
				s.pod("a", "pool")
				s.pod("b", "pool")
			},
			want: []string{"I3 3 pods ns/b: created as idle Pod number 2 of pool pool, where replicas and surge are 1 and 0 claims wait"},
		},
		{
			name: "replicas not set means one",
			story: func(s *story) {
				s.make(WarmPools, "pool", "pool", fields{"spec": fields{}})
				s.pod("a", "pool")
				s.pod("b", "pool")
			},
			want: []string{"I3 3 pods ns/b: created as idle Pod number 2 of pool pool, where replicas and surge are 1 and 0 claims wait"},
		},
		{
			name: "one more for a claim that waits, and none for the same once it has its Pod",
			story: func(s *story) {
				s.pool("pool", 1)
				s.claim("claim", "pool")
				s.pod("a", "pool")
				s.pod("b", "pool")
				s.handOut("a", "claim")
				s.pod("c", "pool") // at 6
			},
			want: []string{"I3 6 pods ns/c: created as idle Pod number 2 of pool pool, where replicas and surge are 1 and 0 claims wait"},
		},
		{
			name: "Pods that end or go make room",
			story: func(s *story) {
				s.pool("pool", 1)
				s.pod("a", "pool")
				s.ending(Pods, "a")
				s.pod("b", "pool")
				s.set(Pods, "b", "Failed", "status", "phase")
				s.pod("c", "pool")
			},
		},
		{
			name: "a share of surge is rounded up, and isn't Recreate's",
			story: func(s *story) {
				s.pool("pool", 3)
				s.set(WarmPools, "pool", fields{"rollingUpdate": fields{"maxSurge": "25%"}}, "spec", "updateStrategy")
				s.pod("a", "pool")
				s.pod("b", "pool")
				s.pod("c", "pool")
				s.pod("d", "pool")
				s.remove(Pods, "d")
				s.set(WarmPools, "pool", "Recreate", "spec", "updateStrategy", "type")
				s.pod("e", "pool") // at 9
			},
			want: []string{"I3 9 pods ns/e: created as idle Pod number 4 of pool pool, where replicas and surge are 3 and 0 claims wait"},
		},
		{
			name: "maxSize counts claimed and terminating Pods",
			story: func(s *story) {
				s.pool("pool", 2)
				s.set(WarmPools, "pool", 2, "spec", "maxSize")
				s.claim("claim", "pool")
				s.pod("a", "pool")
				s.handOut("a", "claim")
				s.pod("b", "pool")
				s.ending(Pods, "b")
				s.pod("c", "pool") // at 8
			},
			want: []string{"I3 8 pods ns/c: created as Pod number 3 of pool pool, where maxSize is 2"},
		},
		{
			name: "a paused pool creates nothing",
			story: func(s *story) {
				s.pool("pool", 1)
				s.set(WarmPools, "pool", true, "spec", "paused")
				s.pod("a", "pool")
			},
			want: []string{"I3 3 pods ns/a: created for pool pool, which is paused, being deleted, or not there"},
		},
		{
			name: "nor does one that is being deleted, or another of the same name",
			story: func(s *story) {
				s.pool("pool", 1)
				s.ending(WarmPools, "pool")
				s.pod("a", "pool")
				s.remove(WarmPools, "pool")
				s.make(WarmPools, "pool", "pool-again", fields{"spec": fields{"replicas": 1}})
				s.pod("b", "pool") // at 6, under the old UID
			},
			want: []string{
				"I3 3 pods ns/a: created for pool pool, which is paused, being deleted, or not there",
				"I3 6 pods ns/b: created for pool pool, which is paused, being deleted, or not there",
			},
		},
	})
}

func TestWritesOfOthersMayBeUnknownForAWhile(t *testing.T) {
	lowered := func(s *story) {
		s.pool("pool", 2)
		s.pod("a", "pool")
		s.set(WarmPools, "pool", 1, "spec", "replicas") // at 3
		s.pod("b", "pool")                              // at 4
	}
	tooMany := []string{"I3 4 pods ns/b: created as idle Pod number 2 of pool pool, where replicas and surge are 1 and 0 claims wait"}
	claimGone := func(s *story) {
		s.pool("pool", 0)
		s.claim("claim", "pool")
		s.remove(PodClaims, "claim") // at 3
		s.pod("a", "pool")           // at 4
	}
	handedOut := func(s *story) {
		s.pool("pool", 0)
		s.claim("claim", "pool")
		s.pod("a", "pool")
		s.handOut("a", "claim") // at 4, its own write
		s.pod("b", "pool")      // at 5
	}
	// logOf is what a controller's proxy saw: the pools and claims up to a revision,
	// long ago, and the creation.
	logOf := func(pod, pools, claims string) []faultproxy.Log {
		return []faultproxy.Log{{
			Requests: []faultproxy.Request{{Verb: "create", Resource: "pods", Namespace: "ns", Name: pod, Arrived: after(4)}},
			Deliveries: []faultproxy.Delivery{
				{Time: begin, Resource: WarmPools, ResourceVersion: pools},
				{Time: begin, Resource: PodClaims, ResourceVersion: claims},
			},
		}}
	}
	judgeAll(t, I3, []judgement{
		{name: "lowered replicas count at once", story: lowered, want: tooMany},
		{name: "lowered replicas count after the lag", story: lowered, terms: Terms{Lag: 900 * time.Millisecond}, want: tooMany},
		{name: "lowered replicas are forgiven within the lag", story: lowered, terms: Terms{Lag: 1100 * time.Millisecond}},
		{name: "lowered replicas are forgiven if they weren't delivered", story: lowered, terms: Terms{Logs: logOf("b", "2", "3")}},
		{name: "lowered replicas count if they were", story: lowered, terms: Terms{Logs: logOf("b", "3", "3")}, want: tooMany},
		{name: "the log of another Pod says nothing", story: lowered, terms: Terms{Logs: logOf("x", "2", "2")}, want: tooMany},
		{
			name: "a claim that is gone counts at once", story: claimGone,
			want: []string{"I3 4 pods ns/a: created as idle Pod number 1 of pool pool, where replicas and surge are 0 and 0 claims wait"},
		},
		{name: "a claim that is gone is forgiven within the lag", story: claimGone, terms: Terms{Lag: 1100 * time.Millisecond}},
		{name: "a claim that is gone is forgiven if it wasn't delivered", story: claimGone, terms: Terms{Logs: logOf("a", "4", "2")}},
		{
			name: "the controller's own hand-out is never forgiven", story: handedOut, terms: Terms{Lag: time.Hour, Logs: logOf("b", "1", "2")},
			want: []string{"I3 5 pods ns/b: created as idle Pod number 1 of pool pool, where replicas and surge are 0 and 0 claims wait"},
		},
		{name: "so many creations in flight are forgiven", story: lowered, terms: Terms{Excess: 1}},
	})
}

func TestPodsThatWereThereAtTheBeginningAreNotJudged(t *testing.T) {
	s := newStory(t)
	s.pool("pool", 1)
	s.pod("a", "pool")
	s.pod("b", "pool")
	s.h.Versions[2].Initial = true
	if got := lines(I3(&s.h, Terms{})); got != nil {
		t.Errorf("I3 complains of %q", got)
	}
	s.make(Pods, "c", types.UID("c"), fields{"metadata": fields{"ownerReferences": ownerRef("WarmPool", "pool", "pool")}})
	if got := lines(I3(&s.h, Terms{})); len(got) != 1 {
		t.Errorf("I3 complains of %q, want the one that was created", got)
	}
}
