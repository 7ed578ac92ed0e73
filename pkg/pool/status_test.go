package pool_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/pool"
)

// status works the status out, and checks what holds for every one: the arguments
// stay as they are, and a pool that has this status already has nothing to change, an
// hour later either.
func status(t *testing.T, s pool.Snapshot, outcome pool.Outcome) v1alpha1.WarmPoolStatus {
	t.Helper()
	actions := pool.Plan(s, now)
	before := deepCopy(s)
	got, changed := pool.Status(s, actions, outcome, now)
	if !reflect.DeepEqual(s, before) {
		t.Error("Status changed its arguments")
	}
	if changed == pool.Unchanged {
		t.Error("the status of a pool without any is said to be the same")
	}
	written := deepCopy(s)
	written.Pool.Status = got
	if again, changed := pool.Status(written, actions, outcome, now.Add(300*time.Millisecond)); changed != pool.Unchanged {
		t.Errorf("the same again is said to be a change:\n got %+v\nwant %+v", again, got)
	}
	return got
}

func describeStatus(s v1alpha1.WarmPoolStatus) []string {
	return []string{
		fmt.Sprintf("replicas %d, ready %d, claimed %d, pending %d", s.Replicas, s.ReadyReplicas, s.ClaimedReplicas, s.PendingClaims),
		describeConditions(s.Conditions),
	}
}

func TestStatusOfANewPool(t *testing.T) {
	got := status(t, snapshot(aPool(replicas(2), func(p *v1alpha1.WarmPool) { p.Generation = 4 })), pool.Outcome{
		Pods: []*corev1.Pod{aPod("a"), aPod("b")}, Created: 2,
	})
	want := v1alpha1.WarmPoolStatus{
		Replicas:           2,
		UpdatedReplicas:    2,
		UpdateRevision:     presentHash,
		LastProgressTime:   ptr.To(metav1.NewTime(now)),
		Selector:           "warmpool.dev/pool=runners,warmpool.dev/state=idle",
		ObservedGeneration: 4,
		Conditions: []metav1.Condition{
			{Type: "Available", Status: "False", ObservedGeneration: 4, LastTransitionTime: metav1.NewTime(now), Reason: "TooFewReady", Message: "fewer Pods are ready than spec.replicas asks for"},
			{Type: "AtCapacity", Status: "False", ObservedGeneration: 4, LastTransitionTime: metav1.NewTime(now), Reason: "Room", Message: "spec.maxSize keeps no Pod from being created"},
			{Type: "Paused", Status: "False", ObservedGeneration: 4, LastTransitionTime: metav1.NewTime(now), Reason: "NotPaused", Message: "spec.paused is false"},
			{Type: "ReplicaFailure", Status: "False", ObservedGeneration: 4, LastTransitionTime: metav1.NewTime(now), Reason: "CreateAccepted", Message: "the API server accepts the Pods"},
			{Type: "Progressing", Status: "True", ObservedGeneration: 4, LastTransitionTime: metav1.NewTime(now), Reason: "Filling", Message: "Pods are being started, or replaced"},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

func TestStatusCounts(t *testing.T) {
	const quiet = "Available=True/EnoughReady AtCapacity=False/Room Paused=False/NotPaused ReplicaFailure=False/CreateAccepted Progressing=True/Complete"
	const tooFew = "Available=False/TooFewReady AtCapacity=False/Room Paused=False/NotPaused ReplicaFailure=False/CreateAccepted Progressing=True/Filling"
	for _, c := range []struct {
		name     string
		snapshot pool.Snapshot
		outcome  pool.Outcome
		want     []string
	}{{
		name: "each Pod and each claim where it stands",
		snapshot: snapshot(aPool(replicas(4)),
			aPod("ready", ready), aPod("starting"), aPod("failed", created(time.Second), ended(corev1.PodFailed)), aPod("ending", ready, podDeleting),
			aPod("claimed", ready, of("c1")), aPod("claimed-ended", ended(corev1.PodSucceeded), of("c2")), aPod("claimed-ending", ready, podDeleting, of("c3")),
			aClaim("c1", bound("claimed")), aClaim("c2", bound("claimed-ended")), aClaim("c3", bound("claimed-ending"), claimDeleting),
			aClaim("late", asked(time.Hour), timeout(1))),
		outcome: pool.Outcome{Pods: []*corev1.Pod{aPod("new")}, Created: 1},
		want:    []string{"replicas 4, ready 1, claimed 2, pending 0", tooFew},
	}, {
		name:     "a pool of no replicas is available",
		snapshot: snapshot(aPool(replicas(0))),
		want:     []string{"replicas 0, ready 0, claimed 0, pending 0", quiet},
	}, {
		name:     "a pool without spec.replicas wants one ready Pod",
		snapshot: snapshot(aPool(notDefaulted), aPod("a")),
		want:     []string{"replicas 1, ready 0, claimed 0, pending 0", tooFew},
	}, {
		name:     "a Pod that isn't Ready for minReadySeconds yet is not ready",
		snapshot: snapshot(aPool(replicas(2), minReadySeconds(30)), aPod("a", readyFor(29*time.Second)), aPod("b", readyFor(30*time.Second))),
		want:     []string{"replicas 2, ready 1, claimed 0, pending 0", tooFew},
	}, {
		name:     "a hand-out of this reconcile counts, though the cache doesn't show it yet",
		snapshot: snapshot(aPool(replicas(1)), aPod("a", ready), aClaim("c1", asked(time.Hour)), aClaim("c2")),
		outcome: pool.Outcome{
			Pods:    []*corev1.Pod{aPod("a", ready, of("c1")), aPod("b"), aPod("d")},
			Claims:  []*v1alpha1.PodClaim{aClaim("c1", bound("a"))},
			Created: 2,
		},
		want: []string{"replicas 2, ready 0, claimed 1, pending 1", tooFew},
	}, {
		name:     "a hand-out that was refused leaves the Pod idle and the claim pending",
		snapshot: snapshot(aPool(replicas(1)), aPod("a", ready), aClaim("c1")),
		outcome:  pool.Outcome{Pods: []*corev1.Pod{aPod("b")}, Created: 1},
		want:     []string{"replicas 2, ready 1, claimed 0, pending 1", strings.Replace(quiet, "Complete", "Filling", 1)},
	}, {
		name:     "a hand-out whose claim's status couldn't be written counts all the same",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready), aClaim("c1")),
		outcome:  pool.Outcome{Pods: []*corev1.Pod{aPod("a", ready, of("c1"))}},
		want:     []string{"replicas 0, ready 0, claimed 1, pending 0", quiet},
	}, {
		name:     "a deletion of this reconcile counts, and one that was refused doesn't",
		snapshot: snapshot(aPool(replicas(1)), aPod("a", readyFor(3*time.Second)), aPod("b", readyFor(2*time.Second)), aPod("c", readyFor(time.Second))),
		outcome:  pool.Outcome{Deleted: []types.UID{"uid-of-b"}},
		want:     []string{"replicas 2, ready 2, claimed 0, pending 0", quiet},
	}, {
		name:     "a claim that timed out in this reconcile is not pending",
		snapshot: snapshot(aPool(replicas(0)), aClaim("c", asked(time.Hour), timeout(60))),
		outcome: pool.Outcome{Claims: []*v1alpha1.PodClaim{
			aClaim("c", asked(time.Hour), timeout(60), withCondition(v1alpha1.ClaimFinished, metav1.ConditionTrue, v1alpha1.ReasonTimedOut)),
		}},
		want: []string{"replicas 0, ready 0, claimed 0, pending 0", quiet},
	}, {
		name:     "a claimed Pod of a claim that is gone counts until it is gone too",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, of("gone"))),
		want:     []string{"replicas 0, ready 0, claimed 1, pending 0", quiet},
	}} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, describeStatus(status(t, c.snapshot, c.outcome)), c.want)
		})
	}
}

