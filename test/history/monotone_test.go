package history

import "testing"

func TestStatusesOnlyMoveForward(t *testing.T) {
	judgeAll(t, func(h *History, _ Terms) []Violation { return O19(h) }, []judgement{
		{name: "a correct story", story: correct},
		{
			name: "observedGeneration falls, or is ahead",
			story: func(s *story) {
				s.pool("pool", 1)
				s.set(WarmPools, "pool", 1, "status", "observedGeneration")
				s.set(WarmPools, "pool", 2, "metadata", "generation")
				s.set(WarmPools, "pool", 2, "status", "observedGeneration")
				s.set(WarmPools, "pool", 1, "status", "observedGeneration") // at 5
				s.set(WarmPools, "pool", 3, "status", "observedGeneration")
			},
			want: []string{
				"O19 5 warmpools ns/pool: observedGeneration fell from 2 to 1",
				"O19 6 warmpools ns/pool: observedGeneration is 3, and the generation 2",
			},
		},
		{
			name: "a condition turns, and its time with it",
			story: func(s *story) {
				s.claim("claim", "pool")
				s.set(PodClaims, "claim", []any{condition("Bound", "False", "Pending", 1)}, "status", "conditions")
				s.set(PodClaims, "claim", []any{condition("Bound", "False", "AtCapacity", 1)}, "status", "conditions")
				s.set(PodClaims, "claim", []any{condition("Bound", "True", "HandedOut", 3)}, "status", "conditions")
			},
		},
		{
			name: "a condition's time goes back, moves without cause, and the condition goes",
			story: func(s *story) {
				s.pool("pool", 1)
				s.set(WarmPools, "pool", []any{condition("Available", "False", "x", 5)}, "status", "conditions")
				s.set(WarmPools, "pool", []any{condition("Available", "True", "x", 4)}, "status", "conditions")
				s.set(WarmPools, "pool", []any{condition("Available", "True", "x", 6)}, "status", "conditions")
				s.set(WarmPools, "pool", []any{}, "status", "conditions")
			},
			want: []string{
				"O19 3 warmpools ns/pool: the lastTransitionTime of Available went back from 2026-12-01 12:00:05 +0000 UTC to 2026-12-01 12:00:04 +0000 UTC",
				"O19 4 warmpools ns/pool: the lastTransitionTime of Available moved, and its status didn't change",
				"O19 5 warmpools ns/pool: the condition Available is gone",
			},
		},
	})
}
