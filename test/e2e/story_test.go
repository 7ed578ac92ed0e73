package e2e

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/test/environment"
)

// story tells the demo's story in a namespace: a pool of five fills, three claims are
// bound, the pool refills.
func story(ns *environment.Namespace) {
	ns.CreatePool(environment.Pool("runners", 5))
	ns.WaitPool("runners", 5, 0)
	claims := []string{"build-1", "build-2", "build-3"}
	for _, name := range claims {
		ns.CreateClaim(environment.Claim(name, "runners"))
	}
	ns.WaitBound(claims...)
	ns.WaitPool("runners", 5, 3)
}

func TestAPoolFillsIsHandedOutAndRefills(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartKubelet()
	ns.StartController()
	story(ns)

	pool := ns.Pool("runners")
	if idle := ns.PodsOf(pool.UID); len(idle) != 5 {
		t.Errorf("the pool owns %d Pods, want 5", len(idle))
	}
	for _, pod := range ns.PodsOf(pool.UID) {
		if pod.Labels["warmpool.dev/pool"] != "runners" || pod.Labels["warmpool.dev/state"] != "idle" {
			t.Errorf("idle Pod %s has labels %v", pod.Name, pod.Labels)
		}
	}
	if pool.Status.Selector != "warmpool.dev/pool=runners,warmpool.dev/state=idle" {
		t.Errorf("status.selector is %q", pool.Status.Selector)
	}
	for kind, want := range map[string]metav1.ConditionStatus{"Available": "True", "ReplicaFailure": "False", "AtCapacity": "False", "Paused": "False"} {
		if c := meta.FindStatusCondition(pool.Status.Conditions, kind); c == nil || c.Status != want || c.ObservedGeneration != pool.Generation {
			t.Errorf("condition %s of the pool is %+v, want %s", kind, c, want)
		}
	}

	claim := ns.Claim("build-1")
	pods := ns.PodsOf(claim.UID)
	if len(pods) != 1 {
		t.Fatalf("claim build-1 owns %d Pods, want 1", len(pods))
	}
	pod := pods[0]
	if len(pod.OwnerReferences) != 1 {
		t.Errorf("the claimed Pod has owners %v, want the claim alone", pod.OwnerReferences)
	}
	if pod.Labels["warmpool.dev/pool"] != "runners" || pod.Labels["warmpool.dev/state"] != "claimed" || pod.Labels["warmpool.dev/claim"] != "build-1" {
		t.Errorf("the claimed Pod has labels %v", pod.Labels)
	}
	s := claim.Status
	if s.NodeName != pod.Spec.NodeName || len(s.PodIPs) != 1 || s.PodIPs[0].IP != "10.0.0.1" || s.BoundTime == nil || s.ObservedGeneration != 1 {
		t.Errorf("the claim's status is %+v", s)
	}
	if !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ClaimReady) {
		t.Errorf("the claim's conditions are %+v, want Ready to be True", s.Conditions)
	}
}

// The budget of a claim: the Pod's patch, the claim's status, the replacement Pod.
// Events and the pool's status come on top; the pool's status changes at most when a
// Pod is handed out, when its replacement is created and when that is Ready.
func TestAClaimCostsThreeWrites(t *testing.T) {
	t.Parallel()
	const claims = 20
	ns := env.Namespace(t)
	ns.StartKubelet()
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", 5))
	ns.WaitPool("runners", 5, 0)
	before := len(ns.SettledWrites())

	for i := range claims {
		name := fmt.Sprintf("build-%d", i)
		ns.CreateClaim(environment.Claim(name, "runners"))
		ns.WaitBound(name)
	}
	ns.WaitPool("runners", 5, claims)
	writes := ns.SettledWrites()[before:]
	t.Logf("%d claims, one after the other, cost\n%s", claims, environment.Table(writes))

	counts := controlplane.CountByKind(writes)
	for kind, want := range map[string]int{
		"patch pods":              claims,
		"update podclaims/status": claims,
		"create pods":             claims,
	} {
		if counts[kind] != want {
			t.Errorf("%d times %q, want %d", counts[kind], kind, want)
		}
		delete(counts, kind)
	}
	if n := counts["update warmpools/status"]; n > 3*claims {
		t.Errorf("%d updates of the pool's status for %d claims, want at most 3 for each", n, claims)
	}
	delete(counts, "update warmpools/status")
	delete(counts, "create events")
	delete(counts, "patch events")
	if len(counts) > 0 {
		t.Errorf("other writes: %v", counts)
	}
	if refused := environment.Refused(writes); len(refused) > 0 {
		t.Errorf("refused writes, where nobody else writes:\n%s", environment.Table(refused))
	}
}
