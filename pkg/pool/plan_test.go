package pool_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/pool"
)

// planCase is one snapshot and what is to be done about it.
type planCase struct {
	name     string
	snapshot pool.Snapshot
	want     []string
}

func runPlanCases(t *testing.T, cases []planCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			actions := plan(t, c.snapshot)
			expect(t, describe(actions), c.want)

			// Once the statuses are written there is nothing to say any more.
			written := deepCopy(c.snapshot)
			for _, s := range actions.ClaimStatuses {
				for _, claim := range written.Claims {
					if claim.UID == s.Claim.UID {
						claim.Status = s.Status
					}
				}
			}
			for _, s := range plan(t, written).ClaimStatuses {
				t.Errorf("claim %s is written again, with the status that it has:\n%+v", s.Claim.Name, s.Status)
			}
		})
	}
}

func TestPlanFills(t *testing.T) {
	runPlanCases(t, []planCase{{
		name:     "a new pool creates all its Pods",
		snapshot: snapshot(aPool(replicas(3))),
		want:     []string{"create 3"},
	}, {
		name:     "a pool without spec.replicas keeps one Pod",
		snapshot: snapshot(aPool(notDefaulted)),
		want:     []string{"create 1"},
	}, {
		name:     "a pool of no replicas keeps none",
		snapshot: snapshot(aPool(replicas(0))),
	}, {
		name:     "a full pool needs nothing",
		snapshot: snapshot(aPool(replicas(2)), aPod("a", ready), aPod("b", ready)),
	}, {
		name:     "a Pod that is starting counts",
		snapshot: snapshot(aPool(replicas(2)), aPod("a", ready), aPod("b")),
		want:     []string{"again in 4m0s"},
	}, {
		name:     "a Pod that lost its readiness counts",
		snapshot: snapshot(aPool(replicas(1)), aPod("a", notReadyFor(30*time.Second))),
		want:     []string{"again in 4m30s"},
	}, {
		name:     "a Pod that is terminating is replaced",
		snapshot: snapshot(aPool(replicas(2)), aPod("a", ready), aPod("b", ready, podDeleting)),
		want:     []string{"create 1"},
	}, {
		name:     "a Pod that was claimed is replaced",
		snapshot: snapshot(aPool(replicas(1)), aPod("a", ready, of("c")), aClaim("c", bound("a"))),
		want:     []string{"create 1"},
	}, {
		name: "a Pod of an earlier pool of that name doesn't count",
		snapshot: snapshot(aPool(replicas(1)), aPod("a", ready, func(pod *corev1.Pod) {
			pod.OwnerReferences[0].UID = "uid-of-earlier"
		})),
		want: []string{"create 1"},
	}, {
		name: "a Pod that the pool owns without being its controller doesn't count",
		snapshot: snapshot(aPool(replicas(1)), aPod("a", ready, func(pod *corev1.Pod) {
			pod.OwnerReferences[0].Controller = nil
		})),
		want: []string{"create 1"},
	}, {
		name: "foreign labels change nothing, the owner counts",
		snapshot: snapshot(aPool(replicas(1)), aPod("a", ready, func(pod *corev1.Pod) {
			pod.Labels[v1alpha1.LabelState], pod.Labels[v1alpha1.LabelClaim] = v1alpha1.StateClaimed, "c"
		})),
	}})
}

