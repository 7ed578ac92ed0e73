package history

import (
	"testing"
	"time"
)

func TestPodHasOneClaim(t *testing.T) {
	judgeAll(t, func(h *History, _ Terms) []Violation { return I1(h) }, []judgement{
		{name: "each claim its own Pod", story: correct},
		{
			name: "a Pod is handed to one claim after the other",
			story: func(s *story) {
				s.pod("a", "pool")
				s.handOut("a", "first")
				s.handOut("a", "second")
			},
			want: []string{"I1 3 pods ns/a: Pod a is given to claim second, and was to claim first"},
		},
		{
			name: "a Pod is handed to a claim of the same name, made again",
			story: func(s *story) {
				s.pod("a", "pool")
				s.handOut("a", "claim")
				s.set(Pods, "a", ownerRef("PodClaim", "claim", "claim-again"), "metadata", "ownerReferences")
			},
			want: []string{"I1 3 pods ns/a: Pod a is given to claim claim-again, and was to claim claim"},
		},
		{
			name: "two claims name one Pod in their status",
			story: func(s *story) {
				s.claim("first", "pool")
				s.claim("second", "pool")
				s.bind("first", "a")
				s.bind("second", "a")
			},
			want: []string{"I1 4 podclaims ns/second: Pod a is given to claim second, and was to claim first"},
		},
		{
			name: "a claim names a Pod that another one owns",
			story: func(s *story) {
				s.pod("a", "pool")
				s.handOut("a", "first")
				s.claim("second", "pool")
				s.bind("second", "a")
			},
			want: []string{"I1 4 podclaims ns/second: Pod a is given to claim second, and was to claim first"},
		},
	})
}

func TestClaimHasOnePod(t *testing.T) {
	twoPods := func(s *story) {
		s.claim("claim", "pool")
		s.pod("a", "pool")
		s.pod("b", "pool")
		s.handOut("a", "claim")
		s.handOut("b", "claim") // at 5
		s.bind("claim", "a")
		s.remove(Pods, "b") // at 7
	}
	judgeAll(t, I2, []judgement{
		{name: "each claim one Pod", story: correct},
		{
			name:  "a second Pod is handed to it",
			story: twoPods,
			want:  []string{"I2 5 pods ns/b: a second Pod is handed to claim claim, which has Pod a"},
		},
		{
			name: "a second Pod is handed to it when the first is gone",
			story: func(s *story) {
				s.claim("claim", "pool")
				s.pod("a", "pool")
				s.handOut("a", "claim")
				s.remove(Pods, "a")
				s.pod("b", "pool")
				s.handOut("b", "claim")
			},
			want: []string{"I2 6 pods ns/b: a second Pod is handed to claim claim, which has Pod a"},
		},
		{
			name: "its status names another Pod",
			story: func(s *story) {
				s.claim("claim", "pool")
				s.bind("claim", "a")
				s.bind("claim", "b")
			},
			want: []string{"I2 3 podclaims ns/claim: status.pod named Pod a (a) and names b (b)"},
		},
		{
			name: "its status forgets its Pod",
			story: func(s *story) {
				s.claim("claim", "pool")
				s.bind("claim", "a")
				s.wait("claim", "Pending")
			},
			want: []string{"I2 3 podclaims ns/claim: status.pod named Pod a and is gone"},
		},
		{name: "leaders overlapped, and the second Pod went unseen and in time", story: twoPods, terms: Terms{Overlap: 2 * time.Second}},
		{
			name:  "leaders overlapped, and the second Pod stayed too long",
			story: twoPods,
			terms: Terms{Overlap: 1500 * time.Millisecond},
			want:  []string{"I2 5 pods ns/b: a second Pod is handed to claim claim, which has Pod a"},
		},
		{
			name: "leaders overlapped, and it was another Pod that went",
			story: func(s *story) {
				s.claim("claim", "pool")
				s.pod("a", "pool")
				s.pod("b", "pool")
				s.pod("c", "pool")
				s.handOut("a", "claim")
				s.handOut("b", "claim")
				s.remove(Pods, "c")
			},
			terms: Terms{Overlap: time.Hour},
			want:  []string{"I2 6 pods ns/b: a second Pod is handed to claim claim, which has Pod a"},
		},
		{
			name: "leaders overlapped, and the first Pod was the one that went",
			story: func(s *story) {
				s.claim("claim", "pool")
				s.pod("a", "pool")
				s.pod("b", "pool")
				s.handOut("a", "claim")
				s.handOut("b", "claim")
				s.bind("claim", "b")
				s.ending(Pods, "a")
			},
			terms: Terms{Overlap: 2 * time.Second},
		},
		{
			name: "leaders overlapped, and the Pod that went had been seen",
			story: func(s *story) {
				s.claim("claim", "pool")
				s.pod("a", "pool")
				s.pod("b", "pool")
				s.handOut("a", "claim")
				s.bind("claim", "a")
				s.handOut("b", "claim")
				s.ending(Pods, "a")
			},
			terms: Terms{Overlap: 2 * time.Second},
			want:  []string{"I2 6 pods ns/b: a second Pod is handed to claim claim, which has Pod a"},
		},
	})
}
