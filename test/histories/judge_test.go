package histories

// The judge sees every write, and says which invariant it breaks.

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

type judge struct {
	server     *server
	claimOf    map[types.UID]types.UID  // of a Pod, from its hand-out on for good
	hashOf     map[string]string        // of a template, by its version
	limits     []v1alpha1.ClaimLifetime // those that pools have had
	violations []string
}

func newJudge(s *server) *judge {
	return &judge{server: s, claimOf: map[types.UID]types.UID{}, hashOf: map[string]string{}}
}

func (j *judge) violation(format string, args ...any) {
	j.violations = append(j.violations, fmt.Sprintf(format, args...))
}

// pod judges one write of a Pod; before is nil for a creation, after for a removal.
func (j *judge) pod(by actor, before, after *corev1.Pod) {
	if after != nil {
		j.owner(before, after)
	}
	if by != theController {
		return
	}
	if before == nil {
		j.creation(after)
		return
	}
	if after == nil || (before.DeletionTimestamp == nil && after.DeletionTimestamp != nil) {
		j.deletion(before)
	} else {
		j.handOut(before, after)
	}
}

// creation judges that a hash stands for one template, and a template has one hash.
func (j *judge) creation(pod *corev1.Pod) {
	made, hash := pod.Annotations[version], pod.Labels[v1alpha1.LabelTemplateHash]
	if known, ok := j.hashOf[made]; ok && known != hash || hash == "" {
		j.violation("O24: Pod %s of template %s has the hash %q, and others have %q", pod.Name, made, hash, known)
	}
	j.hashOf[made] = hash
	for other, known := range j.hashOf {
		if other != made && known == hash {
			j.violation("O24: the templates %s and %s have the same hash", made, other)
		}
	}
}

// owner judges I1 and I5: a Pod has one claim at most, for ever.
func (j *judge) owner(before, after *corev1.Pod) {
	owner := controllerOf(after)
	claim, wasClaimed := j.claimOf[after.UID]
	switch {
	case wasClaimed && owner.Kind == "PodClaim" && owner.UID != claim:
		j.violation("I1: Pod %s was given to claim %s, and then to %s", after.Name, claim, owner.UID)
	case wasClaimed && owner.Kind != "PodClaim":
		j.violation("I5: Pod %s was claimed and has returned to %s %s", after.Name, owner.Kind, owner.Name)
	case owner.Kind == "PodClaim":
		j.claimOf[after.UID] = owner.UID
		if before == nil {
			j.violation("I1: Pod %s was created for claim %s instead of handed out", after.Name, owner.Name)
		}
	}
}

// deletion judges I4. Of a claimed Pod only a second one goes, of which no client was
// ever told: the status of its claim, which is written once, names another, or is
// finished without one.
func (j *judge) deletion(pod *corev1.Pod) {
	owner := controllerOf(pod)
	if owner.Kind != "PodClaim" {
		return
	}
	claim := j.server.claimByUID(owner.UID)
	if claim == nil {
		return // the garbage collector would have
	}
	told := claim.Status.Pod
	if (told == nil && !isFinished(claim)) || (told != nil && told.UID == pod.UID) {
		j.violation("I4: Pod %s of claim %s was deleted by the controller", pod.Name, claim.Name)
	}
}

// handOut judges the one write of the controller on a Pod that exists.
func (j *judge) handOut(before, after *corev1.Pod) {
	reached("hand-out")
	if controllerOf(before).Kind != "WarmPool" {
		j.violation("I4: Pod %s, which belongs to a claim, was written by the controller", before.Name)
	}
	if before.DeletionTimestamp != nil {
		j.violation("a Pod that is being deleted was handed out: %s", before.Name)
	}
	if !isReady(before) {
		j.violation("a Pod that isn't Ready was handed out: %s", before.Name)
	}
	if owner := controllerOf(after); after.Labels[v1alpha1.LabelState] != "claimed" || after.Labels[v1alpha1.LabelClaim] != owner.Name {
		j.violation("Pod %s was handed out to %s without the labels: %v", after.Name, owner.Name, after.Labels)
	}
	for key, value := range before.Labels {
		if _, ours := map[string]bool{v1alpha1.LabelState: true, v1alpha1.LabelClaim: true}[key]; !ours && after.Labels[key] != value {
			j.violation("the hand-out of Pod %s changed label %s", after.Name, key)
		}
	}
	for key, value := range before.Annotations {
		if after.Annotations[key] != value {
			j.violation("the hand-out of Pod %s changed annotation %s", after.Name, key)
		}
	}
}

