package history

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/test/faultproxy"
)

// revise gives a pool another template, and a generation with it.
func (s *story) revise(pool, image string) {
	s.t.Helper()
	object := s.state[WarmPools.Resource+pool]
	object.SetGeneration(object.GetGeneration() + 1)
	s.set(WarmPools, pool, template(image), "spec", "template")
}

func template(image string) fields {
	return fields{"metadata": fields{"labels": fields{"app": "runner"}}, "spec": fields{"containers": []any{fields{"name": "main", "image": image}}}}
}

// observe has the status tell the hash of the pool's template.
func (s *story) observe(pool, hash string) {
	s.t.Helper()
	s.set(WarmPools, pool, fields{"updateRevision": hash, "observedGeneration": s.state[WarmPools.Resource+pool].GetGeneration()}, "status")
}

// made creates a Pod of a pool from a template.
func (s *story) made(name, pool, hash, image string) {
	s.t.Helper()
	s.make(Pods, name, types.UID(name), fields{
		"metadata": fields{
			"labels":            fields{labelPool: pool, labelState: "idle", labelHash: hash, "app": "runner"},
			"ownerReferences":   ownerRef("WarmPool", pool, pool),
			"creationTimestamp": after(len(s.h.Versions) + 1).Format(time.RFC3339),
		},
		"spec": fields{"containers": []any{fields{"name": "main", "image": image, "terminationMessagePath": "/dev/termination-log"}}},
	})
}

// readied creates a Pod of a pool from a template, and makes it Ready.
func (s *story) readied(name, hash string) {
	s.t.Helper()
	s.made(name, "pool", hash, hash)
	s.set(Pods, name, []any{fields{"type": "Ready", "status": "True", "lastTransitionTime": after(len(s.h.Versions) + 1).Format(time.RFC3339)}}, "status", "conditions")
}

// rolling is a pool of so many whose template was changed from v1 to v2, with so many old
// Pods, a, b, c, ..., all Ready. It ends with the status that tells of v2.
func rolling(s *story, replicas, old int) {
	s.make(WarmPools, "pool", "pool", fields{"spec": fields{"replicas": replicas, "template": template("v1")}})
	s.observe("pool", "v1")
	for i := range old {
		s.readied(string(rune('a'+i)), "v1")
	}
	s.revise("pool", "v2")
	s.observe("pool", "v2")
}

func TestHashTellsTheTemplate(t *testing.T) {
	judgeAll(t, O24, []judgement{
		{name: "a correct story", story: correct},
		{
			name: "a roll there and back",
			story: func(s *story) {
				rolling(s, 1, 1)
				s.made("b", "pool", "v2", "v2")
				s.revise("pool", "v1")
				s.observe("pool", "v1")
				s.made("c", "pool", "v1", "v1")
			},
		},
		{
			name: "another generation with the same template",
			story: func(s *story) {
				rolling(s, 1, 0)
				s.revise("pool", "v2")
				s.observe("pool", "v2")
			},
		},
		{
			name: "another generation with the same template and another hash",
			story: func(s *story) {
				rolling(s, 1, 0)
				s.revise("pool", "v2")
				s.observe("pool", "v3") // at 6
			},
			want: []string{"O24 6 warmpools ns/pool: the template of generation 3 has the hash v3, and had v2"},
		},
		{
			name: "two templates with one hash",
			story: func(s *story) {
				s.make(WarmPools, "pool", "pool", fields{"spec": fields{"template": template("v1")}})
				s.observe("pool", "v1")
				s.revise("pool", "v2")
				s.observe("pool", "v1") // at 4
			},
			want: []string{"O24 4 warmpools ns/pool: the template of generation 2 has the hash v1 of another template"},
		},
		{
			name: "a status that speaks of the generation before",
			story: func(s *story) {
				s.make(WarmPools, "pool", "pool", fields{"spec": fields{"template": template("v1")}})
				s.revise("pool", "v2")
				s.set(WarmPools, "pool", fields{"updateRevision": "v1", "observedGeneration": 1}, "status")
				s.made("a", "pool", "v1", "v1")
				s.observe("pool", "v2")
			},
		},
		{
			name:  "no hash",
			story: func(s *story) { rolling(s, 1, 0); s.made("a", "pool", "", "v2") },
			want:  []string{"O24 5 pods ns/a: created without the label warmpool.dev/template-hash"},
		},
		{
			name:  "the hash of another template",
			story: func(s *story) { rolling(s, 1, 0); s.made("a", "pool", "v2", "v1") },
			want:  []string{"O24 5 pods ns/a: its hash is v2, and it wasn't made from that template: spec.containers[0].image is v1, not v2"},
		},
		{
			name:  "a hash that was never told, on a Pod of a template that there was",
			story: func(s *story) { rolling(s, 1, 0); s.made("a", "pool", "v7", "v1") },
		},
		{
			name:  "a hash that was never told, on a Pod of no template",
			story: func(s *story) { rolling(s, 1, 0); s.made("a", "pool", "v7", "v7") },
			want:  []string{"O24 5 pods ns/a: it wasn't made from any template of its pool: spec.containers[0].image is v7, not v2"},
		},
		{
			name: "a hash that changes",
			story: func(s *story) {
				rolling(s, 1, 1)
				s.set(Pods, "a", "v2", "metadata", "labels", labelHash) // at 7
			},
			want: []string{`O24 7 pods ns/a: had the label warmpool.dev/template-hash=v1 and has "v2"`},
		},
	})
}

