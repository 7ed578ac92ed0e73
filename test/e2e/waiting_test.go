package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/test/environment"
)

func TestAPoolGrowsForClaimsThatWaitAndShrinksBack(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.Judge()
	ns.StartController() // no kubelet: the claims wait
	pool := ns.CreatePool(environment.Pool("runners", 2))
	ns.WaitPods(2)
	for _, name := range []string{"build-1", "build-2", "build-3"} {
		ns.CreateClaim(environment.Claim(name, "runners"))
	}
	ns.WaitPods(5)
	for _, name := range []string{"build-1", "build-2", "build-3"} {
		ns.WaitCondition(name, "Bound", "False", "Pending")
	}
	ns.DeleteClaim("build-2")
	ns.DeleteClaim("build-3")
	ns.WaitPods(3)
	ns.StartKubelet()
	ns.WaitBound("build-1")
	ns.WaitPool("runners", 2, 1)
	ns.WaitPods(3)
	if idle := len(ns.PodsOf(pool.UID)); idle != 2 {
		t.Errorf("the pool has %d idle Pods, want 2", idle)
	}
}

// An autoscaler doesn't know of maxSize, and would try again and again.
func TestAScaleBeyondMaxSizeIsClamped(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.Judge()
	ns.StartKubelet()
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", 1, func(p *v1alpha1.WarmPool) { p.Spec.MaxSize = 3 }))
	ns.WaitPool("runners", 1, 0)
	ns.Kubectl("scale", "warmpool", "runners", "--replicas=10")
	ns.WaitPoolCondition("runners", "AtCapacity", "True", "MaxSize")
	ns.WaitPool("runners", 3, 0)
	if got := ptr.Deref(ns.Pool("runners").Spec.Replicas, 0); got != 10 {
		t.Errorf("spec.replicas is %d, want what was asked for: 10", got)
	}
	ns.CreateClaim(environment.Claim("build", "runners"))
	ns.WaitBound("build")
	ns.WaitPool("runners", 2, 1)
	if created := controlplane.CountByKind(ns.SettledWrites())["create pods"]; created != 3 {
		t.Errorf("%d Pods were created, want 3", created)
	}
}

// Each Pod that doesn't get ready is given more time than the one before, as long as
// none does: after 1 s, then 1, 2, 4, 8, ... s.
func TestABrokenTemplateDoesNotChurn(t *testing.T) {
	t.Parallel()
	const watched = 14 * time.Second
	ns := env.Namespace(t)
	ns.StartController() // no kubelet
	ns.CreatePool(environment.Pool("runners", 1, func(p *v1alpha1.WarmPool) { p.Spec.ReadinessTimeoutSeconds = ptr.To[int32](1) }))
	created := func() int { return controlplane.CountByKind(ns.Writes())["create pods"] }
	ns.Eventually("the first Pods to be replaced", func() error {
		if n := created(); n < 3 {
			return fmt.Errorf("%d were created", n)
		}
		return nil
	})
	environment.For(t, watched, "no Pod gets ready", func() error {
		if n := created(); n > 6 {
			return fmt.Errorf("%d Pods were created", n)
		}
		return nil
	})
	ns.StartKubelet() // and once one gets ready all is well
	ns.WaitPool("runners", 1, 0)
}

// Another Pod would fare no better, and would have to wait from the beginning.
func TestAPodThatCanNotBeScheduledIsKept(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartController() // no kubelet
	pool := ns.CreatePool(environment.Pool("runners", 1, func(p *v1alpha1.WarmPool) {
		p.Spec.ReadinessTimeoutSeconds = ptr.To[int32](3)
		p.Spec.ProgressDeadlineSeconds = ptr.To[int32](2)
	}))
	ns.WaitPods(1)
	pod := ns.PodsOf(pool.UID)[0]
	ns.SetUnschedulable(pod, "0/3 nodes are available: 3 Insufficient cpu.")
	stuck := ns.WaitPoolCondition("runners", "Progressing", "False", "ProgressDeadlineExceeded")
	if want := "no Pod of the present template got ready within 2 s (progressDeadlineSeconds): Pods can't be scheduled: 0/3 nodes are available: 3 Insufficient cpu."; stuck.Message != want {
		t.Errorf("the pool says %q, want %q", stuck.Message, want)
	}
	wantEvent(t, ns, pool.UID, corev1.EventTypeWarning, "ProgressDeadlineExceeded")
	environment.For(t, 5*time.Second, "the Pod can't be scheduled", func() error {
		if now := ns.Pods()[pod.UID]; now == nil || now.DeletionTimestamp != nil {
			return fmt.Errorf("it was deleted")
		}
		return nil
	})
	ns.StartKubelet() // there is room now
	ns.WaitPool("runners", 1, 0)
	ns.WaitPoolCondition("runners", "Progressing", "True", "Complete")
	if now := ns.Pods()[pod.UID]; now == nil || now.Status.Phase != corev1.PodRunning {
		t.Error("it was another Pod that got ready")
	}
}
