package history

import "testing"

func TestNamesAreNotTakenForObjects(t *testing.T) {
	judgeAll(t, func(h *History, _ Terms) []Violation { return I12(h) }, []judgement{
		{name: "a correct story", story: correct},
		{
			name:  "a Pod's pool never existed",
			story: func(s *story) { s.pod("a", "pool") },
			want:  []string{"I12 1 pods ns/a: belongs to the WarmPool pool (pool), and no such object has existed in the namespace"},
		},
		{
			name: "a Pod's pool existed under another UID",
			story: func(s *story) {
				s.make(WarmPools, "pool", "pool-again", fields{})
				s.pod("a", "pool")
			},
			want: []string{"I12 2 pods ns/a: belongs to the WarmPool pool (pool), and no such object has existed in the namespace"},
		},
		{
			name: "a new pool of the same name takes an old one's Pod",
			story: func(s *story) {
				s.pool("pool", 1)
				s.pod("a", "pool")
				s.remove(WarmPools, "pool")
				s.make(WarmPools, "pool", "pool-again", fields{})
				s.set(Pods, "a", ownerRef("WarmPool", "pool", "pool-again"), "metadata", "ownerReferences")
			},
			want: []string{"I12 5 pods ns/a: belonged to pool pool (pool) and belongs to pool pool (pool-again)"},
		},
		{
			name: "a Pod is labelled with another claim",
			story: func(s *story) {
				s.pool("pool", 1)
				s.claim("claim", "pool")
				s.pod("a", "pool")
				s.set(Pods, "a", ownerRef("PodClaim", "claim", "claim"), "metadata", "ownerReferences")
			},
			want: []string{`I12 4 pods ns/a: belongs to claim claim, and its label warmpool.dev/claim is ""`},
		},
		{
			name: "a claim names a Pod that never existed",
			story: func(s *story) {
				s.claim("claim", "pool")
				s.bind("claim", "a")
			},
			want: []string{"I12 2 podclaims ns/claim: status.pod names a (a), and no such Pod has existed"},
		},
		{
			name: "a claim names the Pod of an older claim of its name",
			story: func(s *story) {
				s.pool("pool", 1)
				s.pod("a", "pool")
				s.claim("claim", "pool")
				s.handOut("a", "claim")
				s.remove(PodClaims, "claim")
				s.make(PodClaims, "claim", "claim-again", fields{"spec": fields{"poolName": "pool"}})
				s.bind("claim", "a")
			},
			want: []string{"I12 7 podclaims ns/claim: status.pod names a (a), which has never been this claim's (claim-again)"},
		},
	})
}
