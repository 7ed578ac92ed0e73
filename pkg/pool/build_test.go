package pool_test

// Builders of pools, claims and Pods, and the words in which the tests of this
// package write down what they expect.

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/pool"
)

// now is the time at which the tests plan.
var now = time.Date(2026, time.May, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// aPool is WarmPool runners, which wants one idle Pod.
func aPool(options ...func(*v1alpha1.WarmPool)) *v1alpha1.WarmPool {
	p := &v1alpha1.WarmPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "runners", UID: "uid-of-runners", Generation: 1, CreationTimestamp: ago(time.Hour)},
		Spec: v1alpha1.WarmPoolSpec{
			Replicas:                ptr.To[int32](1),
			ReadinessTimeoutSeconds: ptr.To[int32](300),
			Template: corev1.PodTemplateSpec{
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "runner", Image: "example.com/runner:1"}}},
			},
		},
	}
	for _, option := range options {
		option(p)
	}
	return p
}

func replicas(n int32) func(*v1alpha1.WarmPool) {
	return func(p *v1alpha1.WarmPool) { p.Spec.Replicas = ptr.To(n) }
}

func maxSize(n int32) func(*v1alpha1.WarmPool) {
	return func(p *v1alpha1.WarmPool) { p.Spec.MaxSize = n }
}

func minReadySeconds(n int32) func(*v1alpha1.WarmPool) {
	return func(p *v1alpha1.WarmPool) { p.Spec.MinReadySeconds = n }
}

func readinessTimeout(n int32) func(*v1alpha1.WarmPool) {
	return func(p *v1alpha1.WarmPool) { p.Spec.ReadinessTimeoutSeconds = ptr.To(n) }
}

// notDefaulted leaves out the fields that the API server would have set.
func notDefaulted(p *v1alpha1.WarmPool) {
	p.Spec.Replicas, p.Spec.ReadinessTimeoutSeconds = nil, nil
}

func paused(p *v1alpha1.WarmPool) { p.Spec.Paused = true }

func poolDeleting(p *v1alpha1.WarmPool) { p.DeletionTimestamp = ptr.To(ago(time.Second)) }

// creationsRefused is what the status of a pool says after a refused creation.
func creationsRefused(p *v1alpha1.WarmPool) {
	p.Status.Conditions = append(p.Status.Conditions, metav1.Condition{
		Type: v1alpha1.PoolReplicaFailure, Status: metav1.ConditionTrue, LastTransitionTime: ago(time.Minute),
		Reason: v1alpha1.ReasonFailedCreate, Message: "exceeded quota",
	})
}

// presentHash is that of the template of pool runners.
var presentHash = pool.TemplateHash(&aPool().Spec.Template)

// aPod is a Pod of pool runners that is a minute old and not Ready yet.
func aPod(name string, options ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ci", Name: name, UID: types.UID("uid-of-" + name), ResourceVersion: "7", CreationTimestamp: ago(time.Minute),
			Labels:          map[string]string{v1alpha1.LabelPool: "runners", v1alpha1.LabelState: v1alpha1.StateIdle, v1alpha1.LabelTemplateHash: presentHash},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(aPool(), v1alpha1.WarmPoolKind)},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, option := range options {
		option(pod)
	}
	return pod
}

func created(age time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.CreationTimestamp = ago(age) }
}

func readyFor(d time.Duration) func(*corev1.Pod) { return readiness(corev1.ConditionTrue, d) }

func notReadyFor(d time.Duration) func(*corev1.Pod) { return readiness(corev1.ConditionFalse, d) }

func readiness(status corev1.ConditionStatus, d time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: ago(d)},
			{Type: corev1.PodReady, Status: status, LastTransitionTime: ago(d)},
		}
	}
}

func ready(pod *corev1.Pod) { readyFor(time.Minute)(pod) }

func onNode(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeName = name }
}

func ended(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		notReadyFor(time.Second)(pod)
		pod.Status.Phase = phase
	}
}

func podDeleting(pod *corev1.Pod) { pod.DeletionTimestamp = ptr.To(ago(time.Second)) }

// of makes a claim the owner of the Pod, as a hand-out does.
func of(claim string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(aClaim(claim), v1alpha1.PodClaimKind)}
		pod.Labels[v1alpha1.LabelState] = v1alpha1.StateClaimed
		pod.Labels[v1alpha1.LabelClaim] = claim
	}
}

// aClaim is a claim on pool runners that is a minute old and has no status yet.
func aClaim(name string, options ...func(*v1alpha1.PodClaim)) *v1alpha1.PodClaim {
	claim := &v1alpha1.PodClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: name, UID: types.UID("uid-of-" + name), Generation: 1, CreationTimestamp: ago(time.Minute)},
		Spec:       v1alpha1.PodClaimSpec{PoolName: "runners"},
	}
	for _, option := range options {
		option(claim)
	}
	return claim
}

