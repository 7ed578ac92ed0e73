package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/test/environment"
)

func TestMaxSizeLimitsAllPodsTogether(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartKubelet()
	ns.StartController()
	pool := environment.Pool("runners", 5, func(p *v1alpha1.WarmPool) { p.Spec.MaxSize = 3 })
	ns.CreatePool(pool)
	ns.WaitPool("runners", 3, 0)
	condition := ns.WaitPoolCondition("runners", "AtCapacity", "True", "MaxSize")
	if want := "spec.maxSize (3) leaves no room for all Pods that are asked for: delete claims, or raise it"; condition.Message != want {
		t.Errorf("the pool says %q, want %q", condition.Message, want)
	}

	for _, name := range []string{"build-1", "build-2", "build-3"} {
		ns.CreateClaim(environment.Claim(name, "runners"))
		ns.WaitBound(name)
	}
	ns.WaitPool("runners", 0, 3)
	ns.CreateClaim(environment.Claim("build-4", "runners"))
	waiting := ns.WaitCondition("build-4", "Bound", "False", "AtCapacity")
	if want := `WarmPool "runners" has reached spec.maxSize (3): delete claims, or raise it`; waiting.Message != want {
		t.Errorf("the claim is told %q, want %q", waiting.Message, want)
	}
	ns.DeleteClaim("build-1")
	ns.WaitBound("build-2", "build-3", "build-4")
	if created := controlplane.CountByKind(ns.SettledWrites())["create pods"]; created != 4 {
		t.Errorf("%d Pods were created, want 3 and one for the one that was deleted", created)
	}
	ns.PatchPool("runners", `{"spec": {"maxSize": 5}}`)
	ns.WaitPool("runners", 2, 3)
	ns.WaitPods(5)
}

func TestAPausedPoolHandsOutAndDoesNothingElse(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartKubelet()
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", 3))
	ns.WaitPool("runners", 3, 0)
	ns.PatchPool("runners", `{"spec": {"paused": true, "replicas": 1}}`)
	ns.WaitPoolCondition("runners", "Paused", "True", "Paused")
	before := len(ns.SettledWrites())

	names := []string{"build-1", "build-2", "build-3"}
	for _, name := range names {
		ns.CreateClaim(environment.Claim(name, "runners"))
	}
	ns.WaitBound(names...)
	ns.CreateClaim(environment.Claim("build-4", "runners"))
	waiting := ns.WaitCondition("build-4", "Bound", "False", "PoolExhausted")
	if want := `WarmPool "runners" has no ready Pod and is paused: set spec.paused to false`; waiting.Message != want {
		t.Errorf("the claim is told %q, want %q", waiting.Message, want)
	}
	counts := controlplane.CountByKind(ns.SettledWrites()[before:])
	if counts["create pods"] != 0 || counts["delete pods"] != 0 || counts["patch pods"] != 3 {
		t.Errorf("while paused the controller wrote %v, want 3 hand-outs, and no Pod created or deleted", counts)
	}
	ns.PatchPool("runners", `{"spec": {"paused": false}}`)
	ns.WaitBound("build-4")
	ns.WaitPool("runners", 1, 4)
}

func TestAClaimThatWaitsTooLongIsFinished(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartController() // no kubelet: no Pod becomes ready
	ns.CreatePool(environment.Pool("runners", 0))
	created := ns.CreateClaim(environment.Claim("build", "runners", func(c *v1alpha1.PodClaim) { c.Spec.TimeoutSeconds = 3 }))
	ns.WaitCondition("build", "Bound", "False", "Pending")
	finished := ns.WaitCondition("build", "Finished", "True", "TimedOut")
	if want := "no Pod could be handed out within 3 s (timeoutSeconds): delete this claim, and create a new one to try again"; finished.Message != want {
		t.Errorf("the claim is told %q, want %q", finished.Message, want)
	}
	if waited := finished.LastTransitionTime.Sub(created.CreationTimestamp.Time); waited < 3*time.Second || waited > 10*time.Second {
		t.Errorf("the claim was finished %s after its creation, want 3 s", waited)
	}
	// The Pod that was started for it goes, and a later one isn't given to it.
	ns.WaitPods(0)
	ns.StartKubelet()
	ns.PatchPool("runners", `{"spec": {"replicas": 1}}`)
	ns.WaitPool("runners", 1, 0)
	if claim := ns.Claim("build"); claim.Status.Pod != nil {
		t.Errorf("a claim that has finished was given Pod %s", claim.Status.Pod.Name)
	}
}