// pool takes note of a pool's limits: claims may be bound by those of long ago.
func (j *judge) pool(pool *v1alpha1.WarmPool) {
	if limits := pool.Spec.ClaimLifetime; limits != nil && !slices.Contains(j.limits, *limits) {
		j.limits = append(j.limits, *limits)
	}
}

// claim judges one write of a claim; before is nil for a creation.
func (j *judge) claim(by actor, before, after *v1alpha1.PodClaim) {
	if by != theController {
		return
	}
	if told := after.Status.Pod; told != nil && j.claimOf[told.UID] != after.UID {
		j.violation("claim %s says that it has Pod %s, which it was never given", after.Name, told.Name)
	}
	if before.Status.Pod != nil && !before.Status.BoundTime.Equal(after.Status.BoundTime) {
		j.violation("I2: the boundTime of claim %s moved", after.Name)
	}
	if before.Status.Pod == nil && after.Status.Pod != nil {
		j.lifetime(after)
	} else if before.Status.Pod != nil && !before.Status.ExpirationTime.Equal(after.Status.ExpirationTime) {
		j.violation("O27: the expirationTime of claim %s moved", after.Name)
	}
	if isFinished(before) {
		j.violation("claim %s was finished, and was written again", after.Name)
	}
	if after.Status.ObservedGeneration != after.Generation {
		j.violation("claim %s: the status speaks of generation %d, not %d", after.Name, after.Status.ObservedGeneration, after.Generation)
	}
	for _, old := range before.Status.Conditions {
		c := meta.FindStatusCondition(after.Status.Conditions, old.Type)
		if c == nil || c.LastTransitionTime.Before(&old.LastTransitionTime) {
			j.violation("claim %s: condition %s went back in time", after.Name, old.Type)
		}
	}
	if isFinished(after) {
		j.finished(after)
	}
}

// lifetime judges O27: when a claim is bound it is told when it ends, by the pool as it is
// or was, or isn't there.
func (j *judge) lifetime(claim *v1alpha1.PodClaim) {
	got := time.Duration(0)
	if claim.Status.ExpirationTime != nil {
		got = claim.Status.ExpirationTime.Sub(claim.Status.BoundTime.Time)
	}
	var allowed []time.Duration
	for _, limit := range append(j.limits, v1alpha1.ClaimLifetime{}) {
		own := cmp.Or(claim.Spec.Lifetime, limit.Default, limit.Maximum, &metav1.Duration{}).Duration
		if limit.Maximum != nil {
			own = min(own, limit.Maximum.Duration)
		}
		allowed = append(allowed, own)
	}
	if !slices.Contains(allowed, got) {
		j.violation("O27: claim %s lives for %s, and it may be one of %s", claim.Name, got, allowed)
	}
}

// claimDeletion judges O27: only a claim whose time is over, and that says so, is deleted.
func (j *judge) claimDeletion(claim *v1alpha1.PodClaim) {
	reached("a claim is deleted whose time is over")
	if end := claim.Status.ExpirationTime; !isFinished(claim) || end == nil || j.server.now.Before(end.Time) {
		j.violation("O27: claim %s is deleted, and its time isn't over: %+v", claim.Name, claim.Status)
	}
}

// finished judges what can't be taken back.
func (j *judge) finished(claim *v1alpha1.PodClaim) {
	c := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimFinished)
	reached("claim finished: " + c.Reason)
	switch c.Reason {
	case v1alpha1.ReasonPodLost:
		if pod := j.server.podByUID(claim.Status.Pod.UID); pod != nil {
			j.violation("claim %s says that its Pod %s is lost, which is there", claim.Name, pod.Name)
		}
	case v1alpha1.ReasonExpired:
		if end := claim.Status.ExpirationTime; end == nil || j.server.now.Before(end.Time) {
			j.violation("O27: claim %s expired before its expirationTime %s", claim.Name, end)
		}
	case v1alpha1.ReasonTimedOut:
		if claim.Spec.TimeoutSeconds == 0 || j.server.now.Before(due(claim)) {
			j.violation("claim %s timed out too early", claim.Name)
		}
	case v1alpha1.ReasonPodSucceeded, v1alpha1.ReasonPodFailed:
		// An end is for good, so the Pod tells it for as long as it is there.
		if pod := j.server.podByUID(claim.Status.Pod.UID); pod != nil && c.Reason != "Pod"+string(pod.Status.Phase) {
			j.violation("claim %s finished with %s, and its Pod is %s", claim.Name, c.Reason, pod.Status.Phase)
		}
	default:
		j.violation("claim %s finished for no known reason: %s", claim.Name, c.Reason)
	}
	if c.Status != metav1.ConditionTrue || c.Message == "" {
		j.violation("I14: claim %s finished and doesn't say why: %+v", claim.Name, c)
	}
}
