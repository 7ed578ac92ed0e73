package pool_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/pool"
)

func TestPlanProjectsThePodOfAClaim(t *testing.T) {
	runPlanCases(t, []planCase{{
		name:     "a status that was never written is rebuilt from the Pod's owner",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, of("c")), aClaim("c")),
		want:     []string{"claim c: Bound=True/HandedOut Ready=True/PodReady, pod a"},
	}, {
		name:     "it is rebuilt too when the Pod isn't Ready any more",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", notReadyFor(time.Second), of("c")), aClaim("c")),
		want:     []string{"claim c: Bound=True/HandedOut Ready=False/PodNotReady, pod a"},
	}, {
		name:     "a claim that has said that it waits turns Bound",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, of("c")), aClaim("c", withCondition(v1alpha1.ClaimBound, metav1.ConditionFalse, v1alpha1.ReasonPending))),
		want:     []string{"claim c: Bound=True/HandedOut Ready=True/PodReady, pod a"},
	}, {
		name:     "a claim that is bound and whose Pod is Ready has nothing to say",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, of("c")), aClaim("c", bound("a"))),
	}, {
		name:     "Ready follows the Pod",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", notReadyFor(time.Second), of("c")), aClaim("c", bound("a"))),
		want:     []string{"claim c: Bound=True/HandedOut Ready=False/PodNotReady, pod a"},
	}, {
		name: "addresses that come later are written",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, of("c"), func(pod *corev1.Pod) {
			pod.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}}
		}), aClaim("c", bound("a"))),
		want: []string{"claim c: Bound=True/HandedOut Ready=True/PodReady, pod a"},
	}, {
		name:     "a Pod that succeeds finishes the claim",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ended(corev1.PodSucceeded), of("c")), aClaim("c", bound("a"))),
		want:     []string{"claim c: Bound=True/HandedOut Ready=False/PodNotReady Finished=True/PodSucceeded, pod a"},
	}, {
		name:     "a Pod that fails finishes the claim",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ended(corev1.PodFailed), of("c")), aClaim("c", bound("a"))),
		want:     []string{"claim c: Bound=True/HandedOut Ready=False/PodNotReady Finished=True/PodFailed, pod a"},
	}, {
		name:     "a Pod that is terminating is still the claim's",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, podDeleting, of("c")), aClaim("c", bound("a"))),
	}, {
		name:     "a Pod that is gone finishes the claim, once the API server confirms it",
		snapshot: snapshot(aPool(replicas(0)), aClaim("c", bound("a"))),
		want:     []string{"claim c: Bound=True/HandedOut Ready=False/PodLost Finished=True/PodLost, pod a, once its Pod is confirmed gone"},
	}, {
		name: "a new Pod of the same name is another Pod",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, of("c"), func(pod *corev1.Pod) { pod.UID = "another" }),
			aClaim("c", bound("a"))),
		want: []string{
			"claim c: Bound=True/HandedOut Ready=False/PodLost Finished=True/PodLost, pod a, once its Pod is confirmed gone",
			"delete a: not the Pod in the status of claim c",
		},
	}, {
		name: "a new claim of the same name is another claim",
		snapshot: snapshot(aPool(replicas(0), maxSize(1)), aPod("a", ready, of("c")), aClaim("c", func(c *v1alpha1.PodClaim) {
			c.UID = "another"
		})),
		want: []string{"claim c: Bound=False/AtCapacity", "at capacity"},
	}, {
		name: "a finished claim says nothing more",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", notReadyFor(time.Second), of("c")),
			aClaim("c", bound("a"), withCondition(v1alpha1.ClaimFinished, metav1.ConditionTrue, v1alpha1.ReasonPodFailed))),
	}, {
		name:     "a claim that is being deleted says nothing more",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", notReadyFor(time.Second), of("c")), aClaim("c", bound("a"), claimDeleting)),
	}})
}