// deletes are the controller's log of its deletions.
func deletes(pods ...string) []faultproxy.Log {
	log := faultproxy.Log{Deliveries: []faultproxy.Delivery{
		{Time: begin, Resource: WarmPools, ResourceVersion: "1000"},
		{Time: begin, Resource: Pods, ResourceVersion: "1000"},
	}}
	for _, pod := range pods {
		log.Requests = append(log.Requests, faultproxy.Request{
			Who: "a", Verb: "delete", Resource: "pods", Namespace: "ns", Name: pod, Forwarded: begin, Arrived: after(1000), Code: 200,
		})
	}
	return []faultproxy.Log{log}
}

func TestARollLeavesReadyPods(t *testing.T) {
	budget := func(value any) func(*story) {
		return func(s *story) {
			s.set(WarmPools, "pool", fields{"rollingUpdate": fields{"maxUnavailable": value, "maxSurge": 1}}, "spec", "updateStrategy")
		}
	}
	// roll takes as many Pods away as are named, after a change.
	roll := func(change func(*story), pods ...string) func(*story) {
		return func(s *story) {
			rolling(s, 4, 4) // at 12
			change(s)
			for _, pod := range pods {
				s.ending(Pods, pod)
			}
		}
	}
	nothing := func(*story) {}
	set := func(value any, path ...string) func(*story) {
		return func(s *story) { s.set(WarmPools, "pool", value, path...) }
	}
	tooMany := []string{"O25 14 pods ns/b: deleted by pool pool, which has 2 ready Pods without it, and may not have less than 3"}
	late := func(want string) []string { return []string{want} }
	judgeAll(t, O25, []judgement{
		{name: "a quarter of four", story: roll(nothing, "a"), terms: Terms{Logs: deletes("a")}},
		{name: "one more", story: roll(nothing, "a", "b"), terms: Terms{Logs: deletes("a", "b")}, want: tooMany},
		{name: "the other was somebody else's deed, and isn't judged", story: roll(nothing, "a", "b"), terms: Terms{Logs: deletes("a")}},
		{
			name: "the first was somebody else's deed, of which the controller knew", story: roll(nothing, "a", "b"), terms: Terms{Logs: deletes("b")},
			want: tooMany,
		},
		{name: "in flight when the process died", story: roll(nothing, "a", "b"), terms: Terms{Logs: deletes("a", "b"), Excess: 1}},
		{name: "nobody knows who did it", story: roll(nothing, "a", "b")},
		{
			name: "a share is rounded down", story: roll(budget("49%"), "a", "b"), terms: Terms{Logs: deletes("a", "b")},
			want: late("O25 15 pods ns/b: deleted by pool pool, which has 2 ready Pods without it, and may not have less than 3"),
		},
		{name: "half of four", story: roll(budget("50%"), "a", "b"), terms: Terms{Logs: deletes("a", "b")}},
		{
			name: "none, since there is a surge", story: roll(budget(0), "a"), terms: Terms{Logs: deletes("a")},
			want: late("O25 14 pods ns/a: deleted by pool pool, which has 3 ready Pods without it, and may not have less than 4"),
		},
		{
			name:  "none, and no surge: then one",
			story: roll(set(fields{"rollingUpdate": fields{"maxUnavailable": "10%"}}, "spec", "updateStrategy"), "a", "b"), terms: Terms{Logs: deletes("a", "b")},
			want: late("O25 15 pods ns/b: deleted by pool pool, which has 2 ready Pods without it, and may not have less than 3"),
		},
		{name: "maxSize leaves fewer", story: roll(set(3, "spec", "maxSize"), "a", "b"), terms: Terms{Logs: deletes("a", "b")}},
		{
			name: "a paused pool", story: roll(set(true, "spec", "paused"), "a"), terms: Terms{Logs: deletes("a")},
			want: late("O25 14 pods ns/a: deleted by pool pool, which is paused"),
		},
		{
			name:  "Recreate deletes all old ones",
			story: roll(set(recreate, "spec", "updateStrategy", "type"), "a", "b", "c", "d"), terms: Terms{Logs: deletes("a", "b", "c", "d")},
		},
		{
			name: "Recreate deletes no updated ones",
			story: func(s *story) {
				rolling(s, 2, 0)
				s.set(WarmPools, "pool", recreate, "spec", "updateStrategy", "type")
				s.readied("x", "v2")
				s.readied("y", "v2")
				s.ending(Pods, "x")
				s.ending(Pods, "y") // at 11
			},
			terms: Terms{Logs: deletes("x", "y")},
			want:  late("O25 11 pods ns/y: deleted by pool pool, which has 0 ready Pods without it, and may not have less than 1"),
		},
		{
			name: "a Pod that isn't Ready goes at any time",
			story: func(s *story) {
				rolling(s, 2, 2)
				s.set(Pods, "a", []any{}, "status", "conditions")
				s.set(Pods, "b", []any{}, "status", "conditions")
				s.ending(Pods, "a")
				s.ending(Pods, "b")
			},
			terms: Terms{Logs: deletes("a", "b")},
		},
		{
			name: "a claim takes a Pod first",
			story: func(s *story) {
				rolling(s, 4, 4)
				s.claim("claim", "pool")
				s.handOut("a", "claim") // at 14
				s.ending(Pods, "b")     // at 15
			},
			terms: Terms{Logs: deletes("b")},
			want:  late("O25 15 pods ns/b: deleted by pool pool, which has 2 ready Pods without it, and may not have less than 3"),
		},
	})
}

