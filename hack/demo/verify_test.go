package main

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

// boundClaim builds a claim that says it has the Pod.
func boundClaim(uid, pod types.UID) v1alpha1.PodClaim {
	return v1alpha1.PodClaim{
		ObjectMeta: metav1.ObjectMeta{UID: uid},
		Status: v1alpha1.PodClaimStatus{
			Pod:        &v1alpha1.PodReference{UID: pod},
			Conditions: []metav1.Condition{{Type: v1alpha1.ClaimBound, Status: metav1.ConditionTrue}},
		},
	}
}

// readyPod builds a Ready Pod with a controller owner.
func readyPod(uid types.UID, ownerKind string, owner types.UID) corev1.Pod {
	controller := true
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: uid, OwnerReferences: []metav1.OwnerReference{{Kind: ownerKind, UID: owner, Controller: &controller}}},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

func claimedPod(uid, claim types.UID) corev1.Pod { return readyPod(uid, "PodClaim", claim) }

// idlePods builds the Pods that the pool has left.
func idlePods(n int) []corev1.Pod {
	var pods []corev1.Pod
	for i := range n {
		pods = append(pods, readyPod(types.UID(fmt.Sprintf("idle-%d", i)), "WarmPool", "pool"))
	}
	return pods
}

func TestClaimsAreJudgedByWhoOwnsThePods(t *testing.T) {
	claims := []v1alpha1.PodClaim{boundClaim("c1", "p1"), boundClaim("c2", "p2"), boundClaim("c3", "p3")}
	pods := []corev1.Pod{claimedPod("p1", "c1"), claimedPod("p2", "c2"), claimedPod("p3", "c3")}
	for _, test := range []struct {
		name   string
		claims []v1alpha1.PodClaim
		pods   []corev1.Pod
		kept   bool
		what   string
	}{
		{"each has its own", claims, pods, true, "3 of 3 claims are bound and own their Pod, on 3 different Pods"},
		{"two name the same Pod", []v1alpha1.PodClaim{claims[0], boundClaim("c2", "p1"), claims[2]}, pods, false,
			"2 of 3 claims are bound and own their Pod, on 2 different Pods"},
		{"one has none", []v1alpha1.PodClaim{claims[0], claims[1], {}}, pods, false,
			"2 of 3 claims are bound and own their Pod, on 2 different Pods"},
		{"a Pod is still the pool's", claims, []corev1.Pod{pods[0], pods[1], readyPod("p3", "WarmPool", "pool")}, false,
			"2 of 3 claims are bound and own their Pod, on 2 different Pods"},
		{"a Pod is gone", claims, pods[:2], false, "2 of 3 claims are bound and own their Pod, on 2 different Pods"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := checkClaims(test.claims, test.pods); got != (check{test.kept, test.what}) {
				t.Errorf("checkClaims() = %+v, want %+v", got, check{test.kept, test.what})
			}
		})
	}
}

func TestPoolIsJudgedByItsPods(t *testing.T) {
	claimed := []corev1.Pod{claimedPod("p1", "c1"), claimedPod("p2", "c2"), claimedPod("p3", "c3")}
	starting := readyPod("new", "WarmPool", "pool")
	starting.Status.Conditions[0].Status = corev1.ConditionFalse
	for _, test := range []struct {
		name string
		idle []corev1.Pod
		kept bool
		what string
	}{
		{"full", idlePods(5), true, "the pool is back at 5 of 5 ready; with the claimed ones there are 8 Pods of 8"},
		{"one is missing", idlePods(4), false, "the pool is back at 4 of 5 ready; with the claimed ones there are 7 Pods of 8"},
		{"one is still starting", append(idlePods(4), starting), false, "the pool is back at 4 of 5 ready; with the claimed ones there are 8 Pods of 8"},
		{"one too many, still starting", append(idlePods(5), starting), false, "the pool is back at 5 of 5 ready; with the claimed ones there are 9 Pods of 8"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := checkPool(append(test.idle, claimed...)); got != (check{test.kept, test.what}) {
				t.Errorf("checkPool() = %+v, want %+v", got, check{test.kept, test.what})
			}
		})
	}
}

func TestThreeWritesAClaimAreAllowed(t *testing.T) {
	if got := checkCost(cost{handOuts: 3, claimStatuses: 3, created: 3, poolStatuses: 9, events: 9}, 3); !got.kept {
		t.Errorf("checkCost() = %q, want it kept at 9 writes", got)
	}
	got := checkCost(cost{handOuts: 3, claimStatuses: 3, created: 3, deleted: 1}, 3)
	if want := "  FAIL  a claim costs at most 3 writes: 10 for 3 claims"; got.String() != want {
		t.Errorf("checkCost() = %q, want %q", got, want)
	}
}

func TestOneWriteAtRestIsTooMuch(t *testing.T) {
	o := &outcome{rest: time.Minute}
	if got, want := checkRest(o).String(), "  PASS  at rest nothing is written but the lease: 0 writes in 1m0s"; got != want {
		t.Errorf("checkRest() = %q, want %q", got, want)
	}
	o.resting = []controlplane.Write{write("update", "warmpools", "status")}
	if got, want := checkRest(o).String(), "  FAIL  at rest nothing is written but the lease: 1 writes in 1m0s"; got != want {
		t.Errorf("checkRest() = %q, want %q", got, want)
	}
}