func TestPlanKeepsOnePodForEachClaim(t *testing.T) {
	runPlanCases(t, []planCase{{
		name:     "of two Pods the one in the status stays",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, of("c")), aPod("b", ready, of("c")), aClaim("c", bound("b"))),
		want:     []string{"delete a: not the Pod in the status of claim c"},
	}, {
		name:     "a second Pod that goes already is not deleted again",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, podDeleting, of("c")), aPod("b", ready, of("c")), aClaim("c", bound("b"))),
	}, {
		name:     "before the status is written the first by name is the claim's, and the other stays until then",
		snapshot: snapshot(aPool(replicas(0)), aPod("b", ready, of("c")), aPod("a", ready, of("c")), aClaim("c")),
		want:     []string{"claim c: Bound=True/HandedOut Ready=True/PodReady, pod a"},
	}, {
		name:     "before the status is written a Pod that goes gives way to one that stays",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, podDeleting, of("c")), aPod("b", ready, of("c")), aClaim("c")),
		want:     []string{"claim c: Bound=True/HandedOut Ready=True/PodReady, pod b"},
	}, {
		name:     "a second Pod goes in a paused pool too",
		snapshot: snapshot(aPool(replicas(0), paused), aPod("a", ready, of("c")), aPod("b", ready, of("c")), aClaim("c", bound("b"))),
		want:     []string{"delete a: not the Pod in the status of claim c"},
	}, {
		name:     "a second Pod goes without a pool too",
		snapshot: snapshot(nil, aPod("a", ready, of("c")), aPod("b", ready, of("c")), aClaim("c", bound("b"))),
		want:     []string{"delete a: not the Pod in the status of claim c"},
	}, {
		name: "a Pod that reached a claim after its timeout goes, nobody was told of it",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, of("c")),
			aClaim("c", withCondition(v1alpha1.ClaimFinished, metav1.ConditionTrue, v1alpha1.ReasonTimedOut))),
		want: []string{"delete a: not the Pod in the status of claim c"},
	}, {
		name: "a second Pod of a finished claim goes, and the first stays",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, of("c")), aPod("b", ended(corev1.PodSucceeded), of("c")),
			aClaim("c", bound("b"), withCondition(v1alpha1.ClaimFinished, metav1.ConditionTrue, v1alpha1.ReasonPodSucceeded))),
		want: []string{"delete a: not the Pod in the status of claim c"},
	}})
}

func TestPlanTimesClaimsOut(t *testing.T) {
	runPlanCases(t, []planCase{{
		name:     "a claim that has waited for timeoutSeconds is finished, and no Pod is started for it",
		snapshot: snapshot(aPool(replicas(0)), aClaim("c", asked(time.Minute), timeout(60))),
		want:     []string{"claim c: Bound=False/TimedOut Finished=True/TimedOut"},
	}, {
		name:     "a claim that is a second short of it waits, and is looked at again then",
		snapshot: snapshot(aPool(replicas(0)), aClaim("c", asked(59*time.Second), timeout(60))),
		want:     []string{"claim c: Bound=False/Pending", "create 1", "again in 1s"},
	}, {
		name:     "a claim without a timeout waits for ever",
		snapshot: snapshot(aPool(replicas(0)), aClaim("c", asked(10000*time.Hour))),
		want:     []string{"claim c: Bound=False/Pending", "create 1"},
	}, {
		name:     "a claim that is too late gets no Pod, though one is ready",
		snapshot: snapshot(aPool(), aPod("a", ready), aClaim("c", asked(time.Hour), timeout(60))),
		want:     []string{"claim c: Bound=False/TimedOut Finished=True/TimedOut"},
	}, {
		name:     "a claim that has a Pod doesn't time out",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, of("c")), aClaim("c", asked(time.Hour), timeout(60))),
		want:     []string{"claim c: Bound=True/HandedOut Ready=True/PodReady, pod a"},
	}, {
		name:     "a claim times out without a pool too",
		snapshot: snapshot(nil, aClaim("c", asked(time.Hour), timeout(60))),
		want:     []string{"claim c: Bound=False/TimedOut Finished=True/TimedOut"},
	}, {
		name:     "a claim that is being deleted doesn't time out",
		snapshot: snapshot(aPool(replicas(0)), aClaim("c", asked(time.Hour), timeout(60), claimDeleting)),
	}, {
		name:     "the longest timeout is no overflow",
		snapshot: snapshot(aPool(replicas(0)), aClaim("c", asked(0), timeout(2147483647))),
		want:     []string{"claim c: Bound=False/Pending", "create 1", "again in 596523h14m7s"},
	}})
}

