package history

import "testing"

func TestNothingIsLeftBehindAndNothingComesBack(t *testing.T) {
	orphan := func(s *story) {
		s.pool("pool", 1)
		s.pod("a", "pool")
		s.remove(WarmPools, "pool")
	}
	judgeAll(t, I5, []judgement{
		{name: "a correct story", story: correct, terms: Terms{GarbageCollector: true}},
		{name: "the owner is dead, and nobody collects garbage", story: orphan},
		{
			name: "the owner is dead, and somebody does", story: orphan, terms: Terms{GarbageCollector: true},
			want: []string{"I5 2 pods ns/a: at the end it belongs to the WarmPool pool (pool), which is gone"},
		},
		{
			name: "the owner was made again under the same name", terms: Terms{GarbageCollector: true},
			story: func(s *story) {
				orphan(s)
				s.make(WarmPools, "pool", "pool-again", fields{"spec": fields{}})
			},
			want: []string{"I5 2 pods ns/a: at the end it belongs to the WarmPool pool (pool), which is gone"},
		},
		{
			name: "it is going", terms: Terms{GarbageCollector: true},
			story: func(s *story) {
				orphan(s)
				s.ending(Pods, "a")
			},
		},
		{
			name: "it belongs to nobody",
			story: func(s *story) {
				s.pool("pool", 1)
				s.pod("a", "pool")
				s.set(Pods, "a", []any{}, "metadata", "ownerReferences")
			},
			want: []string{"I5 3 pods ns/a: at the end it belongs to nobody"},
		},
		{
			name:  "a Pod that isn't ours may belong to nobody",
			story: func(s *story) { s.make(Pods, "stranger", "stranger", fields{}) },
		},
		{
			name: "a claimed Pod comes back to the pool",
			story: func(s *story) {
				s.pool("pool", 1)
				s.claim("claim", "pool")
				s.pod("a", "pool")
				s.handOut("a", "claim")
				s.set(Pods, "a", ownerRef("WarmPool", "pool", "pool"), "metadata", "ownerReferences")
			},
			want: []string{"I5 5 pods ns/a: was claimed, and is the pool pool's again"},
		},
		{
			name: "a claimed Pod without an owner looks idle",
			story: func(s *story) {
				s.claim("claim", "pool")
				s.pod("a", "pool")
				s.handOut("a", "claim")
				s.set(Pods, "a", []any{}, "metadata", "ownerReferences")
				s.set(Pods, "a", "idle", "metadata", "labels", labelState)
			},
			want: []string{
				"I5 5 pods ns/a: was claimed, and has the label warmpool.dev/state=idle",
				"I5 5 pods ns/a: at the end it belongs to nobody",
			},
		},
	})
}