func TestPlanHandsOut(t *testing.T) {
	runPlanCases(t, []planCase{{
		name:     "a ready Pod goes to the claim, and the pool refills",
		snapshot: snapshot(aPool(replicas(2)), aPod("a", ready), aPod("b", ready), aClaim("c")),
		want:     []string{"hand out a to c", "create 1"},
	}, {
		name: "the Pod that has been Ready longest goes first, of equals the first by name",
		snapshot: snapshot(aPool(replicas(0)),
			aPod("a", readyFor(10*time.Second)), aPod("b", readyFor(30*time.Second)), aPod("d", readyFor(20*time.Second)), aPod("c", readyFor(20*time.Second)),
			aClaim("c1", asked(4*time.Second)), aClaim("c2", asked(3*time.Second)), aClaim("c3", asked(2*time.Second)), aClaim("c4", asked(time.Second))),
		want: []string{"hand out b to c1", "hand out c to c2", "hand out d to c3", "hand out a to c4"},
	}, {
		name: "the claim of higher priority is served first, however young",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready),
			aClaim("old", asked(time.Hour)), aClaim("urgent", asked(time.Second), priority(1)), aClaim("low", asked(2*time.Hour), priority(-1))),
		want: []string{"hand out a to urgent", "claim old: Bound=False/Pending", "claim low: Bound=False/Pending", "create 2"},
	}, {
		name: "of equal priority the older claim is served first, and of the same second the first by name",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", readyFor(3*time.Second)), aPod("b", readyFor(2*time.Second)), aPod("c", readyFor(time.Second)),
			aClaim("z", asked(2*time.Minute)), aClaim("y", asked(time.Minute)), aClaim("x", asked(time.Minute))),
		want: []string{"hand out a to z", "hand out b to x", "hand out c to y"},
	}, {
		name: "a claim whose hand-out was refused lets the others go first",
		snapshot: snapshot(aPool(maxSize(1)), aPod("a", ready),
			aClaim("bad", priority(9), asked(time.Hour), withCondition(v1alpha1.ClaimBound, metav1.ConditionFalse, v1alpha1.ReasonHandOutRefused)),
			aClaim("good")),
		want: []string{"hand out a to good", "at capacity"},
	}, {
		name: "a claim whose hand-out was refused is tried again when it is alone, and keeps its reason",
		snapshot: snapshot(aPool(), aPod("a", ready),
			aClaim("bad", withCondition(v1alpha1.ClaimBound, metav1.ConditionFalse, v1alpha1.ReasonHandOutRefused))),
		want: []string{"hand out a to bad", "create 1"},
	}, {
		name:     "a Pod that is not Ready stays",
		snapshot: snapshot(aPool(), aPod("a", notReadyFor(time.Second)), aClaim("c")),
		want:     []string{"claim c: Bound=False/Pending", "create 1", "again in 4m59s"},
	}, {
		name:     "a Pod that is terminating stays",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, podDeleting), aClaim("c")),
		want:     []string{"claim c: Bound=False/Pending", "create 1"},
	}, {
		name:     "a Pod that ended stays, though its condition says Ready",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }), aClaim("c")),
		want:     []string{"claim c: Bound=False/PoolExhausted", "delete a: ended by itself: Succeeded"},
	}, {
		name:     "a Pod must have been Ready for minReadySeconds",
		snapshot: snapshot(aPool(replicas(0), minReadySeconds(30)), aPod("a", readyFor(20*time.Second)), aClaim("c")),
		want:     []string{"claim c: Bound=False/Pending", "again in 10s"},
	}, {
		name:     "after minReadySeconds to the second a Pod can be handed out",
		snapshot: snapshot(aPool(replicas(0), minReadySeconds(30)), aPod("a", readyFor(30*time.Second)), aClaim("c")),
		want:     []string{"hand out a to c"},
	}, {
		name:     "a pool of no replicas starts a Pod for each claim",
		snapshot: snapshot(aPool(replicas(0)), aClaim("c1"), aClaim("c2")),
		want:     []string{"claim c1: Bound=False/Pending", "claim c2: Bound=False/Pending", "create 2"},
	}, {
		name:     "Pods that are starting already are those that the claims wait for",
		snapshot: snapshot(aPool(replicas(0)), aPod("a"), aClaim("c1"), aClaim("c2")),
		want:     []string{"claim c1: Bound=False/Pending", "claim c2: Bound=False/Pending", "create 1", "again in 4m0s"},
	}, {
		name:     "a claim that is being deleted gets nothing",
		snapshot: snapshot(aPool(), aPod("a", ready), aClaim("c", claimDeleting)),
	}, {
		name:     "a claim that has a Pod already gets no other one, though its status doesn't say so yet",
		snapshot: snapshot(aPool(), aPod("a", ready), aPod("b", ready, of("c")), aClaim("c")),
		want:     []string{"claim c: Bound=True/HandedOut Ready=True/PodReady, pod b"},
	}, {
		name:     "a claim whose Pod is gone gets no other one",
		snapshot: snapshot(aPool(), aPod("a", ready), aClaim("c", bound("b"))),
		want:     []string{"claim c: Bound=True/HandedOut Ready=False/PodLost Finished=True/PodLost, pod b, once its Pod is confirmed gone"},
	}, {
		name: "a claim that is finished gets nothing",
		snapshot: snapshot(aPool(), aPod("a", ready),
			aClaim("c", withCondition(v1alpha1.ClaimFinished, metav1.ConditionTrue, v1alpha1.ReasonTimedOut))),
	}})
}