// TestWaitingClaimsAreToldWhy pins the messages. They are for people, and say what to
// do where somebody can do something.
func TestWaitingClaimsAreToldWhy(t *testing.T) {
	for _, c := range []struct {
		name     string
		snapshot pool.Snapshot
		want     string
	}{{
		name:     "while a Pod is being started",
		snapshot: snapshot(aPool(replicas(0)), aClaim("c")),
		want:     "a Pod is being started for this claim",
	}, {
		name:     "when there is no pool",
		snapshot: snapshot(nil, aClaim("c")),
		want:     `there is no WarmPool "runners" in namespace "ci": create it, or delete this claim`,
	}, {
		name:     "when the pool is being deleted",
		snapshot: snapshot(aPool(poolDeleting), aClaim("c")),
		want:     `WarmPool "runners" is being deleted: create it again, or delete this claim`,
	}, {
		name:     "when the pool is paused",
		snapshot: snapshot(aPool(paused), aClaim("c")),
		want:     `WarmPool "runners" has no ready Pod and is paused: set spec.paused to false`,
	}, {
		name:     "when maxSize is reached",
		snapshot: snapshot(aPool(maxSize(1)), aPod("a", ready, of("other")), aClaim("c")),
		want:     `WarmPool "runners" has reached spec.maxSize (1): delete claims, or raise it`,
	}, {
		name:     "when terminating Pods fill maxSize",
		snapshot: snapshot(aPool(maxSize(1)), aPod("a", podDeleting), aClaim("c")),
		want:     `WarmPool "runners" has reached spec.maxSize (1): delete claims, or raise it`,
	}, {
		name:     "when creations are refused",
		snapshot: snapshot(aPool(creationsRefused), aClaim("c")),
		want:     `the API server refuses to create Pods: see condition ReplicaFailure of WarmPool "runners"`,
	}, {
		name:     "when a Pod that failed holds the place",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", created(time.Second), ended(corev1.PodFailed)), aClaim("c")),
		want:     `WarmPool "runners" has no ready Pod`,
	}, {
		name:     "when the claim has waited too long",
		snapshot: snapshot(aPool(), aClaim("c", asked(time.Hour), timeout(60))),
		want:     "no Pod could be handed out within 60 s (timeoutSeconds): delete this claim, and create a new one to try again",
	}} {
		t.Run(c.name, func(t *testing.T) {
			statuses := plan(t, c.snapshot).ClaimStatuses
			if len(statuses) != 1 {
				t.Fatalf("got %d statuses, want 1", len(statuses))
			}
			if got := statuses[0].Status.Conditions[0].Message; got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestBoundStatusTellsAllOfThePodInOneWrite(t *testing.T) {
	claim := aClaim("c", withCondition(v1alpha1.ClaimBound, metav1.ConditionFalse, v1alpha1.ReasonPending))
	pod := aPod("a", ready, onNode("node-1"), of("c"), func(pod *corev1.Pod) {
		pod.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}
	})
	claimBefore, podBefore := claim.DeepCopy(), pod.DeepCopy()
	got := pool.BoundStatus(claim, pod, nil, now.Add(300*time.Millisecond))
	want := v1alpha1.PodClaimStatus{
		Pod:                &v1alpha1.PodReference{Name: "a", UID: "uid-of-a"},
		PodIPs:             []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}},
		NodeName:           "node-1",
		BoundTime:          ptr.To(metav1.NewTime(now)),
		ObservedGeneration: 1,
		Conditions: []metav1.Condition{
			{Type: "Bound", Status: "True", ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(now), Reason: "HandedOut", Message: "Pod a is this claim's"},
			{Type: "Ready", Status: "True", ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(now), Reason: "PodReady", Message: "the Pod is Ready"},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	if !reflect.DeepEqual(claim, claimBefore) || !reflect.DeepEqual(pod, podBefore) {
		t.Error("BoundStatus changed its arguments")
	}
	got.PodIPs[0].IP = "changed"
	if pod.Status.PodIPs[0].IP != "10.0.0.1" {
		t.Error("the status shares the Pod's memory, which may be a cache's")
	}
}

func TestBoundStatusNamesThePodOnce(t *testing.T) {
	claim := aClaim("c", bound("a"))
	later := pool.BoundStatus(claim, aPod("a", ready, of("c")), nil, now.Add(time.Hour))
	if !reflect.DeepEqual(later, claim.Status) {
		t.Errorf("an hour later, with nothing changed:\n got %+v\nwant %+v", later, claim.Status)
	}
	unready := pool.BoundStatus(claim, aPod("a", notReadyFor(time.Second), of("c")), nil, now)
	if got, want := *unready.BoundTime, ago(time.Minute); !got.Equal(&want) {
		t.Errorf("boundTime moved to %s, want %s", got, want)
	}
	want := []metav1.Condition{
		{Type: "Bound", Status: "True", ObservedGeneration: 1, LastTransitionTime: ago(time.Minute), Reason: "HandedOut", Message: "Pod a is this claim's"},
		{Type: "Ready", Status: "False", ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(now), Reason: "PodNotReady", Message: "the Pod is not Ready"},
	}
	if !reflect.DeepEqual(unready.Conditions, want) {
		t.Errorf("conditions:\n got %+v\nwant %+v", unready.Conditions, want)
	}
}

func TestRefusedStatusIsTheSameForEveryPod(t *testing.T) {
	claim := aClaim("c")
	status, changed := pool.RefusedStatus(claim, aPod("runners-x7k2"), errors.New(`pods "runners-x7k2" is forbidden: label team is required`), now)
	want := []metav1.Condition{{
		Type: "Bound", Status: "False", ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(now), Reason: "HandOutRefused",
		Message: `pods "NAME" is forbidden: label team is required`,
	}}
	if !changed || !reflect.DeepEqual(status.Conditions, want) {
		t.Errorf("changed %t, conditions:\n got %+v\nwant %+v", changed, status.Conditions, want)
	}
	if len(claim.Status.Conditions) != 0 {
		t.Error("RefusedStatus changed its argument")
	}

	claim.Status = status
	again, changed := pool.RefusedStatus(claim, aPod("runners-p9q4"), errors.New(`pods "runners-p9q4" is forbidden: label team is required`), now.Add(time.Hour))
	if changed || !reflect.DeepEqual(again, status) {
		t.Errorf("refused again with another Pod: changed %t, %+v, want what it was", changed, again)
	}
}

func lifetime(d time.Duration) func(*v1alpha1.PodClaim) {
	return func(c *v1alpha1.PodClaim) { c.Spec.Lifetime = &metav1.Duration{Duration: d} }
}

// expires is when the claim's time is over, from now.
func expires(in time.Duration) func(*v1alpha1.PodClaim) {
	return func(c *v1alpha1.PodClaim) { c.Status.ExpirationTime = ptr.To(metav1.NewTime(now.Add(in))) }
}

func TestHowLongAClaimKeepsItsPod(t *testing.T) {
	limits := func(preset, maximum time.Duration) *v1alpha1.WarmPool {
		l := &v1alpha1.ClaimLifetime{}
		if preset > 0 {
			l.Default = &metav1.Duration{Duration: preset}
		}
		if maximum > 0 {
			l.Maximum = &metav1.Duration{Duration: maximum}
		}
		return aPool(func(p *v1alpha1.WarmPool) { p.Spec.ClaimLifetime = l })
	}
	for _, c := range []struct {
		name  string
		pool  *v1alpha1.WarmPool
		claim *v1alpha1.PodClaim
		want  time.Duration // 0: for ever
	}{
		{"for ever, if nobody says anything", aPool(), aClaim("c"), 0},
		{"as long as it asks for", aPool(), aClaim("c", lifetime(time.Minute)), time.Minute},
		{"as long as it asks for, below the maximum", limits(time.Hour, 8*time.Hour), aClaim("c", lifetime(2*time.Hour)), 2 * time.Hour},
		{"no longer than the maximum", limits(0, time.Hour), aClaim("c", lifetime(2*time.Hour)), time.Hour},
		{"the default, if it asks for nothing", limits(time.Hour, 8*time.Hour), aClaim("c"), time.Hour},
		{"the maximum, if there is no default either", limits(0, 8*time.Hour), aClaim("c"), 8 * time.Hour},
		{"as long as it asks for, if its pool is gone", nil, aClaim("c", lifetime(time.Minute)), time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got time.Duration
			if at := pool.BoundStatus(c.claim, aPod("a", ready, of("c")), c.pool, now).ExpirationTime; at != nil {
				got = at.Sub(now)
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestAClaimsTimeIsSetOnce(t *testing.T) {
	claim := aClaim("c", bound("a"), lifetime(time.Hour))
	if got := pool.BoundStatus(claim, aPod("a", notReadyFor(0), of("c")), aPool(), now); got.ExpirationTime != nil {
		t.Errorf("a claim that had no end has one now: %s", got.ExpirationTime)
	}
	expires(time.Minute)(claim)
	if got := pool.BoundStatus(claim, aPod("a", notReadyFor(0), of("c")), aPool(), now); got.ExpirationTime.Sub(now) != time.Minute {
		t.Errorf("the end has moved to %s", got.ExpirationTime)
	}
}

func TestPlanExpiresClaims(t *testing.T) {
	finished := withCondition(v1alpha1.ClaimFinished, metav1.ConditionTrue, v1alpha1.ReasonExpired)
	runPlanCases(t, []planCase{{
		name:     "its time is waited for",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, of("c")), aClaim("c", bound("a"), expires(time.Second))),
		want:     []string{"again in 1s"},
	}, {
		name:     "then the claim says so",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, of("c")), aClaim("c", bound("a"), expires(0))),
		want:     []string{"claim c: Bound=True/HandedOut Ready=True/PodReady Finished=True/Expired, pod a"},
	}, {
		name:     "and goes",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, of("c")), aClaim("c", bound("a"), expires(0), finished)),
		want:     []string{"delete claim c"},
	}, {
		name:     "also when its pool is gone",
		snapshot: snapshot(nil, aPod("a", ready, of("c")), aClaim("c", bound("a"), expires(0), finished)),
		want:     []string{"delete claim c"},
	}, {
		name: "one that had finished before waits for its time as well",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, of("c")),
			aClaim("c", bound("a"), expires(time.Minute), withCondition(v1alpha1.ClaimFinished, metav1.ConditionTrue, v1alpha1.ReasonPodFailed))),
		want: []string{"again in 1m0s"},
	}, {
		name:     "one that somebody deletes already isn't deleted again",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, of("c")), aClaim("c", bound("a"), expires(0), finished, claimDeleting)),
	}})
}