func TestWhatOthersTakeMayBeUnknownForAWhile(t *testing.T) {
	story := func(s *story) {
		rolling(s, 4, 4)
		s.set(Pods, "a", []any{}, "status", "conditions") // at 13
		s.ending(Pods, "b")                               // at 14
	}
	tooMany := []string{"O25 14 pods ns/b: deleted by pool pool, which has 2 ready Pods without it, and may not have less than 3"}
	logs := func(seen string) []faultproxy.Log {
		logs := deletes("b")
		logs[0].Deliveries[1].ResourceVersion = seen
		return logs
	}
	judgeAll(t, O25, []judgement{
		{name: "it was delivered", story: story, terms: Terms{Logs: logs("13")}, want: tooMany},
		{name: "it wasn't delivered", story: story, terms: Terms{Logs: logs("12")}},
	})
}

func TestUpdatedPodsAreHandedOutFirst(t *testing.T) {
	// both is a pool with an old Pod, a, and an updated one, x, that is Ready at 8, and a
	// claim, at 9.
	both := func(s *story) {
		rolling(s, 2, 1)
		s.readied("x", "v2")
		s.claim("claim", "pool")
	}
	old := func(change func(*story)) func(*story) {
		return func(s *story) { both(s); change(s); s.handOut("a", "claim") }
	}
	nothing := func(*story) {}
	tooOld := []string{"O26 10 pods ns/a: an old Pod is handed out (template v1), where 1 of the present one (v2) are ready, and 0 claims wait besides"}
	seen := func(pods string) Terms {
		return Terms{Logs: []faultproxy.Log{{
			Requests: []faultproxy.Request{{Verb: "patch", Resource: "pods", Namespace: "ns", Name: "a", Forwarded: begin, Arrived: after(1000), Code: 200, AnswerRV: "10"}},
			Deliveries: []faultproxy.Delivery{
				{Time: begin, Resource: WarmPools, ResourceVersion: "6"},
				{Time: begin, Resource: Pods, ResourceVersion: pods},
			},
		}}}
	}
	judgeAll(t, O26, []judgement{
		{name: "a correct story", story: correct},
		{name: "the updated one", story: func(s *story) { both(s); s.handOut("x", "claim") }},
		{name: "the old one", story: old(nothing), want: tooOld},
		{name: "the old one, within the lag", story: old(nothing), terms: Terms{Lag: 3 * time.Second}},
		{name: "the old one, after the lag", story: old(nothing), terms: Terms{Lag: time.Second}, want: tooOld},
		{name: "the old one, and the other's readiness was delivered", story: old(nothing), terms: seen("8"), want: tooOld},
		{name: "the old one, and the other's readiness wasn't delivered", story: old(nothing), terms: seen("7")},
		{
			name:  "the old one, after a break of the other's readiness",
			story: old(func(s *story) { s.set(Pods, "x", []any{}, "status", "conditions"); s.ready("x") }), terms: Terms{Lag: 3 * time.Second},
		},
		{name: "the updated one is for a claim that waits", story: old(func(s *story) { s.claim("other", "pool") })},
		{
			name:  "the updated one was for a claim that has gone since",
			story: old(func(s *story) { s.claim("other", "pool"); s.remove(PodClaims, "other") }), terms: Terms{Lag: 2 * time.Second},
		},
		{
			name: "the updated one isn't Ready for long enough", terms: Terms{Lag: time.Second},
			story: func(s *story) {
				rolling(s, 2, 1)
				s.set(WarmPools, "pool", 2, "spec", "minReadySeconds")
				s.readied("x", "v2")
				s.claim("claim", "pool")
				s.handOut("a", "claim")
			},
		},
		{
			name: "the updated one is over age",
			story: func(s *story) {
				rolling(s, 2, 1)
				s.set(WarmPools, "pool", 2, "spec", "maxIdleSeconds")
				s.readied("x", "v2")
				s.claim("claim", "pool")
				s.handOut("a", "claim")
			},
		},
		{name: "the strategy is OnHandOut", story: old(func(s *story) { s.set(WarmPools, "pool", onHandOut, "spec", "updateStrategy", "type") })},
	})
}