func TestPlanReplacesPodsThatNeverServe(t *testing.T) {
	runPlanCases(t, []planCase{{
		name:     "a Pod that isn't Ready in time is deleted, and its successor waits until it goes",
		snapshot: snapshot(aPool(), aPod("a", created(5*time.Minute))),
		want:     []string{"delete a: not Ready for 300 s (readinessTimeoutSeconds)"},
	}, {
		name:     "the time counts from when the Pod was Ready last",
		snapshot: snapshot(aPool(), aPod("a", created(time.Hour), notReadyFor(299*time.Second))),
		want:     []string{"again in 1s"},
	}, {
		name:     "a condition from before the creation doesn't shorten the time",
		snapshot: snapshot(aPool(), aPod("a", created(time.Second), notReadyFor(time.Hour))),
		want:     []string{"again in 4m59s"},
	}, {
		name:     "a Pod that is Ready and waits for minReadySeconds only is not too late",
		snapshot: snapshot(aPool(minReadySeconds(900)), aPod("a", created(time.Hour), readyFor(10*time.Minute))),
		want:     []string{"again in 5m0s"},
	}, {
		name:     "a timeout of 0 waits for ever",
		snapshot: snapshot(aPool(readinessTimeout(0)), aPod("a", created(1000*time.Hour))),
	}, {
		name:     "a pool without the field waits for 300 s",
		snapshot: snapshot(aPool(notDefaulted), aPod("a", created(299*time.Second))),
		want:     []string{"again in 1s"},
	}, {
		name:     "a claimed Pod that isn't Ready is left alone",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", created(time.Hour), notReadyFor(time.Hour), of("c")), aClaim("c", bound("a"))),
		want:     []string{"claim c: Bound=True/HandedOut Ready=False/PodNotReady, pod a"},
	}, {
		name:     "a Pod that failed is deleted",
		snapshot: snapshot(aPool(), aPod("a", ended(corev1.PodFailed))),
		want:     []string{"delete a: ended by itself: Failed"},
	}, {
		name:     "a Pod that failed within ten seconds holds its place until they are over",
		snapshot: snapshot(aPool(), aPod("a", created(3*time.Second), ended(corev1.PodFailed))),
		want:     []string{"again in 7s"},
	}, {
		name: "of the times to come the earliest counts",
		snapshot: snapshot(aPool(replicas(3), minReadySeconds(30)), aPod("a"), aPod("b", readyFor(29*time.Second)), aPod("c", created(3*time.Second), ended(corev1.PodFailed)),
			aClaim("c1", timeout(62), withCondition(v1alpha1.ClaimBound, metav1.ConditionFalse, v1alpha1.ReasonPending))),
		want: []string{"claim c1: Bound=False/Pending", "create 1", "again in 1s"},
	}, {
		name:     "a fraction of a second is waited for, not rounded away",
		snapshot: snapshot(aPool(), aPod("a", created(5*time.Minute-time.Microsecond))),
		want:     []string{"again in 1ms"},
	}})
}

