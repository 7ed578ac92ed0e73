package histories

// What is true of the objects at the server, told without the help of package pool.

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

// controllerOf returns a Pod's controller owner, or one of no kind.
func controllerOf(pod *corev1.Pod) metav1.OwnerReference {
	for _, owner := range pod.OwnerReferences {
		if owner.Controller != nil && *owner.Controller {
			return owner
		}
	}
	return metav1.OwnerReference{}
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func readyCondition(pod *corev1.Pod) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c
		}
	}
	return corev1.PodCondition{}
}

func isReady(pod *corev1.Pod) bool { return readyCondition(pod).Status == corev1.ConditionTrue }

func isFinished(claim *v1alpha1.PodClaim) bool {
	return conditionOf(claim.Status.Conditions, v1alpha1.ClaimFinished).Status == metav1.ConditionTrue
}

func conditionOf(conditions []metav1.Condition, kind string) metav1.Condition {
	for _, c := range conditions {
		if c.Type == kind {
			return c
		}
	}
	return metav1.Condition{}
}

func due(claim *v1alpha1.PodClaim) time.Time {
	return claim.CreationTimestamp.Add(time.Duration(claim.Spec.TimeoutSeconds) * time.Second)
}

// handOutRefused tells whether the last thing that a claim was told is a refusal.
func handOutRefused(claim *v1alpha1.PodClaim) bool {
	return conditionOf(claim.Status.Conditions, v1alpha1.ClaimBound).Reason == v1alpha1.ReasonHandOutRefused
}

// asksForForbidden tells whether the admission policy concerns a claim.
func asksForForbidden(claim *v1alpha1.PodClaim) bool {
	return claim.Spec.PodMetadata != nil && claim.Spec.PodMetadata.Labels[forbidden] != ""
}

// active tells whether a pool is there to create and hand out Pods.
func active(pool *v1alpha1.WarmPool) bool { return pool != nil && pool.DeletionTimestamp == nil }

func (s *server) claimByUID(uid types.UID) *v1alpha1.PodClaim {
	for _, claim := range s.claims {
		if claim.UID == uid {
			return claim
		}
	}
	return nil
}

func (s *server) podByUID(uid types.UID) *corev1.Pod {
	for _, pod := range s.pods {
		if pod.UID == uid {
			return pod
		}
	}
	return nil
}

// podsOf returns the Pods whose controller has this UID.
func (s *server) podsOf(uid types.UID) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range sorted(s.pods) {
		if controllerOf(pod).UID == uid {
			pods = append(pods, pod)
		}
	}
	return pods
}

// idle returns a pool's Pods that nobody has claimed and that don't go.
func (s *server) idle(pool *v1alpha1.WarmPool) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range s.podsOf(pool.UID) {
		if pod.DeletionTimestamp == nil {
			pods = append(pods, pod)
		}
	}
	return pods
}

// canServe tells whether an idle Pod can be handed out.
func (s *server) canServe(pool *v1alpha1.WarmPool, pod *corev1.Pod) bool {
	since := s.now.Sub(readyCondition(pod).LastTransitionTime.Time)
	return pod.DeletionTimestamp == nil && !hasEnded(pod) && !s.retired(pool, pod) && isReady(pod) && since >= time.Duration(pool.Spec.MinReadySeconds)*time.Second
}

// outdated tells whether a Pod was made from another template than its pool has now, by
// its label: a Pod that has lost it counts as old.
func (s *server) outdated(pool *v1alpha1.WarmPool, pod *corev1.Pod) bool {
	hash, known := s.judge.hashOf[pool.Spec.Template.Annotations[version]]
	return !known || pod.Labels[v1alpha1.LabelTemplateHash] != hash
}

// isBad tells whether Pods on a node have no future there.
func isBad(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return true
		}
	}
	return node.Spec.Unschedulable
}

// rank orders the idle Pods by how little the pool wants to keep them; 0: it does.
func (s *server) rank(pool *v1alpha1.WarmPool, pod *corev1.Pod) int {
	maxIdle := time.Duration(pool.Spec.MaxIdleSeconds) * time.Second
	switch {
	case pod.Spec.NodeName != "" && isBad(s.nodes[pod.Spec.NodeName]):
		return 3
	case pool.Spec.UpdateStrategy.Type != v1alpha1.OnHandOut && s.outdated(pool, pod):
		return 2
	case maxIdle > 0 && s.canServe(pool, pod) && s.now.Sub(pod.CreationTimestamp.Time) >= maxIdle:
		return 1
	default:
		return 0
	}
}

// retired tells whether an idle Pod is one that Recreate has done with.
func (s *server) retired(pool *v1alpha1.WarmPool, pod *corev1.Pod) bool {
	return pool.Spec.UpdateStrategy.Type == v1alpha1.Recreate && !hasEnded(pod) && s.outdated(pool, pod)
}

// shareOf is a number, or a share of a total.
func shareOf(value *intstr.IntOrString, unset string, total int32, roundUp bool) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(ptr.To(ptr.Deref(value, intstr.FromString(unset))), int(total), roundUp)
	if err != nil {
		panic(err)
	}
	return n
}

// budget is how many ready Pods fewer, and idle Pods more, than asked for there may be
// because Pods are replaced.
func budget(pool *v1alpha1.WarmPool) (maxUnavailable, maxSurge int) {
	settings := ptr.Deref(pool.Spec.UpdateStrategy.RollingUpdate, v1alpha1.RollingUpdateSettings{})
	maxUnavailable = shareOf(settings.MaxUnavailable, "25%", *pool.Spec.Replicas, false)
	maxSurge = shareOf(settings.MaxSurge, "0%", *pool.Spec.Replicas, true)
	if maxUnavailable+maxSurge == 0 {
		maxUnavailable = 1
	}
	return maxUnavailable, maxSurge
}

func (s *server) serving(pool *v1alpha1.WarmPool) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range s.idle(pool) {
		if s.canServe(pool, pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// isWaiting tells whether a claim has no Pod and may still get one.
func (s *server) isWaiting(claim *v1alpha1.PodClaim) bool {
	late := claim.Spec.TimeoutSeconds > 0 && !s.now.Before(due(claim))
	return claim.DeletionTimestamp == nil && !isFinished(claim) && claim.Status.Pod == nil && !late && len(s.podsOf(claim.UID)) == 0
}

func (s *server) waiting() []*v1alpha1.PodClaim {
	var claims []*v1alpha1.PodClaim
	for _, claim := range sorted(s.claims) {
		if s.isWaiting(claim) {
			claims = append(claims, claim)
		}
	}
	return claims
}

// servedBefore tells whether claim a has the better right to a Pod.
func servedBefore(a, b *v1alpha1.PodClaim) bool {
	switch {
	case handOutRefused(a) != handOutRefused(b):
		return !handOutRefused(a)
	case a.Spec.Priority != b.Spec.Priority:
		return a.Spec.Priority > b.Spec.Priority
	case !a.CreationTimestamp.Equal(&b.CreationTimestamp):
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	default:
		return a.Name < b.Name
	}
}

// population counts the Pods of the snapshot's pool that use resources: all of them,
// and those that claims have.
func population(pods []*corev1.Pod, pool *v1alpha1.WarmPool) (all, claimed int) {
	for _, pod := range pods {
		if hasEnded(pod) {
			continue
		}
		switch owner := controllerOf(pod); {
		case owner.Kind == "PodClaim":
			all++
			claimed++
		case owner.UID == pool.UID:
			all++
		}
	}
	return all, claimed
}
