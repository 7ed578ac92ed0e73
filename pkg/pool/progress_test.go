package pool_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/pool"
)

func progressDeadline(n int32) func(*v1alpha1.WarmPool) {
	return func(p *v1alpha1.WarmPool) { p.Spec.ProgressDeadlineSeconds = ptr.To(n) }
}

// lastProgress is a status that says when the pool got on, and what it is at.
func lastProgress(before time.Duration, reason string) func(*v1alpha1.WarmPool) {
	return func(p *v1alpha1.WarmPool) {
		p.Status.ObservedGeneration, p.Status.UpdateRevision = p.Generation, presentHash
		p.Status.LastProgressTime = ptr.To(ago(before))
		p.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.PoolProgressing, Status: metav1.ConditionTrue, Reason: reason, ObservedGeneration: p.Generation,
		}}
	}
}

// reachedReady is how many Pods of the present template were ready before.
func reachedReady(n int32) func(*v1alpha1.WarmPool) {
	return func(p *v1alpha1.WarmPool) { p.Status.UpdatedReadyReplicas = n }
}

func unschedulable(message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message, LastTransitionTime: ago(time.Minute)},
		}
	}
}

func waitingFor(reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "runner", Image: "example.com/runner:2",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}
	}
}

// progressing works the status out and returns what it says of the progress.
func progressing(s pool.Snapshot, outcome pool.Outcome) (condition *metav1.Condition, since time.Time) {
	status, _ := pool.Status(s, pool.Plan(s, now), outcome, now)
	return meta.FindStatusCondition(status.Conditions, v1alpha1.PoolProgressing), status.LastProgressTime.Time
}