func TestPlanDeletesSurplus(t *testing.T) {
	runPlanCases(t, []planCase{{
		name: "failed Pods go first, then unscheduled ones, then scheduled ones, then ready ones",
		snapshot: snapshot(aPool(replicas(1)), aPod("ready", ready, onNode("n")), aPod("scheduled", onNode("n")), aPod("unscheduled"),
			aPod("failed", created(time.Second), ended(corev1.PodFailed))),
		want: []string{
			"delete failed: more idle Pods than asked for",
			"delete unscheduled: more idle Pods than asked for",
			"delete scheduled: more idle Pods than asked for",
			"again in 9s",
		},
	}, {
		name: "of the failed Pods the first by name goes first",
		snapshot: snapshot(aPool(replicas(1)), aPod("b", created(time.Second), ended(corev1.PodFailed)),
			aPod("a", created(time.Second), ended(corev1.PodFailed))),
		want: []string{"delete a: more idle Pods than asked for", "again in 9s"},
	}, {
		name:     "of the starting Pods the youngest goes first, and of the same second the first by name",
		snapshot: snapshot(aPool(replicas(1)), aPod("a", created(30*time.Second)), aPod("c", created(20*time.Second)), aPod("b", created(20*time.Second))),
		want:     []string{"delete b: more idle Pods than asked for", "delete c: more idle Pods than asked for", "again in 4m30s"},
	}, {
		name:     "of the ready Pods the one goes that would be handed out last",
		snapshot: snapshot(aPool(replicas(1)), aPod("a", readyFor(10*time.Second)), aPod("b", readyFor(30*time.Second)), aPod("c", readyFor(20*time.Second))),
		want:     []string{"delete a: more idle Pods than asked for", "delete c: more idle Pods than asked for"},
	}, {
		name:     "a Pod that is handed out in the same plan is no surplus",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", readyFor(time.Minute)), aPod("b", readyFor(time.Second)), aClaim("c")),
		want:     []string{"hand out a to c", "delete b: more idle Pods than asked for"},
	}, {
		name: "a Pod that is deleted for another reason is not counted twice",
		snapshot: snapshot(aPool(replicas(1)), aPod("failed", ended(corev1.PodFailed)), aPod("late", created(time.Hour)),
			aPod("a", readyFor(30*time.Second)), aPod("b", readyFor(20*time.Second))),
		want: []string{
			"delete failed: ended by itself: Failed",
			"delete late: not Ready for 300 s (readinessTimeoutSeconds)",
			"delete b: more idle Pods than asked for",
		},
	}, {
		name:     "more Pods may end by themselves than are too many",
		snapshot: snapshot(aPool(replicas(1)), aPod("f1", ended(corev1.PodFailed)), aPod("f2", ended(corev1.PodFailed)), aPod("f3", ended(corev1.PodFailed))),
		want: []string{
			"delete f1: ended by itself: Failed",
			"delete f2: ended by itself: Failed",
			"delete f3: ended by itself: Failed",
		},
	}, {
		name: "a claim's second Pod is none of the pool's idle ones",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, of("c")), aPod("b", ready, of("c")), aPod("d", ready),
			aClaim("c", bound("a"))),
		want: []string{
			"delete b: not the Pod in the status of claim c",
			"delete d: more idle Pods than asked for",
		},
	}, {
		name:     "a claimed Pod is never surplus",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, of("c")), aClaim("c", bound("a"))),
	}})
}

func TestPlanKeepsToMaxSize(t *testing.T) {
	runPlanCases(t, []planCase{{
		name:     "no more Pods are created than maxSize allows",
		snapshot: snapshot(aPool(replicas(5), maxSize(3))),
		want:     []string{"create 3", "at capacity"},
	}, {
		name:     "as many as maxSize is not at capacity",
		snapshot: snapshot(aPool(replicas(3), maxSize(3))),
		want:     []string{"create 3"},
	}, {
		name: "claimed Pods use the room of idle ones",
		snapshot: snapshot(aPool(replicas(2), maxSize(3)), aPod("a", ready, of("c1")), aPod("b", ready, of("c2")),
			aClaim("c1", bound("a")), aClaim("c2", bound("b"))),
		want: []string{"create 1", "at capacity"},
	}, {
		name: "a claim that would need one more waits",
		snapshot: snapshot(aPool(replicas(1), maxSize(1)), aPod("a", ready, of("c1")),
			aClaim("c1", bound("a")), aClaim("c2")),
		want: []string{"claim c2: Bound=False/AtCapacity", "at capacity"},
	}, {
		name:     "a Pod that is handed out in the same plan keeps its place",
		snapshot: snapshot(aPool(replicas(1), maxSize(1)), aPod("a", ready), aClaim("c")),
		want:     []string{"hand out a to c", "at capacity"},
	}, {
		name:     "idle Pods that are terminating still use the room",
		snapshot: snapshot(aPool(replicas(3), maxSize(3)), aPod("a", ready, podDeleting), aPod("b", podDeleting)),
		want:     []string{"create 1", "at capacity"},
	}, {
		name: "claimed Pods that are terminating still use the room, also when their claim is gone",
		snapshot: snapshot(aPool(replicas(3), maxSize(3)), aPod("a", ready, podDeleting, of("c")), aPod("b", ready, of("gone")),
			aClaim("c", bound("a"), claimDeleting)),
		want: []string{"create 1", "at capacity"},
	}, {
		name: "claimed Pods that ended use no room",
		snapshot: snapshot(aPool(replicas(1), maxSize(1)), aPod("a", ended(corev1.PodSucceeded), of("c")),
			aClaim("c", bound("a"))),
		want: []string{"claim c: Bound=True/HandedOut Ready=False/PodNotReady Finished=True/PodSucceeded, pod a", "create 1"},
	}, {
		name:     "Pods of the pool that ended use no room, but the place of one that is asked for",
		snapshot: snapshot(aPool(replicas(2), maxSize(2)), aPod("a", created(time.Second), ended(corev1.PodFailed))),
		want:     []string{"create 1", "again in 9s"},
	}, {
		name: "lowering maxSize deletes idle Pods and no claimed one",
		snapshot: snapshot(aPool(replicas(2), maxSize(1)), aPod("a", ready, of("c1")), aPod("b", ready, of("c2")), aPod("d", ready),
			aClaim("c1", bound("a")), aClaim("c2", bound("b"))),
		want: []string{"delete d: more idle Pods than asked for", "at capacity"},
	}, {
		name:     "a Pod that is handed out in the same plan uses the room of another",
		snapshot: snapshot(aPool(replicas(2), maxSize(1)), aPod("a", readyFor(time.Minute)), aPod("b", readyFor(time.Second)), aClaim("c")),
		want:     []string{"hand out a to c", "delete b: more idle Pods than asked for", "at capacity"},
	}, {
		name:     "claims come before the idle reserve",
		snapshot: snapshot(aPool(replicas(2), maxSize(2)), aPod("a"), aClaim("c1"), aClaim("c2"), aClaim("c3")),
		want: []string{
			"claim c1: Bound=False/Pending", "claim c2: Bound=False/Pending", "claim c3: Bound=False/AtCapacity",
			"create 1", "at capacity", "again in 4m0s",
		},
	}})
}

