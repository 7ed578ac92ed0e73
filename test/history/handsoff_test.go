package history

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/test/faultproxy"
)

func TestClaimedPodIsNotTouched(t *testing.T) {
	bound := func(s *story) {
		s.claim("claim", "pool")
		s.pod("a", "pool")
		s.handOut("a", "claim")
		s.bind("claim", "a")
	}
	deleted := func(s *story) {
		bound(s)
		s.ending(Pods, "a") // at 5
		s.remove(Pods, "a")
	}
	judgeAll(t, I4, []judgement{
		{name: "a correct story", story: correct},
		{
			name:  "it is deleted",
			story: func(s *story) { bound(s); s.remove(Pods, "a") },
			want:  []string{"I4 5 pods ns/a: deleted while claim claim has it"},
		},
		{
			name: "its deletion begins, and counts once", story: deleted,
			want: []string{"I4 5 pods ns/a: deleted while claim claim has it"},
		},
		{
			name: "its claim is gone, or going",
			story: func(s *story) {
				bound(s)
				s.ending(PodClaims, "claim")
				s.ending(Pods, "a")
			},
		},
		{
			name: "its claim was made again under the same name",
			story: func(s *story) {
				bound(s)
				s.remove(PodClaims, "claim")
				s.make(PodClaims, "claim", "claim-again", fields{"spec": fields{"poolName": "pool"}})
				s.remove(Pods, "a")
			},
		},
		{
			name: "it is the loser of an overlap",
			story: func(s *story) {
				bound(s)
				s.pod("b", "pool")
				s.handOut("b", "claim")
				s.remove(Pods, "b")
			},
		},
		{
			name: "it came too late for a claim that was finished without one",
			story: func(s *story) {
				s.pod("a", "pool")
				s.claim("claim", "pool")
				s.set(PodClaims, "claim", []any{condition("Finished", "True", "TimedOut", 1)}, "status", "conditions")
				s.handOut("a", "claim")
				s.remove(Pods, "a")
			},
		},
		{
			name: "the pool takes it back",
			story: func(s *story) {
				bound(s)
				s.set(Pods, "a", ownerRef("WarmPool", "pool", "pool"), "metadata", "ownerReferences")
			},
			want: []string{"I4 5 pods ns/a: belonged to claim claim (claim) and belongs to WarmPool pool (pool)"},
		},
		{
			name: "it loses its owner",
			story: func(s *story) {
				bound(s)
				s.set(Pods, "a", []any{}, "metadata", "ownerReferences")
			},
			want: []string{"I4 5 pods ns/a: belonged to claim claim (claim) and belongs to   ()"},
		},
		{
			name: "it is relabelled",
			story: func(s *story) {
				bound(s)
				s.set(Pods, "a", "idle", "metadata", "labels", labelState)
			},
			want: []string{`I4 5 pods ns/a: claimed by claim, had the label warmpool.dev/state=claimed and has "idle"`},
		},
		{
			name: "somebody else does it", story: deleted,
			terms: Terms{Others: func(v *Version) bool { return v.Revision == 5 }},
		},
	})
}

func TestDeletionIsTheControllersIfItsRequestMayHaveDoneIt(t *testing.T) {
	request := func(change func(*faultproxy.Request)) Terms {
		r := faultproxy.Request{
			ID: 7, Who: "a", Verb: "delete", Resource: "pods", Namespace: "ns", Name: "a",
			Forwarded: after(4), Code: 200, AnswerRV: "5",
		}
		change(&r)
		return Terms{Logs: []faultproxy.Log{{Requests: []faultproxy.Request{r}}}}
	}
	preconditions := func(uid types.UID, version string) func(*faultproxy.Request) {
		return func(r *faultproxy.Request) {
			r.Preconditions = metav1.Preconditions{UID: &uid, ResourceVersion: ptr.To(version)}
		}
	}
	story := func(s *story) {
		s.claim("claim", "pool")
		s.pod("a", "pool")
		s.handOut("a", "claim")
		s.bind("claim", "a")
		s.ending(Pods, "a") // at 5
	}
	guilty := []string{`I4 5 pods ns/a: deleted while claim claim has it, by request 7 of "a"`}
	judgeAll(t, I4, []judgement{
		{name: "it did", story: story, terms: request(func(*faultproxy.Request) {}), want: guilty},
		{name: "its answer was lost", story: story, terms: request(func(r *faultproxy.Request) { r.Code, r.AnswerRV = 0, "" }), want: guilty},
		{name: "its preconditions held", story: story, terms: request(preconditions("a", "3")), want: guilty},
		{name: "its precondition was an old version", story: story, terms: request(preconditions("a", "2"))},
		{name: "its precondition was another Pod", story: story, terms: request(preconditions("b", "3"))},
		{name: "it was refused", story: story, terms: request(func(r *faultproxy.Request) { r.Code = 409 })},
		{name: "it was never sent", story: story, terms: request(func(r *faultproxy.Request) { r.Forwarded, r.Code, r.AnswerRV = time.Time{}, 0, "" })},
		{name: "it came later", story: story, terms: request(func(r *faultproxy.Request) { r.Forwarded = after(6) })},
		{name: "it was another Pod's", story: story, terms: request(func(r *faultproxy.Request) { r.Name = "b" })},
		{name: "it did something else", story: story, terms: request(func(r *faultproxy.Request) { r.Verb = "patch" })},
		{name: "its answer tells another version", story: story, terms: request(func(r *faultproxy.Request) { r.AnswerRV = "9" })},
		{
			name: "it evicted", story: story, want: guilty,
			terms: request(func(r *faultproxy.Request) { r.Verb, r.Subresource, r.Code, r.AnswerRV = "create", "eviction", 201, "" }),
		},
		{
			name: "it deleted all", story: story, want: guilty,
			terms: request(func(r *faultproxy.Request) { r.Verb, r.Name, r.AnswerRV = "deletecollection", "", "" }),
		},
	})
}
