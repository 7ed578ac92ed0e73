package pool_test

import (
	"go/build"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/pool"
)

// TestStateOfPod walks the table at PodState: each row, and what wins where two apply.
func TestStateOfPod(t *testing.T) {
	for _, c := range []struct {
		name string
		pod  *corev1.Pod
		want pool.PodState
	}{
		{"just created", aPod("a"), pool.PodStarting},
		{"not Ready yet", aPod("a", notReadyFor(time.Second)), pool.PodStarting},
		{"readiness unknown", aPod("a", readiness(corev1.ConditionUnknown, time.Hour)), pool.PodStarting},
		{"Ready, but not for long enough", aPod("a", readyFor(29*time.Second)), pool.PodStarting},
		{"Ready for long enough", aPod("a", readyFor(30*time.Second)), pool.PodIdle},
		{"handed out", aPod("a", ready, of("c")), pool.PodClaimed},
		{"handed out and not Ready", aPod("a", of("c")), pool.PodClaimed},
		{"handed out and ended", aPod("a", ended(corev1.PodSucceeded), of("c")), pool.PodClaimed},
		{"failed", aPod("a", ended(corev1.PodFailed)), pool.PodFailed},
		{"ended well, which an idle Pod shouldn't", aPod("a", ended(corev1.PodSucceeded)), pool.PodFailed},
		{"ended, though its condition says Ready", aPod("a", readyFor(time.Hour), func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }), pool.PodFailed},
		{"idle and being deleted", aPod("a", ready, podDeleting), pool.PodEnding},
		{"claimed and being deleted", aPod("a", ready, of("c"), podDeleting), pool.PodEnding},
		{"failed and being deleted", aPod("a", ended(corev1.PodFailed), podDeleting), pool.PodEnding},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := pool.StateOfPod(c.pod, 30, now); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestStateOfClaim walks the table at ClaimState.
func TestStateOfClaim(t *testing.T) {
	finished := withCondition(v1alpha1.ClaimFinished, metav1.ConditionTrue, v1alpha1.ReasonPodLost)
	for _, c := range []struct {
		name  string
		claim *v1alpha1.PodClaim
		owned *corev1.Pod
		want  pool.ClaimState
	}{
		{"new", aClaim("c"), nil, pool.ClaimWaiting},
		{"told to wait", aClaim("c", withCondition(v1alpha1.ClaimBound, metav1.ConditionFalse, v1alpha1.ReasonPending)), nil, pool.ClaimWaiting},
		{"handed a Pod, status not written yet", aClaim("c"), aPod("a", of("c")), pool.ClaimBound},
		{"bound", aClaim("c", bound("a")), aPod("a", of("c")), pool.ClaimBound},
		{"bound to a Pod that is gone", aClaim("c", bound("a")), nil, pool.ClaimBound},
		{"finished", aClaim("c", bound("a"), finished), aPod("a", of("c")), pool.ClaimFinished},
		{"finished without ever having had a Pod", aClaim("c", finished), nil, pool.ClaimFinished},
		{"said not to be finished", aClaim("c", withCondition(v1alpha1.ClaimFinished, metav1.ConditionFalse, "NotYet")), nil, pool.ClaimWaiting},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := pool.StateOfClaim(c.claim, c.owned); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestOwnersOfAPod(t *testing.T) {
	for _, c := range []struct {
		name                string
		owner               metav1.OwnerReference
		wantPool, wantClaim bool
	}{
		{"a pool", metav1.OwnerReference{APIVersion: "warmpool.dev/v1alpha1", Kind: "WarmPool", Controller: ptr.To(true)}, true, false},
		{"a claim", metav1.OwnerReference{APIVersion: "warmpool.dev/v1alpha1", Kind: "PodClaim", Controller: ptr.To(true)}, false, true},
		{"a pool of another version", metav1.OwnerReference{APIVersion: "warmpool.dev/v1", Kind: "WarmPool", Controller: ptr.To(true)}, true, false},
		{"a claim of another version", metav1.OwnerReference{APIVersion: "warmpool.dev/v1", Kind: "PodClaim", Controller: ptr.To(true)}, false, true},
		{"a pool that isn't the controller", metav1.OwnerReference{APIVersion: "warmpool.dev/v1alpha1", Kind: "WarmPool"}, false, false},
		{"the same kind of another group", metav1.OwnerReference{APIVersion: "example.com/v1alpha1", Kind: "WarmPool", Controller: ptr.To(true)}, false, false},
		{"another kind", metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Controller: ptr.To(true)}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := aPod("a", func(pod *corev1.Pod) { pod.OwnerReferences = []metav1.OwnerReference{c.owner} })
			if got := pool.OwnerPool(pod) != nil; got != c.wantPool {
				t.Errorf("owned by a pool: got %t, want %t", got, c.wantPool)
			}
			if got := pool.OwnerClaim(pod) != nil; got != c.wantClaim {
				t.Errorf("owned by a claim: got %t, want %t", got, c.wantClaim)
			}
		})
	}
}

// TestThePackageHasNoClientClockOrLogger keeps what doc.go promises: decisions are
// made here, and carried out elsewhere.
func TestThePackageHasNoClientClockOrLogger(t *testing.T) {
	pkg, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(pkg.Imports, "warmpool.dev/controller/pkg/apis/warmpool/v1alpha1") {
		t.Errorf("these are not the imports of the package: %q", pkg.Imports)
	}
	for _, path := range pkg.Imports {
		for _, banned := range []string{"k8s.io/client-go", "k8s.io/klog", "k8s.io/utils/clock", "warmpool.dev/controller/pkg/generated", "context", "net", "os", "log", "math/rand"} {
			if path == banned || strings.HasPrefix(path, banned+"/") {
				t.Errorf("package pool imports %s", path)
			}
		}
	}
}