func TestRecreateHandsOutNoOldPods(t *testing.T) {
	recreated := func(observed bool, change func(*story)) func(*story) {
		return func(s *story) {
			s.make(WarmPools, "pool", "pool", fields{"spec": fields{"template": template("v1"), "updateStrategy": fields{"type": recreate}}})
			s.observe("pool", "v1")
			s.readied("a", "v1")
			s.claim("claim", "pool")
			s.revise("pool", "v2")
			if observed {
				s.observe("pool", "v2")
			}
			change(s)
			s.handOut("a", "claim")
		}
	}
	nothing := func(*story) {}
	judgeAll(t, O26, []judgement{
		{name: "before it was observed", story: recreated(false, nothing)},
		{
			name: "after it was observed", story: recreated(true, nothing), terms: Terms{Lag: time.Hour},
			want: []string{"O26 8 pods ns/a: an old Pod is handed out (template v1), and pool pool, which is under Recreate, was seen to have template v2"},
		},
		{
			name: "sent before it was observed, and held up", story: recreated(true, nothing),
			terms: Terms{Logs: []faultproxy.Log{{Requests: []faultproxy.Request{{
				Verb: "patch", Resource: "pods", Namespace: "ns", Name: "a", Arrived: after(5), Forwarded: after(7), Code: 200, AnswerRV: "8",
			}}}}},
		},
		{
			name: "sent after it was observed", story: recreated(true, nothing),
			terms: Terms{Logs: []faultproxy.Log{{Requests: []faultproxy.Request{{
				Verb: "patch", Resource: "pods", Namespace: "ns", Name: "a", Arrived: after(8), Forwarded: after(8), Code: 200, AnswerRV: "8",
			}}}}},
			want: []string{"O26 8 pods ns/a: an old Pod is handed out (template v1), and pool pool, which is under Recreate, was seen to have template v2"},
		},
		{
			name: "after the strategy was changed", terms: Terms{Lag: time.Hour},
			story: recreated(true, func(s *story) { s.set(WarmPools, "pool", "RollingUpdate", "spec", "updateStrategy", "type") }),
		},
		{name: "after the template was changed back", story: recreated(true, func(s *story) { s.revise("pool", "v1") })},
	})
}
