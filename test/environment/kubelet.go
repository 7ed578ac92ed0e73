package environment

// Somebody who plays scheduler and kubelet: it puts Pods on a node, makes them Ready
// and lets deleted ones go.

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
)

// kubeletWorkers is how many Pods a kubelet handles at the same time.
const kubeletWorkers = 4

// Kubelet plays scheduler and kubelet in one namespace.
type Kubelet struct {
	env       *Environment
	t         testing.TB
	namespace string
	admit     func(*corev1.Pod) bool
	queue     workqueue.TypedRateLimitingInterface[string]
	pods      cache.Store
	stop      func()
}

// StartKubelet starts a kubelet that makes every Pod Ready at once. It ends with the
// test.
func (n *Namespace) StartKubelet() *Kubelet {
	n.t.Helper()
	return n.StartKubeletFor(func(*corev1.Pod) bool { return true })
}

// StartKubeletFor starts a kubelet for those Pods that admit chooses; the others stay
// Pending. admit is called by several goroutines.
func (n *Namespace) StartKubeletFor(admit func(*corev1.Pod) bool) *Kubelet {
	n.t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(n.env.Kube, 0, informers.WithNamespace(n.Name))
	informer := factory.Core().V1().Pods().Informer()
	k := &Kubelet{
		env:       n.env,
		t:         n.t,
		namespace: n.Name,
		admit:     admit,
		queue:     workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, time.Second)),
		pods:      informer.GetStore(),
	}
	enqueue := func(obj any) { k.queue.Add(obj.(*corev1.Pod).Name) }
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
	}); err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(n.t.Context()))
	factory.StartWithContext(ctx)
	var workers sync.WaitGroup
	for range kubeletWorkers {
		workers.Go(func() { k.work(ctx) })
	}
	k.stop = sync.OnceFunc(func() {
		cancel()
		k.queue.ShutDown()
		workers.Wait()
		factory.Shutdown()
	})
	n.t.Cleanup(k.stop)
	return k
}

// Stop stops the kubelet: from then on no Pod becomes Ready and, once on the node,
// none goes.
func (k *Kubelet) Stop() { k.stop() }

func (k *Kubelet) work(ctx context.Context) {
	for {
		name, shutdown := k.queue.Get()
		if shutdown {
			return
		}
		err := k.sync(ctx, name)
		switch {
		case err == nil, ctx.Err() != nil, apierrors.IsNotFound(err):
			k.queue.Forget(name)
		default:
			// A conflict means that the Pod has changed; it is looked at again.
			k.queue.AddRateLimited(name)
		}
		k.queue.Done(name)
	}
}

// sync brings one Pod a step further.
func (k *Kubelet) sync(ctx context.Context, name string) error {
	obj, exists, err := k.pods.GetByKey(k.namespace + "/" + name)
	if err != nil || !exists {
		return err
	}
	pod := obj.(*corev1.Pod)
	client := k.env.Kube.CoreV1().Pods(k.namespace)
	switch {
	case pod.DeletionTimestamp != nil:
		return client.Delete(ctx, name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0),
			Preconditions:      &metav1.Preconditions{UID: &pod.UID},
		})
	case pod.Status.Phase != corev1.PodPending || !k.admit(pod):
		return nil
	case pod.Spec.NodeName == "":
		err := client.Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: k.env.node},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
	return k.env.patchPodStatus(ctx, pod, corev1.PodStatus{
		Phase:      corev1.PodRunning,
		PodIPs:     []corev1.PodIP{{IP: "10.0.0.1"}},
		PodIP:      "10.0.0.1",
		Conditions: []corev1.PodCondition{readyCondition(true)},
	})
}

// SetReady sets the condition Ready of a Pod, as its kubelet does.
func (n *Namespace) SetReady(pod *corev1.Pod, ready bool) {
	n.t.Helper()
	n.setPodStatus(pod, corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{readyCondition(ready)}})
}

// EndPod ends a Pod by itself, with phase Succeeded or Failed.
func (n *Namespace) EndPod(pod *corev1.Pod, phase corev1.PodPhase) {
	n.t.Helper()
	n.setPodStatus(pod, corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{readyCondition(false)}})
}

// EvictPod ends a Pod as a kubelet does that needs its resources.
func (n *Namespace) EvictPod(pod *corev1.Pod, message string) {
	n.t.Helper()
	n.setPodStatus(pod, corev1.PodStatus{
		Phase: corev1.PodFailed, Reason: "Evicted", Message: message, Conditions: []corev1.PodCondition{readyCondition(false)},
	})
}

// DrainPod ends a Pod as kubectl drain does.
func (n *Namespace) DrainPod(pod *corev1.Pod) {
	n.t.Helper()
	err := n.env.Kube.CoreV1().Pods(n.Name).EvictV1(n.t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}})
	if err != nil {
		n.t.Fatal(err)
	}
}

// SetUnschedulable tells of a Pod what the scheduler does that finds no place for it.
func (n *Namespace) SetUnschedulable(pod *corev1.Pod, message string) {
	n.t.Helper()
	n.setPodStatus(pod, corev1.PodStatus{Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message, LastTransitionTime: metav1.Now(),
	}}})
}

// SetWaiting tells of a Pod what a kubelet does that can't start its container, the
// reason being ImagePullBackOff, say.
func (n *Namespace) SetWaiting(pod *corev1.Pod, reason, message string) {
	n.t.Helper()
	container := pod.Spec.Containers[0]
	n.setPodStatus(pod, corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		Name: container.Name, Image: container.Image,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}}})
}

func (n *Namespace) setPodStatus(pod *corev1.Pod, status corev1.PodStatus) {
	n.t.Helper()
	if err := n.env.patchPodStatus(n.t.Context(), pod, status); err != nil {
		n.t.Fatal(err)
	}
}

// patchPodStatus sets those parts of the status that aren't empty. The uid in the
// patch has the API server refuse it for another Pod of the same name.
func (e *Environment) patchPodStatus(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("encode the status of pod %s: %w", pod.Name, err)
	}
	_, err = e.Kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

func readyCondition(ready bool) corev1.PodCondition {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return corev1.PodCondition{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()}
}