func asked(age time.Duration) func(*v1alpha1.PodClaim) {
	return func(c *v1alpha1.PodClaim) { c.CreationTimestamp = ago(age) }
}

func priority(n int32) func(*v1alpha1.PodClaim) {
	return func(c *v1alpha1.PodClaim) { c.Spec.Priority = n }
}

func timeout(seconds int32) func(*v1alpha1.PodClaim) {
	return func(c *v1alpha1.PodClaim) { c.Spec.TimeoutSeconds = seconds }
}

func claimDeleting(c *v1alpha1.PodClaim) { c.DeletionTimestamp = ptr.To(ago(time.Second)) }

// bound is the status of a claim that was told of its Pod a minute ago, when the
// Pod was Ready.
func bound(pod string) func(*v1alpha1.PodClaim) {
	return func(c *v1alpha1.PodClaim) {
		c.Status = pool.BoundStatus(c, aPod(pod, ready), nil, now.Add(-time.Minute))
	}
}

func withCondition(kind string, status metav1.ConditionStatus, reason string) func(*v1alpha1.PodClaim) {
	return func(c *v1alpha1.PodClaim) {
		c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: "said before", ObservedGeneration: 1, LastTransitionTime: ago(time.Minute),
		})
	}
}

// snapshot puts the objects where they belong. The pool may be nil.
func snapshot(p *v1alpha1.WarmPool, objects ...any) pool.Snapshot {
	s := pool.Snapshot{Pool: p}
	for _, object := range objects {
		switch object := object.(type) {
		case *v1alpha1.PodClaim:
			s.Claims = append(s.Claims, object)
		case *corev1.Pod:
			s.Pods = append(s.Pods, object)
		case *corev1.Node:
			if s.Nodes == nil {
				s.Nodes = map[string]*corev1.Node{}
			}
			s.Nodes[object.Name] = object
		}
	}
	return s
}

func deepCopy(s pool.Snapshot) pool.Snapshot {
	c := pool.Snapshot{Pool: s.Pool.DeepCopy()}
	for _, claim := range s.Claims {
		c.Claims = append(c.Claims, claim.DeepCopy())
	}
	for _, pod := range s.Pods {
		c.Pods = append(c.Pods, pod.DeepCopy())
	}
	for name, node := range s.Nodes {
		if c.Nodes == nil {
			c.Nodes = map[string]*corev1.Node{}
		}
		c.Nodes[name] = node.DeepCopy()
	}
	return c
}

// plan plans, and checks what holds for every plan: it leaves its arguments as they
// are, says the same again, and doesn't depend on the order of the snapshot.
func plan(t *testing.T, s pool.Snapshot) pool.Actions {
	t.Helper()
	before := deepCopy(s)
	actions := pool.Plan(s, now)
	if !reflect.DeepEqual(s, before) {
		t.Errorf("Plan changed its arguments:\n got %+v\nwant %+v", s, before)
	}
	if again := pool.Plan(s, now); !reflect.DeepEqual(again, actions) {
		t.Errorf("Plan of the same snapshot:\n got %q\nwant %q", describe(again), describe(actions))
	}
	slices.Reverse(before.Claims)
	slices.Reverse(before.Pods)
	got, want := describe(pool.Plan(before, now)), describe(actions)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("Plan of the snapshot in reverse order:\n got %q\nwant %q", got, want)
	}
	return actions
}

// describe writes actions down, one a line.
func describe(actions pool.Actions) []string {
	var lines []string
	for _, h := range actions.HandOuts {
		lines = append(lines, fmt.Sprintf("hand out %s to %s", h.Pod.Name, h.Claim.Name))
	}
	for _, s := range actions.ClaimStatuses {
		line := fmt.Sprintf("claim %s: %s", s.Claim.Name, describeConditions(s.Status.Conditions))
		if s.Status.Pod != nil {
			line += ", pod " + s.Status.Pod.Name
		}
		if s.ConfirmGone {
			line += ", once its Pod is confirmed gone"
		}
		lines = append(lines, line)
	}
	for _, c := range actions.ExpiredClaims {
		lines = append(lines, "delete claim "+c.Name)
	}
	for _, d := range actions.Deletions {
		lines = append(lines, fmt.Sprintf("delete %s: %s", d.Pod.Name, d.Reason))
	}
	if actions.Creations != 0 {
		lines = append(lines, fmt.Sprintf("create %d", actions.Creations))
	}
	if actions.AtCapacity {
		lines = append(lines, "at capacity")
	}
	if actions.RequeueAfter != 0 {
		lines = append(lines, fmt.Sprintf("again in %s", actions.RequeueAfter))
	}
	return lines
}

func describeConditions(conditions []metav1.Condition) string {
	var words []string
	for _, c := range conditions {
		words = append(words, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
	}
	return strings.Join(words, " ")
}

// expect compares lines.
func expect(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("\n got:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}
