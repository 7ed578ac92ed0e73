package main

// Builders of pools, claims and Pods for the tests of this package. All are of
// namespace ci, and Pods and claims are of pool runners unless an option says else.

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/pool"
)

// start is the time at which each test begins: that of a bubble of testing/synctest.
var start = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(start.Add(-d)) }

// aPool is a WarmPool that wants one idle Pod.
func aPool(name string, options ...func(*v1alpha1.WarmPool)) *v1alpha1.WarmPool {
	p := &v1alpha1.WarmPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: name, UID: types.UID("uid-of-" + name), Generation: 1, CreationTimestamp: ago(time.Hour)},
		Spec: v1alpha1.WarmPoolSpec{
			Replicas:                ptr.To[int32](1),
			ReadinessTimeoutSeconds: ptr.To[int32](300),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "runner"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "runner", Image: "example.com/runner:1"}}},
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

func poolDeleting(p *v1alpha1.WarmPool) { p.DeletionTimestamp = ptr.To(ago(time.Second)) }

// presentHash is that of the template of every pool here.
var presentHash = pool.TemplateHash(&aPool("runners").Spec.Template)

// aPod is an idle Pod of pool runners that is a minute old and not Ready yet.
func aPod(name string, options ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ci", Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: ago(time.Minute),
			Labels:          map[string]string{v1alpha1.LabelPool: "runners", v1alpha1.LabelState: v1alpha1.StateIdle, v1alpha1.LabelTemplateHash: presentHash},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(aPool("runners"), v1alpha1.WarmPoolKind)},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, option := range options {
		option(pod)
	}
	return pod
}

func ready(pod *corev1.Pod) { readyFor(0)(pod) }

func readyFor(d time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.NodeName = "node-1"
		pod.Status = corev1.PodStatus{
			Phase:      corev1.PodRunning,
			PodIPs:     []corev1.PodIP{{IP: "10.0.0.1"}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(d)}},
		}
	}
}

func withUID(uid types.UID) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.UID = uid } }

// ofPool makes another pool the owner of the Pod.
func ofPool(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(aPool(name), v1alpha1.WarmPoolKind)}
		pod.Labels[v1alpha1.LabelPool] = name
	}
}

// ofClaim makes a claim the owner of the Pod, as a hand-out does.
func ofClaim(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(aClaim(name), v1alpha1.PodClaimKind)}
		pod.Labels[v1alpha1.LabelState] = v1alpha1.StateClaimed
		pod.Labels[v1alpha1.LabelClaim] = name
	}
}

// labelledFor edits the label that says which pool the Pod was made for.
func labelledFor(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[v1alpha1.LabelPool] = name }
}

func ofNobody(pod *corev1.Pod) { pod.OwnerReferences = nil }

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

func on(poolName string) func(*v1alpha1.PodClaim) {
	return func(c *v1alpha1.PodClaim) { c.Spec.PoolName = poolName }
}

func claimUID(uid types.UID) func(*v1alpha1.PodClaim) {
	return func(c *v1alpha1.PodClaim) { c.UID = uid }
}

func timeout(seconds int32) func(*v1alpha1.PodClaim) {
	return func(c *v1alpha1.PodClaim) { c.Spec.TimeoutSeconds = seconds }
}

func podMetadata(key, value string) func(*v1alpha1.PodClaim) {
	return func(c *v1alpha1.PodClaim) {
		c.Spec.PodMetadata = &v1alpha1.PodMetadata{
			Labels:      map[string]string{key: value},
			Annotations: map[string]string{key: value},
		}
	}
}

// bound is the status of a claim that was told of its Pod a minute ago.
func bound(pod string) func(*v1alpha1.PodClaim) {
	return func(c *v1alpha1.PodClaim) {
		c.Status = pool.BoundStatus(c, aPod(pod, readyFor(time.Minute)), nil, start.Add(-time.Minute))
	}
}

func finished(c *v1alpha1.PodClaim) {
	c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ClaimFinished, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonTimedOut, LastTransitionTime: ago(time.Minute),
	})
}
