package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/test/environment"
)

func TestAClaimMayBeDeletedAtEveryStage(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.Judge()
	kubelet := ns.StartKubelet()
	ns.StartController()

	// Before its pool exists.
	ns.CreateClaim(environment.Claim("early", "runners"))
	ns.WaitCondition("early", "Bound", "False", "PoolNotFound")
	ns.DeleteClaim("early")
	ns.CreatePool(environment.Pool("runners", 2))
	ns.WaitPool("runners", 2, 0)
	ns.WaitPods(2)

	// While it waits for a Pod to start: the Pod that was started for it goes too.
	kubelet.Stop()
	for _, name := range []string{"takes-one", "takes-another", "waits"} {
		ns.CreateClaim(environment.Claim(name, "runners"))
	}
	ns.Eventually("a claim to wait", func() error {
		if waiting := ns.Pool("runners").Status.PendingClaims; waiting != 1 {
			return fmt.Errorf("%d wait", waiting)
		}
		return nil
	})
	for name, claim := range ns.Claims() {
		if claim.Status.Pod == nil {
			ns.DeleteClaim(name)
		}
	}
	ns.StartKubelet()
	ns.WaitPool("runners", 2, 2)
	ns.WaitPods(4)

	// When it is bound.
	for name := range ns.Claims() {
		ns.DeleteClaim(name)
	}
	ns.WaitPool("runners", 2, 0)
	ns.WaitPods(2)

	// When it has finished.
	ns.CreateClaim(environment.Claim("done", "runners"))
	bound := ns.WaitBound("done")
	ns.EndPod(ns.Pods()[bound["done"]], corev1.PodSucceeded)
	ns.WaitCondition("done", "Finished", "True", "PodSucceeded")
	ns.DeleteClaim("done")
	ns.WaitPool("runners", 2, 0)
	ns.WaitPods(2)
}

// At any moment between its creation and its being bound: the deletion comes after a
// time that grows from nothing to well beyond what a hand-out takes.
func TestAClaimMayBeDeletedWhileItIsHandedOut(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.Judge()
	ns.StartKubelet()
	ns.StartController()
	pool := ns.CreatePool(environment.Pool("runners", 3))
	ns.WaitPool("runners", 3, 0)
	bound := 0
	for i := range 60 {
		name := fmt.Sprintf("brief-%d", i)
		ns.CreateClaim(environment.Claim(name, "runners"))
		after(t, time.Duration(i)*2*time.Millisecond)
		if ns.Claim(name).Status.Pod != nil {
			bound++
		}
		ns.DeleteClaim(name)
	}
	t.Logf("%d of 60 claims were bound when they were deleted", bound)
	ns.WaitPods(3)
	ns.WaitPool("runners", 3, 0)
	if idle := ns.PodsOf(pool.UID); len(idle) != 3 {
		t.Errorf("the pool owns %d Pods, want 3", len(idle))
	}
}

// after returns when d has passed, to choose the moment of what comes next.
func after(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// A Pod that was handed out is never given to anybody else, also where the controller
// wasn't there when its claim was deleted (OpenSandbox#723).
func TestAUsedPodNeverReturnsToThePool(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.Judge()
	ns.StartKubelet()
	controller := ns.StartController()
	ns.CreatePool(environment.Pool("runners", 1))
	ns.CreateClaim(environment.Claim("first", "runners"))
	used := ns.WaitBound("first")["first"]
	ns.WaitPool("runners", 1, 1)

	controller.Stop()
	ns.DeleteClaim("first")
	ns.WaitPods(1)
	ns.CreateClaim(environment.Claim("second", "runners"))
	ns.StartController()
	if pod := ns.WaitBound("second")["second"]; pod == used {
		t.Errorf("the second claim was given the Pod that the first one had used")
	}
	ns.WaitPool("runners", 1, 1)
}

func TestADeletedPoolLeavesClaimedPodsAlone(t *testing.T) {
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			ns := env.Namespace(t)
			ns.Judge()
			ns.StartKubelet()
			ns.StartController()
			ns.CreatePool(environment.Pool("runners", 3))
			ns.WaitPool("runners", 3, 0)
			ns.CreateClaim(environment.Claim("build-1", "runners"))
			ns.CreateClaim(environment.Claim("build-2", "runners"))
			bound := ns.WaitBound("build-1", "build-2")
			ns.WaitPool("runners", 3, 2)
			before := len(ns.SettledWrites())

			ns.DeletePool("runners", policy)
			ns.WaitPods(2)
			ns.Eventually("the pool to be gone", func() error {
				if output, err := ns.TryKubectl("get", "warmpool", "runners"); err == nil {
					return fmt.Errorf("it is there: %s", output)
				}
				return nil
			})
			for claim, uid := range bound {
				pod := ns.Pods()[uid]
				if pod == nil || pod.DeletionTimestamp != nil {
					t.Errorf("the Pod of claim %s went with the pool", claim)
				}
			}
			if again := ns.WaitBound("build-1", "build-2"); fmt.Sprint(again) != fmt.Sprint(bound) {
				t.Errorf("the claims have Pods %v, had %v", again, bound)
			}
			if counts := controlplane.CountByKind(ns.SettledWrites()[before:]); counts["create pods"] > 0 {
				t.Errorf("%d Pods were created for a pool that was deleted", counts["create pods"])
			}

			// A claim on the pool that is gone says so; the others go with their Pods.
			ns.CreateClaim(environment.Claim("late", "runners"))
			ns.WaitCondition("late", "Bound", "False", "PoolNotFound")
			ns.DeleteClaim("build-1")
			ns.DeleteClaim("build-2")
			ns.WaitPods(0)
		})
	}
}

// Identity is the UID: the Pods of a pool that is gone are not those of another with
// its name, and the claims of the old one keep theirs.
func TestAPoolMayBeRecreatedUnderItsName(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.Judge()
	ns.StartKubelet()
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", 3))
	ns.WaitPool("runners", 3, 0)
	ns.CreateClaim(environment.Claim("build", "runners"))
	bound := ns.WaitBound("build")

	olds := map[types.UID]bool{}
	for round := range 10 {
		olds[ns.Pool("runners").UID] = true
		ns.DeletePool("runners", "")
		after(t, time.Duration(round*round)*time.Millisecond) // at any moment of the filling
		ns.CreatePool(environment.Pool("runners", 3))
	}
	begun := time.Now()
	ns.WaitPool("runners", 3, 1)
	t.Logf("the last pool was full %s after its creation", time.Since(begun).Round(time.Millisecond))
	ns.WaitPods(4)
	idle := ns.PodsOf(ns.Pool("runners").UID)
	if len(idle) != 3 {
		t.Errorf("the pool owns %d Pods, want 3", len(idle))
	}
	for _, pod := range ns.Pods() {
		if olds[metav1.GetControllerOf(pod).UID] {
			t.Errorf("Pod %s of a pool that is gone is still there", pod.Name)
		}
	}
	if again := ns.WaitBound("build"); fmt.Sprint(again) != fmt.Sprint(bound) {
		t.Errorf("the claim has Pod %v, had %v", again, bound)
	}
}