func TestStatusConditions(t *testing.T) {
	for _, c := range []struct {
		name     string
		snapshot pool.Snapshot
		outcome  pool.Outcome
		want     []string
	}{{
		name:     "maxSize leaves no room",
		snapshot: snapshot(aPool(replicas(2), maxSize(1)), aPod("a", ready)),
		want: []string{
			"replicas 1, ready 1, claimed 0, pending 0",
			"Available=False/TooFewReady AtCapacity=True/MaxSize Paused=False/NotPaused ReplicaFailure=False/CreateAccepted Progressing=True/Complete",
		},
	}, {
		name:     "a paused pool that isn't full",
		snapshot: snapshot(aPool(paused)),
		want: []string{
			"replicas 0, ready 0, claimed 0, pending 0",
			"Available=False/TooFewReady AtCapacity=False/Room Paused=True/Paused ReplicaFailure=False/CreateAccepted Progressing=Unknown/Paused",
		},
	}, {
		name:     "a creation is refused, after others were accepted",
		snapshot: snapshot(aPool(replicas(3))),
		outcome:  pool.Outcome{Pods: []*corev1.Pod{aPod("a")}, Created: 1, CreateError: errors.New("exceeded quota"), CreateName: "runners-1"},
		want: []string{
			"replicas 1, ready 0, claimed 0, pending 0",
			"Available=False/TooFewReady AtCapacity=False/Room Paused=False/NotPaused ReplicaFailure=True/FailedCreate Progressing=True/Filling",
		},
	}, {
		name:     "a creation that failed for no fault of the pool's says nothing of it",
		snapshot: snapshot(aPool()),
		want: []string{
			"replicas 0, ready 0, claimed 0, pending 0",
			"Available=False/TooFewReady AtCapacity=False/Room Paused=False/NotPaused Progressing=True/Filling",
		},
	}, {
		name:     "the refusal stays while no attempt says otherwise",
		snapshot: snapshot(aPool(creationsRefused)),
		want: []string{
			"replicas 0, ready 0, claimed 0, pending 0",
			"ReplicaFailure=True/FailedCreate Available=False/TooFewReady AtCapacity=False/Room Paused=False/NotPaused Progressing=True/Filling",
		},
	}, {
		name:     "the refusal is over once a creation is accepted",
		snapshot: snapshot(aPool(creationsRefused)),
		outcome:  pool.Outcome{Pods: []*corev1.Pod{aPod("a")}, Created: 1},
		want: []string{
			"replicas 1, ready 0, claimed 0, pending 0",
			"ReplicaFailure=False/CreateAccepted Available=False/TooFewReady AtCapacity=False/Room Paused=False/NotPaused Progressing=True/Filling",
		},
	}, {
		name:     "the refusal is over once nothing has to be created",
		snapshot: snapshot(aPool(creationsRefused), aPod("a", ready)),
		want: []string{
			"replicas 1, ready 1, claimed 0, pending 0",
			"ReplicaFailure=False/CreateAccepted Available=True/EnoughReady AtCapacity=False/Room Paused=False/NotPaused Progressing=True/Complete",
		},
	}} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, describeStatus(status(t, c.snapshot, c.outcome)), c.want)
		})
	}
}