func TestProgressOfAPool(t *testing.T) {
	const minute, hour = time.Minute, time.Hour
	for _, c := range []struct {
		name     string
		snapshot pool.Snapshot
		want     string // status, reason, and how long ago the pool got on
	}{
		{"a new pool begins", snapshot(aPool()), "True Filling 0s"},
		{"nothing new", snapshot(aPool(lastProgress(minute, "Filling")), aPod("a")), "True Filling 1m0s"},
		{"one more is ready", snapshot(aPool(replicas(2), lastProgress(minute, "Filling")), aPod("a", ready), aPod("b")), "True Filling 0s"},
		{"as many are ready as before", snapshot(aPool(replicas(2), lastProgress(minute, "Filling"), reachedReady(1)), aPod("a", ready), aPod("b")), "True Filling 1m0s"},
		{"one got ready and was handed out at once", snapshot(aPool(lastProgress(minute, "Filling")), aPod("a", readyFor(time.Second), of("c")), aPod("b"), aClaim("c", bound("a"))), "True Filling 0s"},
		{"one is not ready any more", snapshot(aPool(replicas(2), lastProgress(hour, "Filling"), reachedReady(2)), aPod("a", ready), aPod("b")), "True Filling 0s"},
		{"one is over age", snapshot(aPool(maxIdle(60), lastProgress(minute, "Filling"), reachedReady(1)), aPod("a", ready)), "True Filling 1m0s"},
		{"an old one was handed out", snapshot(aPool(lastProgress(minute, "Rolling")), aPod("a", readyFor(time.Second), old("1"), of("c")), aPod("b"), aClaim("c", bound("a"))), "True Filling 1m0s"},
		{"all are ready", snapshot(aPool(lastProgress(minute, "Filling")), aPod("a", ready)), "True Complete 0s"},
		{"all are ready, as before", snapshot(aPool(lastProgress(hour, "Complete"), reachedReady(1)), aPod("a", ready)), "True Complete 1h0m0s"},
		{"a pool that was complete is not any more", snapshot(aPool(lastProgress(hour, "Complete"), reachedReady(1)), aPod("a")), "True Filling 0s"},
		{"the spec has changed", snapshot(aPool(lastProgress(minute, "Filling"), func(p *v1alpha1.WarmPool) { p.Generation = 2 }), aPod("a")), "True Filling 0s"},
		{"an old one is left", snapshot(aPool(lastProgress(minute, "Rolling"), reachedReady(1)), aPod("a", ready), aPod("b", ready, old("1"))), "True Rolling 1m0s"},
		{"one that Recreate hands out no more", snapshot(aPool(replicas(0), strategy(v1alpha1.Recreate), lastProgress(minute, "Rolling")), aPod("b", ready, old("1"))), "True Rolling 1m0s"},
		{"one that may stay", snapshot(aPool(strategy(v1alpha1.OnHandOut), lastProgress(hour, "Complete")), aPod("b", ready, old("1"))), "True Complete 1h0m0s"},
		{"a claim waits for a Pod", snapshot(aPool(replicas(0), lastProgress(minute, "Filling")), aPod("a"), aClaim("c")), "True Filling 1m0s"},
		{"a claim waits that can't have any", snapshot(aPool(replicas(0), lastProgress(hour, "Complete"), reachedReady(1)),
			aClaim("c", withCondition(v1alpha1.ClaimBound, metav1.ConditionFalse, v1alpha1.ReasonHandOutRefused)), aPod("a", readyFor(0))), "True Complete 1h0m0s"},
		{"maxSize leaves no room for more", snapshot(aPool(replicas(2), maxSize(1), lastProgress(hour, "Complete"), reachedReady(1)), aPod("a", ready)), "True Complete 1h0m0s"},
		{"just in time", snapshot(aPool(progressDeadline(61), lastProgress(minute, "Filling")), aPod("a")), "True Filling 1m0s"},
		{"too late", snapshot(aPool(progressDeadline(60), lastProgress(minute, "Filling")), aPod("a")), "False ProgressDeadlineExceeded 1m0s"},
		{"by default after ten minutes", snapshot(aPool(lastProgress(10*minute, "Filling")), aPod("a")), "False ProgressDeadlineExceeded 10m0s"},
		{"never too late", snapshot(aPool(progressDeadline(0), lastProgress(hour, "Filling")), aPod("a")), "True Filling 1h0m0s"},
		{"late, but one has got ready", snapshot(aPool(replicas(2), stuckAt(1)), aPod("a", ready), aPod("b")), "True Filling 0s"},
		{"a paused pool that is complete stays so", snapshot(aPool(paused, lastProgress(hour, "Paused"), reachedReady(1)), aPod("a", ready)), "Unknown Paused 1h0m0s"},
		{"a paused pool is never late", snapshot(aPool(paused, lastProgress(hour, "Filling")), aPod("a")), "Unknown Paused 1h0m0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			condition, since := progressing(c.snapshot, pool.Outcome{})
			if got := fmt.Sprintf("%s %s %s", condition.Status, condition.Reason, now.Sub(since)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestWhyAPoolDoesNotGetOn(t *testing.T) {
	for _, c := range []struct {
		name    string
		pods    []any
		outcome pool.Outcome
		want    string
	}{
		{"an image", []any{aPod("a", waitingFor("ImagePullBackOff", "Back-off pulling image"))}, pool.Outcome{},
			`the image "example.com/runner:2" of container "runner" can't be pulled: Back-off pulling image`},
		{"no room", []any{aPod("a", unschedulable("0/3 nodes are available: 3 Insufficient cpu."))}, pool.Outcome{},
			"Pods can't be scheduled: 0/3 nodes are available: 3 Insufficient cpu."},
		{"a crash", []any{aPod("a", waitingFor("CrashLoopBackOff", "back-off 5m0s restarting"))}, pool.Outcome{},
			`container "runner" ends again and again: look at its log: back-off 5m0s restarting`},
		{"a missing Secret", []any{aPod("a", waitingFor("CreateContainerConfigError", `secret "token" not found`))}, pool.Outcome{},
			`container "runner" can't be started: CreateContainerConfigError: secret "token" not found`},
		{"a probe", []any{aPod("a", func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "runner", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		})}, pool.Outcome{},
			`container "runner" runs and isn't ready: look at its readiness probe and at its log`},
		{"an end", []any{aPod("a", created(time.Second), ended(corev1.PodFailed), func(pod *corev1.Pod) { pod.Status.Reason = "Evicted" })}, pool.Outcome{},
			"Pods end by themselves: Failed, Evicted"},
		{"a quota", nil, pool.Outcome{CreateError: errors.New("exceeded quota: pods"), CreateName: "runners-1"},
			"the API server refuses to create Pods: exceeded quota: pods"},
		{"a readiness gate", []any{aPod("a", notReadyFor(time.Minute), func(pod *corev1.Pod) {
			pod.Status.Conditions[1].Reason, pod.Status.Conditions[1].Message = "ReadinessGatesNotReady", "the status of pod readiness gate \"x\" is not \"True\""
		})}, pool.Outcome{},
			`Pods run and aren't Ready: ReadinessGatesNotReady: the status of pod readiness gate "x" is not "True"`},
		{"an init container", []any{aPod("a", func(pod *corev1.Pod) {
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "fetch", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		})}, pool.Outcome{},
			`init container "fetch" is running: look at its log`},
		{"nothing is there and nothing is said", nil, pool.Outcome{},
			"Pods can't be created: a webhook may be down; see the controller's log"},
		{"a node that doesn't answer", []any{aPod("a", onNode("n"), waitingFor("ContainerCreating", ""))}, pool.Outcome{},
			"Pods have not been started by their nodes yet: look at the nodes, and at the events of Pod a"},
		{"a new Pod tells more than an old one", []any{aPod("a", created(time.Hour), old("1"), waitingFor("CrashLoopBackOff", "x")), aPod("b", unschedulable("no room"))}, pool.Outcome{},
			"Pods can't be scheduled: no room"},
		{"of two the one that says something", []any{aPod("a", created(time.Hour)), aPod("b", unschedulable("no room"))}, pool.Outcome{},
			"Pods can't be scheduled: no room"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := snapshot(aPool(progressDeadline(60), readinessTimeout(0), lastProgress(time.Hour, "Filling")), c.pods...)
			condition, _ := progressing(s, c.outcome)
			got, ok := strings.CutPrefix(condition.Message, "no Pod of the present template got ready within 60 s (progressDeadlineSeconds): ")
			if !ok || got != c.want {
				t.Errorf("\n got %s\nwant %s", condition.Message, c.want)
			}
		})
	}
}

// A kubelet counts in its messages; each number would be a write.
func TestACauseThatStaysKeepsItsWords(t *testing.T) {
	s := snapshot(aPool(progressDeadline(60), lastProgress(time.Hour, "Filling")), aPod("a", waitingFor("CrashLoopBackOff", "back-off 10s")))
	status, _ := pool.Status(s, pool.Plan(s, now), pool.Outcome{}, now)
	s.Pool.Status = status
	waitingFor("CrashLoopBackOff", "back-off 20s")(s.Pods[0])
	if again, change := pool.Status(s, pool.Plan(s, now), pool.Outcome{}, now.Add(time.Minute)); change != pool.Unchanged {
		t.Errorf("the same cause with another number is a change:\n got %+v\nwant %+v", again, status)
	}
	waitingFor("ErrImagePull", "not found")(s.Pods[0])
	if _, change := pool.Status(s, pool.Plan(s, now), pool.Outcome{}, now.Add(time.Minute)); change != pool.ConditionsChanged {
		t.Error("another cause is no change")
	}
}

func TestPlanWaitsForTheDeadline(t *testing.T) {
	runPlanCases(t, []planCase{{
		name:     "of a pool that has something to do",
		snapshot: snapshot(aPool(readinessTimeout(0), lastProgress(time.Minute, "Filling")), aPod("a")),
		want:     []string{"again in 9m0s"},
	}, {
		name:     "not of one that is complete",
		snapshot: snapshot(aPool(lastProgress(time.Minute, "Complete")), aPod("a", ready)),
	}, {
		name:     "nor of one that is late already",
		snapshot: snapshot(aPool(readinessTimeout(0), stuckAt(1)), aPod("a")),
	}, {
		name:     "nor of one that may take its time",
		snapshot: snapshot(aPool(readinessTimeout(0), progressDeadline(0), lastProgress(time.Minute, "Filling")), aPod("a")),
	}})
}

func TestPlanHasPatienceWithABrokenTemplate(t *testing.T) {
	late := func(pod string) string { return "delete " + pod + ": not Ready for 60 s (readinessTimeoutSeconds)" }
	pool := func(before time.Duration) *v1alpha1.WarmPool {
		return aPool(readinessTimeout(60), progressDeadline(0), lastProgress(before, "Filling"))
	}
	runPlanCases(t, []planCase{{
		name:     "the first Pod is given its time",
		snapshot: snapshot(pool(time.Minute), aPod("a", created(time.Minute))),
		want:     []string{late("a")},
	}, {
		name:     "its successor the time that the pool has got nowhere",
		snapshot: snapshot(pool(3*time.Minute), aPod("a", created(time.Minute))),
		want:     []string{"again in 1m0s"},
	}, {
		name:     "and then it is too late too",
		snapshot: snapshot(pool(4*time.Minute), aPod("a", created(2*time.Minute))),
		want:     []string{late("a")},
	}, {
		name:     "the time ends at an hour",
		snapshot: snapshot(pool(24*time.Hour), aPod("a", created(59*time.Minute))),
		want:     []string{"again in 1m0s"},
	}, {
		name:     "a Pod that ends by itself again and again is given more time as well",
		snapshot: snapshot(pool(3*time.Minute), aPod("a", created(time.Minute), ended(corev1.PodFailed))),
		want:     []string{"again in 1m0s"},
	}, {
		name:     "a Pod that can't be scheduled is kept",
		snapshot: snapshot(pool(time.Hour), aPod("a", created(time.Hour), unschedulable("no room"))),
	}, {
		name: "and has its time from when it is scheduled",
		snapshot: snapshot(pool(0), aPod("a", created(time.Hour), func(pod *corev1.Pod) {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: ago(10 * time.Second)}}
		})),
		want: []string{"again in 50s"},
	}})
}