func TestAPodIsHandedOutOnceItWasReadyForMinReadySeconds(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartKubelet()
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", 1, func(p *v1alpha1.WarmPool) { p.Spec.MinReadySeconds = 4 }))
	ns.CreateClaim(environment.Claim("build", "runners"))
	uid := ns.WaitBound("build")["build"]
	bound := ns.Claim("build").Status.BoundTime
	ready := ns.Pods()[uid].Status.Conditions[0].LastTransitionTime
	if waited := bound.Sub(ready.Time); waited < 4*time.Second || waited > 10*time.Second {
		t.Errorf("the Pod was handed out %s after it became Ready, want 4 s", waited)
	}
}

func TestAPodThatDoesNotBecomeReadyIsReplaced(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	var stuck atomic.Pointer[string]
	ns.StartKubeletFor(func(pod *corev1.Pod) bool {
		stuck.CompareAndSwap(nil, &pod.Name) // the first one never starts
		return *stuck.Load() != pod.Name
	})
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", 2, func(p *v1alpha1.WarmPool) { p.Spec.ReadinessTimeoutSeconds = ptr.To[int32](3) }))
	ns.WaitPool("runners", 2, 0)
	ns.WaitPods(2)
	for _, pod := range ns.Pods() {
		if pod.Name == *stuck.Load() {
			t.Errorf("Pod %s, which didn't become Ready, is still there", pod.Name)
		}
	}
	counts := controlplane.CountByKind(ns.SettledWrites())
	if counts["create pods"] != 3 || counts["delete pods"] != 1 {
		t.Errorf("the controller wrote %v, want 3 Pods created and 1 deleted", counts)
	}
}

// A quota costs a few requests that are refused, and not ever more; raised, the pool
// fills.
func TestAQuotaIsReportedAndNotFought(t *testing.T) {
	t.Parallel()
	const observed = 15 * time.Second
	ns := env.Namespace(t)
	ns.StartKubelet()
	ns.StartController()
	beginQuota(t, env, ns)
	ns.CreatePool(environment.Pool("runners", 10))
	begun := time.Now()
	condition := ns.WaitPoolCondition("runners", "ReplicaFailure", "True", "FailedCreate")
	if want := "exceeded quota: few, requested: pods=1, used: pods=3, limited: pods=3"; !strings.Contains(condition.Message, want) {
		t.Errorf("the pool says %q, want %q in it", condition.Message, want)
	}
	environment.For(t, observed-time.Since(begun), "the quota holds", func() error {
		if pods := len(ns.Pods()); pods > 3 {
			return fmt.Errorf("there are %d Pods", pods)
		}
		return nil
	})
	attempts := slices.DeleteFunc(environment.Refused(ns.Writes()), func(w controlplane.Write) bool { return w.Kind() != "create pods" })
	t.Logf("%d of the Pods asked for were refused in %s", len(attempts), observed)
	// Up to 4 in the first attempt, in which 7 are missing, and then one in each: the
	// pauses between them double, from 5 ms on.
	if len(attempts) > 4+14 {
		t.Errorf("%d creations were refused in %s, want at most 18", len(attempts), observed)
	}
	ns.WaitPods(3)

	if _, err := env.Kubectl(t.Context(), "--namespace="+ns.Name, "patch", "resourcequota", "few", `--patch={"spec": {"hard": {"pods": "20"}}}`); err != nil {
		t.Fatal(err)
	}
	ns.WaitPool("runners", 10, 0)
	ns.WaitPoolCondition("runners", "ReplicaFailure", "False", "CreateAccepted")
}
