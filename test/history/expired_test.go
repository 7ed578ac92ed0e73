package history

import (
	"testing"
	"time"

	"warmpool.dev/controller/test/faultproxy"
)

// limited is a pool whose claims live for five seconds, ten at most, and a claim with the
// lifetime that is given; none if it is empty.
func limited(s *story, lifetime string) {
	s.make(WarmPools, "pool", "pool", fields{"spec": fields{"claimLifetime": fields{"default": "5s", "maximum": "10s"}}})
	spec := fields{"poolName": "pool"}
	if lifetime != "" {
		spec["lifetime"] = lifetime
	}
	s.make(PodClaims, "claim", "claim", fields{"spec": spec})
}

// bindUntil binds the claim at 2, and tells when it expires; 0: never.
func (s *story) bindUntil(second int, conditions ...any) {
	s.t.Helper()
	status := fields{"pod": fields{"name": "a", "uid": "a"}, "boundTime": after(2).Format(time.RFC3339), "conditions": conditions}
	if second > 0 {
		status["expirationTime"] = after(second).Format(time.RFC3339)
	}
	s.set(PodClaims, "claim", status, "status")
}

func TestClaimLivesForItsLifetime(t *testing.T) {
	bound := func(lifetime string, until int) func(*story) {
		return func(s *story) { limited(s, lifetime); s.bindUntil(until) }
	}
	wrong := func(until, lifetime string) []string {
		return []string{"O27 3 podclaims ns/claim: bound at 2026-12-01 12:00:02 +0000 UTC, it expires at " + until + ", and its lifetime is one of [" + lifetime + "]"}
	}
	raised := func(s *story) {
		limited(s, "")
		s.set(WarmPools, "pool", "9s", "spec", "claimLifetime", "default") // at 3
		s.bindUntil(7)
	}
	expired := condition("Finished", "True", "Expired", 0)
	deleted := []faultproxy.Log{{Requests: []faultproxy.Request{{
		Who: "a", Verb: "delete", Group: group, Resource: "podclaims", Namespace: "ns", Name: "claim", Forwarded: begin, Code: 200,
	}}}}
	judgeAll(t, O27, []judgement{
		{name: "a correct story", story: correct},
		{name: "its own", story: bound("3s", 5)},
		{name: "its own, told to the second", story: bound("3500ms", 5)},
		{name: "the pool's default", story: bound("", 7)},
		{name: "the pool's maximum", story: bound("1h", 12)},
		{name: "more than the maximum", story: bound("1h", 3602), want: wrong("2026-12-01 13:00:02 +0000 UTC", "10s")},
		{name: "none, though it has one", story: bound("3s", 0), want: wrong("<nil>", "3s")},
		{
			name:  "one, though it has none",
			story: func(s *story) { s.pool("pool", 1); s.claim("claim", "pool"); s.bindUntil(9) },
			want:  wrong("2026-12-01 12:00:09 +0000 UTC", "0s"),
		},
		{
			name: "the default of a moment ago", story: raised,
			want: []string{"O27 4 podclaims ns/claim: bound at 2026-12-01 12:00:02 +0000 UTC, it expires at 2026-12-01 12:00:07 +0000 UTC, and its lifetime is one of [9s]"},
		},
		{name: "the default of a moment ago, within the lag", story: raised, terms: Terms{Lag: 2 * time.Second}},
		{
			name:  "it is moved",
			story: func(s *story) { limited(s, "3s"); s.bindUntil(5); s.bindUntil(6) },
			want:  []string{"O27 4 podclaims ns/claim: its expirationTime was 2026-12-01 12:00:05 +0000 UTC and is 2026-12-01 12:00:06 +0000 UTC"},
		},
		{
			name: "it expires at its time, and is deleted",
			story: func(s *story) {
				limited(s, "2s")
				s.bindUntil(4)
				s.bindUntil(4, expired)
				s.remove(PodClaims, "claim")
			},
			terms: Terms{Logs: deleted},
		},
		{
			name:  "it expires too early",
			story: func(s *story) { limited(s, "3s"); s.bindUntil(5); s.bindUntil(5, expired) },
			want:  []string{"O27 4 podclaims ns/claim: it has expired before its expirationTime 2026-12-01 12:00:05 +0000 UTC"},
		},
		{
			name: "it was finished before, and is deleted at its time", terms: Terms{Logs: deleted},
			story: func(s *story) {
				limited(s, "2s")
				s.bindUntil(4)
				s.bindUntil(4, condition("Finished", "True", "PodLost", 0))
				s.remove(PodClaims, "claim")
			},
		},
		{name: "a user deletes it", story: func(s *story) { limited(s, "3s"); s.bindUntil(5); s.remove(PodClaims, "claim") }},
		{
			name:  "the controller deletes it too early",
			story: func(s *story) { limited(s, "3s"); s.bindUntil(5); s.ending(PodClaims, "claim") },
			terms: Terms{Logs: deleted},
			want:  []string{"O27 4 podclaims ns/claim: deleted by the controller, though it hasn't expired"},
		},
	})
}
