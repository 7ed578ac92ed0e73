package main

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	clienttesting "k8s.io/client-go/testing"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/pool"
)

func TestAClaimsStatusTellsWhereItsPodIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners"), aPod("a", ready), aClaim("job"))
		f.sync(t)
		now := metav1.NewTime(start)
		want := v1alpha1.PodClaimStatus{
			Pod:                &v1alpha1.PodReference{Name: "a", UID: "uid-of-a"},
			PodIPs:             []corev1.PodIP{{IP: "10.0.0.1"}},
			NodeName:           "node-1",
			BoundTime:          &now,
			ObservedGeneration: 1,
			Conditions: []metav1.Condition{
				{Type: "Bound", Status: "True", ObservedGeneration: 1, LastTransitionTime: now, Reason: "HandedOut", Message: "Pod a is this claim's"},
				{Type: "Ready", Status: "True", ObservedGeneration: 1, LastTransitionTime: now, Reason: "PodReady", Message: "the Pod is Ready"},
			},
		}
		if d := diff.Diff(want, f.api.claim(t, "job").Status); d != "" {
			t.Errorf("status of the claim:\n%s", d)
		}
	})
}

func TestAHandOutSetsTheOwnerTheLabelsAndWhatTheClaimAsksFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners"), aPod("a", ready), aClaim("job", podMetadata("example.com/team", "blue")))
		f.sync(t)
		yes := true
		want := metav1.ObjectMeta{
			Labels: map[string]string{
				"warmpool.dev/pool": "runners", "warmpool.dev/state": "claimed", "warmpool.dev/claim": "job", "example.com/team": "blue",
				"warmpool.dev/template-hash": presentHash,
			},
			Annotations: map[string]string{"example.com/team": "blue"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "warmpool.dev/v1alpha1", Kind: "PodClaim", Name: "job", UID: "uid-of-job", Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		}
		pod := f.api.pod(t, "a")
		if d := diff.Diff(want, metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations, OwnerReferences: pod.OwnerReferences}); d != "" {
			t.Errorf("metadata of the Pod:\n%s", d)
		}
	})
}

func TestAClaimTimesOutThoughNothingHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aClaim("job", timeout(90))) // a minute old
		f.run()
		elapse(28 * time.Second)
		expect(t, "before the time is up", f.api.state(t), []string{"claim job: Bound=False/PoolNotFound"})
		elapse(2 * time.Second)
		expect(t, "when the time is up", f.api.state(t), []string{"claim job: Bound=False/TimedOut, Finished=True/TimedOut"})
	})
}

// TestAnExpiredClaimIsDeletedIfItIsAsItWasDecidedOn gives the decision, which is Plan's.
func TestAnExpiredClaimIsDeletedIfItIsAsItWasDecidedOn(t *testing.T) {
	for _, test := range []struct {
		name     string
		behind   func(*testing.T, *apiServer)
		refusal  func(clienttesting.Action) error
		state    []string
		conflict bool
		err      string
	}{{
		name:  "it is",
		state: []string{"pod a: of PodClaim uid-of-job, claimed, ready"}, // the garbage collector's
	}, {
		name:   "its user has deleted it",
		behind: func(t *testing.T, api *apiServer) { api.remove(t, aClaim("job")) },
		state:  []string{"pod a: of PodClaim uid-of-job, claimed, ready"},
	}, {
		name:     "it was written to",
		behind:   func(t *testing.T, api *apiServer) { api.put(t, aClaim("job", bound("a"))) },
		state:    []string{"claim job: Bound=True/HandedOut, Ready=True/PodReady, pod uid-of-a", "pod a: of PodClaim uid-of-job, claimed, ready"},
		conflict: true,
	}, {
		name:    "the API server fails",
		refusal: refusing("delete podclaims", unavailable),
		state:   []string{"claim job: Bound=True/HandedOut, Ready=True/PodReady, pod uid-of-a", "pod a: of PodClaim uid-of-job, claimed, ready"},
		err:     "delete claim ci/job, whose time is over: etcd has no leader",
	}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, aPod("a", ready, ofClaim("job")), aClaim("job", bound("a")))
				expired := f.api.claim(t, "job")
				if test.behind != nil {
					test.behind(t, f.api)
				}
				f.api.refuse(test.refusal)
				var r results
				// The pool may be gone by then.
				f.carryOut(f.ctx, pool.Snapshot{}, pool.Actions{ExpiredClaims: []*v1alpha1.PodClaim{expired}}, &r)
				settle()
				expect(t, "requests", f.api.sent(), []string{"delete podclaims job if it is uid-of-job at 102"})
				expect(t, "state", f.api.state(t), test.state)
				err := r.err()
				if got := errors.Is(err, errConflict); got != test.conflict {
					t.Errorf("a conflict: %t, want %t (%v)", got, test.conflict, err)
				}
				if !test.conflict && fmt.Sprint(err) != cmp.Or(test.err, "<nil>") {
					t.Errorf("got error %v, want %q", err, test.err)
				}
			})
		})
	}
}

// TestTheEndOfAClaimIsAWarningIfItsUserHasLostSomething is the type of the event.
func TestTheEndOfAClaimIsAWarningIfItsUserHasLostSomething(t *testing.T) {
	for reason, want := range map[string]string{
		"PodSucceeded": "Normal", "Expired": "Normal",
		"PodFailed": "Warning", "PodLost": "Warning", "TimedOut": "Warning",
	} {
		if got := eventTypeOf(reason); got != want {
			t.Errorf("%s is %s, want %s", reason, got, want)
		}
	}
}
