package environment

// Waiting for pools and claims to get where they belong.

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

// WaitPool waits until the status of a pool says that it has so many idle Pods, all
// ready, so many claimed ones, and that no claim waits.
func (n *Namespace) WaitPool(name string, ready, claimed int32) {
	n.t.Helper()
	n.Eventually(fmt.Sprintf("pool %s to have %d ready and %d claimed Pods", name, ready, claimed), func() error {
		pool := n.Pool(name)
		s := pool.Status
		if s.Replicas != ready || s.ReadyReplicas != ready || s.ClaimedReplicas != claimed || s.PendingClaims != 0 || s.ObservedGeneration != pool.Generation {
			return fmt.Errorf("it has %d idle, %d ready, %d claimed and %d waiting (generation %d of %d)",
				s.Replicas, s.ReadyReplicas, s.ClaimedReplicas, s.PendingClaims, s.ObservedGeneration, pool.Generation)
		}
		return nil
	})
}

// WaitRolled waits until a pool has so many idle Pods, all ready and of its present
// template.
func (n *Namespace) WaitRolled(name string, ready int32) {
	n.t.Helper()
	n.Eventually(fmt.Sprintf("pool %s to have %d ready Pods of the present template", name, ready), func() error {
		pool := n.Pool(name)
		s := pool.Status
		if s.Replicas != ready || s.UpdatedReadyReplicas != ready || s.ObservedGeneration != pool.Generation {
			return fmt.Errorf("it has %d idle, %d of them updated and ready (generation %d of %d)",
				s.Replicas, s.UpdatedReadyReplicas, s.ObservedGeneration, pool.Generation)
		}
		return nil
	})
}

// WaitBound waits until the claims are bound, checks that the Pod of each has the
// claim as its owner, by UID, and returns the Pods' UIDs by the claims' names.
func (n *Namespace) WaitBound(claims ...string) map[string]types.UID {
	n.t.Helper()
	n.Eventually(fmt.Sprintf("%d claims to be bound", len(claims)), func() error {
		have := n.Claims()
		for _, name := range claims {
			claim := have[name]
			if claim == nil {
				return fmt.Errorf("claim %s is not there", name)
			}
			if !meta.IsStatusConditionTrue(claim.Status.Conditions, v1alpha1.ClaimBound) {
				return fmt.Errorf("claim %s is not bound: %v", name, claim.Status.Conditions)
			}
		}
		return nil
	})
	bound := map[string]types.UID{}
	pods, have := n.Pods(), n.Claims()
	for _, name := range claims {
		claim := have[name]
		pod := pods[claim.Status.Pod.UID]
		if pod == nil {
			n.t.Fatalf("claim %s is bound to Pod %s, which doesn't exist", name, claim.Status.Pod.Name)
		}
		if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != claim.UID || pod.Name != claim.Status.Pod.Name {
			n.t.Fatalf("claim %s (uid %s) is bound to Pod %s, whose owners are %v", name, claim.UID, pod.Name, pod.OwnerReferences)
		}
		bound[name] = pod.UID
	}
	if distinct := slices.Collect(maps.Values(bound)); len(slices.Compact(slices.Sorted(slices.Values(distinct)))) != len(claims) {
		n.t.Fatalf("%d claims share Pods: %v", len(claims), bound)
	}
	return bound
}

// WaitCondition waits until a condition of a claim has the status and the reason, and
// returns it.
func (n *Namespace) WaitCondition(claim, kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	n.t.Helper()
	var found metav1.Condition
	n.Eventually(fmt.Sprintf("condition %s of claim %s to be %s (%s)", kind, claim, status, reason), func() error {
		condition := meta.FindStatusCondition(n.Claim(claim).Status.Conditions, kind)
		if condition == nil || condition.Status != status || condition.Reason != reason {
			return fmt.Errorf("it is %+v", condition)
		}
		found = *condition
		return nil
	})
	return found
}

// WaitPoolCondition waits until a condition of a pool has the status and the reason,
// and returns it.
func (n *Namespace) WaitPoolCondition(pool, kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	n.t.Helper()
	var found metav1.Condition
	n.Eventually(fmt.Sprintf("condition %s of pool %s to be %s (%s)", kind, pool, status, reason), func() error {
		condition := meta.FindStatusCondition(n.Pool(pool).Status.Conditions, kind)
		if condition == nil || condition.Status != status || condition.Reason != reason {
			return fmt.Errorf("it is %+v", condition)
		}
		found = *condition
		return nil
	})
	return found
}

// WaitPods waits until the namespace has so many Pods, those that are being deleted
// included, and each is owned, by UID, by a pool or a claim that is there.
func (n *Namespace) WaitPods(want int) {
	n.t.Helper()
	n.Eventually(fmt.Sprintf("the namespace to have %d Pods, each with a living owner", want), func() error {
		// The owners are read last, so that none of them is younger than its Pod.
		pods, owners := n.Pods(), map[types.UID]bool{}
		pools, err := n.env.Warmpool.WarmpoolV1alpha1().WarmPools(n.Name).List(n.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, pool := range pools.Items {
			owners[pool.UID] = true
		}
		for _, claim := range n.Claims() {
			owners[claim.UID] = true
		}
		for _, pod := range pods {
			if owner := metav1.GetControllerOf(pod); owner == nil || !owners[owner.UID] {
				return fmt.Errorf("pod %s belongs to nobody who is there: %v", pod.Name, pod.OwnerReferences)
			}
		}
		if len(pods) != want {
			return fmt.Errorf("it has %d", len(pods))
		}
		return nil
	})
}