func TestPlanOfAPoolThatIsPausedOrGone(t *testing.T) {
	runPlanCases(t, []planCase{{
		name:     "a paused pool creates nothing",
		snapshot: snapshot(aPool(replicas(3), paused)),
	}, {
		name:     "a paused pool deletes nothing",
		snapshot: snapshot(aPool(replicas(0), paused), aPod("a", ready), aPod("late", created(time.Hour)), aPod("failed", ended(corev1.PodFailed))),
	}, {
		name:     "a paused pool goes on handing out",
		snapshot: snapshot(aPool(paused), aPod("a", ready), aClaim("c1", asked(2*time.Minute)), aClaim("c2")),
		want:     []string{"hand out a to c1", "claim c2: Bound=False/PoolExhausted"},
	}, {
		name:     "a Pod that was starting when the pool was paused is still one to wait for",
		snapshot: snapshot(aPool(paused, minReadySeconds(30)), aPod("a", readyFor(20*time.Second)), aClaim("c")),
		want:     []string{"claim c: Bound=False/Pending", "again in 10s"},
	}, {
		name:     "without a pool the claims wait, and are told why",
		snapshot: snapshot(nil, aClaim("c", timeout(100))),
		want:     []string{"claim c: Bound=False/PoolNotFound", "again in 40s"},
	}, {
		name:     "without a pool a claim that has its Pod keeps it",
		snapshot: snapshot(nil, aPod("a", ready, of("c")), aClaim("c", bound("a"))),
	}, {
		name:     "without a pool a claim's status is still brought up to date",
		snapshot: snapshot(nil, aPod("a", ended(corev1.PodFailed), of("c")), aClaim("c", bound("a"))),
		want:     []string{"claim c: Bound=True/HandedOut Ready=False/PodNotReady Finished=True/PodFailed, pod a"},
	}, {
		name: "a pool that is being deleted hands out, creates and deletes nothing",
		snapshot: snapshot(aPool(replicas(3), poolDeleting), aPod("a", ready), aPod("late", created(time.Hour)), aPod("b", ready, of("c1")),
			aClaim("c1", bound("b")), aClaim("c2")),
		want: []string{"claim c2: Bound=False/PoolNotFound"},
	}, {
		name:     "a refused creation is tried again, and the claims are told of it",
		snapshot: snapshot(aPool(creationsRefused), aPod("a"), aClaim("c1", asked(2*time.Minute)), aClaim("c2")),
		want:     []string{"claim c1: Bound=False/Pending", "claim c2: Bound=False/PoolExhausted", "create 2", "again in 4m0s"},
	}})
}

func TestObjectsOfASnapshot(t *testing.T) {
	for _, c := range []struct {
		name     string
		snapshot pool.Snapshot
		want     []string
	}{
		{"all of them", snapshot(aPool(), aPod("a"), aPod("b"), aClaim("c")), []string{"runners", "c", "a", "b"}},
		{"without a pool there is no nil among them", snapshot(nil, aClaim("c")), []string{"c"}},
		{"nothing at all", pool.Snapshot{}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, object := range c.snapshot.Objects() {
				got = append(got, object.GetName())
			}
			expect(t, got, c.want)
		})
	}
}