// TestARefusalThatRepeatsIsNotWrittenAgain is about the loop that a message with a
// random name in it makes: a status write is an event, which is another attempt.
func TestARefusalThatRepeatsIsNotWrittenAgain(t *testing.T) {
	s := snapshot(aPool(replicas(1)))
	refusal := func(name string) pool.Outcome {
		return pool.Outcome{CreateName: name, CreateError: fmt.Errorf("pods %q is forbidden: exceeded quota: pods", name)}
	}
	first, _ := pool.Status(s, pool.Plan(s, now), refusal("runners-x7k2"), now)
	failure := meta.FindStatusCondition(first.Conditions, v1alpha1.PoolReplicaFailure)
	if want := `pods "NAME" is forbidden: exceeded quota: pods`; failure.Type != "ReplicaFailure" || failure.Message != want {
		t.Errorf("\n got %s: %s\nwant ReplicaFailure: %s", failure.Type, failure.Message, want)
	}
	s.Pool.Status = first
	if second, changed := pool.Status(s, pool.Plan(s, now), refusal("runners-p9q4"), now.Add(time.Minute)); changed != pool.Unchanged {
		t.Errorf("the same refusal under another name is said to be a change:\n got %+v\nwant %+v", second, first)
	}
}

func TestAConditionsTimeMovesOnlyWhenItTurns(t *testing.T) {
	s := snapshot(aPool(replicas(1)), aPod("a", ready))
	first, _ := pool.Status(s, pool.Plan(s, now), pool.Outcome{}, now)
	s.Pool = aPool(replicas(1), paused)
	s.Pool.Generation = 2
	s.Pool.Status = first
	later := now.Add(time.Hour)
	before := deepCopy(s)
	second, changed := pool.Status(s, pool.Plan(s, later), pool.Outcome{}, later)
	if !reflect.DeepEqual(s, before) {
		t.Error("Status changed the conditions that the pool has")
	}
	if changed == pool.Unchanged {
		t.Error("a pool that was paused is said to have the same status")
	}
	var got []string
	for _, condition := range second.Conditions {
		got = append(got, fmt.Sprintf("%s=%s since %s", condition.Type, condition.Status, condition.LastTransitionTime.UTC().Format(time.TimeOnly)))
	}
	expect(t, got, []string{
		"Available=True since 12:00:00",
		"AtCapacity=False since 12:00:00",
		"Paused=True since 13:00:00",
		"ReplicaFailure=False since 12:00:00",
		"Progressing=Unknown since 13:00:00",
	})
}

func TestIdleSelectorSelectsWhatNewPodMakes(t *testing.T) {
	selector := pool.IdleSelector("runners")
	if want := "warmpool.dev/pool=runners,warmpool.dev/state=idle"; selector != want {
		t.Errorf("got %s, want %s", selector, want)
	}
	parsed, err := labels.Parse(selector)
	if err != nil {
		t.Fatal(err)
	}
	pod := pool.NewPod(aPool(), "runners-1")
	if !parsed.Matches(labels.Set(pod.Labels)) {
		t.Errorf("%s doesn't select a new Pod, with the labels %v", selector, pod.Labels)
	}
	of("c")(pod)
	if parsed.Matches(labels.Set(pod.Labels)) {
		t.Errorf("%s selects a claimed Pod, with the labels %v", selector, pod.Labels)
	}
}
