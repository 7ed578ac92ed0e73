package histories

// What others do: users, the kubelet, the garbage collector, and time.

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

// poolName is the name of the one pool, and of its successors. The names of claims are
// few too: the same name with another UID is another object.
const poolName = "p"

// events returns what can happen. Each event returns false if there is nothing now that
// it could happen to.
func (s *server) events() map[string]func(*rapid.T) bool {
	return map[string]func(*rapid.T) bool{
		"a claim is created":                 s.claimIsCreated,
		"a claim is created, or another":     s.claimIsCreated, // twice, so that there are enough
		"a claim is deleted":                 s.claimIsDeleted,
		"the pool is created":                s.poolIsCreated,
		"the pool is deleted":                s.poolIsDeleted,
		"the pool is changed":                s.poolIsChanged,
		"the kubelet starts all Pods":        func(*rapid.T) bool { return s.startPods() },
		"the kubelet writes a Pod":           s.kubeletWrites,
		"the kubelet writes another Pod":     s.kubeletWrites,
		"somebody deletes a Pod":             s.podIsDeleted,
		"somebody edits a Pod":               s.podIsEdited,
		"time passes":                        s.timePasses,
		"a node is cordoned, or isn't ready": s.nodeChanges,
		"garbage is collected":               func(*rapid.T) bool { return s.collectGarbage() },
		"the quota is used up, or raised":    s.quotaChanges,
		"an admission policy comes or goes":  s.policyChanges,
	}
}

// anEvent lets one thing happen, or nothing.
func (s *server) anEvent(t *rapid.T) {
	events := s.events()
	name := rapid.SampledFrom(namesOf(events)).Draw(t, "meanwhile")
	events[name](t)
}

// one draws one of some objects.
func one[T any](t *rapid.T, objects []T) T {
	return objects[rapid.IntRange(0, len(objects)-1).Draw(t, "which")]
}

func (s *server) claimIsCreated(t *rapid.T) bool {
	claim := &v1alpha1.PodClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("c%d", rapid.IntRange(0, 5).Draw(t, "name"))},
		Spec: v1alpha1.PodClaimSpec{
			PoolName:       poolName,
			Priority:       rapid.Int32Range(0, 2).Draw(t, "priority"),
			TimeoutSeconds: rapid.SampledFrom([]int32{0, 0, 0, 0, 5, 60}).Draw(t, "timeoutSeconds"),
		},
	}
	if s.claims[claim.Name] != nil {
		return false
	}
	if lifetime := drawDuration(t, "lifetime"); lifetime > 0 {
		claim.Spec.Lifetime = &metav1.Duration{Duration: lifetime}
	}
	switch rapid.IntRange(0, 7).Draw(t, "podMetadata") {
	case 0:
		claim.Spec.PodMetadata = &v1alpha1.PodMetadata{Labels: map[string]string{forbidden: "x"}}
	case 1:
		claim.Spec.PodMetadata = &v1alpha1.PodMetadata{Labels: map[string]string{"team": "red"}, Annotations: map[string]string{"example.com/note": "x"}}
	}
	s.putClaim(aUser, claim)
	return true
}

func (s *server) claimIsDeleted(t *rapid.T) bool {
	if len(s.claims) == 0 {
		return false
	}
	claim := one(t, sorted(s.claims)).DeepCopy()
	if rapid.Bool().Draw(t, "foreground") {
		claim.DeletionTimestamp = ptr.To(s.clock())
		s.putClaim(aUser, claim)
	} else {
		s.removeClaim(claim)
	}
	return true
}

func (s *server) poolIsCreated(t *rapid.T) bool {
	if s.pools[poolName] != nil {
		return false
	}
	pool := &v1alpha1.WarmPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: poolName}}
	drawSpec(t, pool)
	s.putPool(pool)
	return true
}

func drawSpec(t *rapid.T, pool *v1alpha1.WarmPool) {
	pool.Spec = v1alpha1.WarmPoolSpec{
		Replicas:                ptr.To(rapid.Int32Range(0, 4).Draw(t, "replicas")),
		MaxSize:                 rapid.SampledFrom([]int32{0, 0, 0, 1, 2, 3, 5}).Draw(t, "maxSize"),
		Tolerance:               drawShare(t, "tolerance", 0),
		MinReadySeconds:         rapid.SampledFrom([]int32{0, 0, 10, 30}).Draw(t, "minReadySeconds"),
		ReadinessTimeoutSeconds: ptr.To(rapid.SampledFrom([]int32{0, 20, 300}).Draw(t, "readinessTimeoutSeconds")),
		ProgressDeadlineSeconds: ptr.To(rapid.SampledFrom([]int32{0, 40, 600}).Draw(t, "progressDeadlineSeconds")),
		MaxIdleSeconds:          rapid.SampledFrom([]int32{0, 0, 40}).Draw(t, "maxIdleSeconds"),
		Paused:                  rapid.IntRange(0, 7).Draw(t, "paused") == 0,
	}
	pool.Spec.UpdateStrategy.Type = rapid.SampledFrom([]v1alpha1.UpdateStrategyType{
		v1alpha1.RollingUpdate, v1alpha1.RollingUpdate, v1alpha1.Recreate, v1alpha1.OnHandOut,
	}).Draw(t, "updateStrategy")
	if pool.Spec.UpdateStrategy.Type == v1alpha1.RollingUpdate && rapid.Bool().Draw(t, "rollingUpdate") {
		pool.Spec.UpdateStrategy.RollingUpdate = &v1alpha1.RollingUpdateSettings{
			MaxUnavailable: drawShare(t, "maxUnavailable", 25),
			MaxSurge:       drawShare(t, "maxSurge", 0),
		}
	}
	byDefault, maximum := drawDuration(t, "default lifetime"), drawDuration(t, "maximum lifetime")
	if byDefault > 0 && maximum > 0 {
		byDefault = min(byDefault, maximum)
	}
	if byDefault > 0 || maximum > 0 {
		pool.Spec.ClaimLifetime = &v1alpha1.ClaimLifetime{Default: durationOrNil(byDefault), Maximum: durationOrNil(maximum)}
	}
	pool.Spec.Template.Annotations = map[string]string{version: rapid.SampledFrom([]string{"1", "1", "1", "2", "3"}).Draw(t, "template")}
}

// version is an annotation by which the templates differ.
const version = "example.com/version"

// drawShare draws a number or a share; unset is the share that is the default.
func drawShare(t *rapid.T, what string, unset int) *intstr.IntOrString {
	return rapid.SampledFrom([]*intstr.IntOrString{
		nil, ptr.To(intstr.FromString(fmt.Sprintf("%d%%", unset))),
		ptr.To(intstr.FromInt32(1)), ptr.To(intstr.FromInt32(2)), ptr.To(intstr.FromString("30%")), ptr.To(intstr.FromString("100%")),
	}).Draw(t, what)
}

// drawDuration draws how long claims live; mostly 0: for ever.
func drawDuration(t *rapid.T, what string) time.Duration {
	return rapid.SampledFrom([]time.Duration{0, 0, 0, 0, 10 * time.Second, time.Minute, time.Hour}).Draw(t, what)
}

func durationOrNil(d time.Duration) *metav1.Duration {
	if d == 0 {
		return nil
	}
	return &metav1.Duration{Duration: d}
}

func (s *server) poolIsChanged(t *rapid.T) bool {
	pool := s.pools[poolName]
	if pool == nil {
		return false
	}
	pool = pool.DeepCopy()
	drawSpec(t, pool)
	pool.Generation++
	s.putPool(pool)
	return true
}

func (s *server) poolIsDeleted(t *rapid.T) bool {
	pool := s.pools[poolName]
	if pool == nil || rapid.IntRange(0, 4).Draw(t, "really") > 0 {
		return false
	}
	if rapid.Bool().Draw(t, "foreground") {
		pool = pool.DeepCopy()
		pool.DeletionTimestamp = ptr.To(s.clock())
		s.putPool(pool)
	} else {
		s.removePool(pool)
	}
	return true
}

// startPods makes all Pods Ready that can be, and lets those end that are deleted.
func (s *server) startPods() bool {
	changed := false
	for _, pod := range sorted(s.pods) {
		switch {
		case pod.DeletionTimestamp != nil:
			s.removePod(theKubelet, pod)
			changed = true
		case !hasEnded(pod) && !isReady(pod):
			s.setReady(pod, corev1.ConditionTrue, false)
			changed = true
		}
	}
	return changed
}

// setReady writes the Ready condition of a Pod, as the first one or the second.
func (s *server) setReady(pod *corev1.Pod, status corev1.ConditionStatus, first bool) {
	pod = pod.DeepCopy()
	ready := readyCondition(pod)
	if ready.Status != status {
		ready = corev1.PodCondition{Type: corev1.PodReady, Status: status, LastTransitionTime: s.clock()}
	}
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: pod.CreationTimestamp}
	if pod.Spec.NodeName == "" {
		pod.Spec.NodeName = s.nodeFor(pod)
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}}
	pod.Status.Conditions = []corev1.PodCondition{scheduled, ready}
	if first {
		pod.Status.Conditions = []corev1.PodCondition{ready, scheduled}
	}
	s.putPod(theKubelet, pod)
}

func (s *server) kubeletWrites(t *rapid.T) bool {
	if len(s.pods) == 0 {
		return false
	}
	pod := one(t, sorted(s.pods)).DeepCopy()
	what := rapid.SampledFrom([]string{"Ready", "Ready", "Ready", "not Ready", "ended", "gone"}).Draw(t, "status")
	switch {
	case what == "gone" && (pod.DeletionTimestamp != nil):
		s.removePod(theKubelet, pod)
	case what == "ended" && pod.Spec.NodeName != "" && !hasEnded(pod):
		pod.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}).Draw(t, "phase")
		for i := range pod.Status.Conditions {
			if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				c.Status, c.LastTransitionTime = corev1.ConditionFalse, s.clock()
			}
		}
		s.putPod(theKubelet, pod)
	case what == "Ready" && !hasEnded(pod):
		s.setReady(pod, corev1.ConditionTrue, rapid.Bool().Draw(t, "Ready comes first"))
	case what == "not Ready" && !hasEnded(pod):
		s.setReady(pod, corev1.ConditionFalse, rapid.Bool().Draw(t, "Ready comes first"))
	default:
		return false
	}
	return true
}

func (s *server) podIsDeleted(t *rapid.T) bool {
	if len(s.pods) == 0 {
		return false
	}
	return s.deletePod(aUser, one(t, sorted(s.pods))) == nil
}

// podIsEdited writes what is not the controller's to rely on.
func (s *server) podIsEdited(t *rapid.T) bool {
	if len(s.pods) == 0 {
		return false
	}
	pod := one(t, sorted(s.pods)).DeepCopy()
	switch rapid.IntRange(0, 3).Draw(t, "edit") {
	case 0:
		pod.Labels = nil
	case 1:
		pod.Labels = map[string]string{v1alpha1.LabelPool: "other", v1alpha1.LabelState: "claimed", v1alpha1.LabelClaim: "c0"}
	case 2:
		pod.Labels = map[string]string{v1alpha1.LabelPool: poolName, v1alpha1.LabelState: "idle"}
	case 3:
		pod.Annotations = map[string]string{"example.com/theirs": "x"}
	}
	s.putPod(aUser, pod)
	return true
}

func (s *server) quotaChanges(t *rapid.T) bool {
	s.quota = rapid.IntRange(0, 3).Draw(t, "used up") == 0
	return true
}

func (s *server) policyChanges(t *rapid.T) bool {
	s.policy = rapid.Bool().Draw(t, "policy")
	return true
}

// nodeFor is where the scheduler puts a Pod: on a node that is good, if there is one.
func (s *server) nodeFor(pod *corev1.Pod) string {
	nodes := namesOf(s.nodes)
	first := int(pod.CreationTimestamp.Unix()) % len(nodes)
	for i := range nodes {
		if name := nodes[(first+i)%len(nodes)]; !isBad(s.nodes[name]) {
			return name
		}
	}
	return nodes[first]
}

func (s *server) nodeChanges(t *rapid.T) bool {
	node := s.nodes[rapid.SampledFrom(namesOf(s.nodes)).Draw(t, "node")].DeepCopy()
	node.Spec.Unschedulable = rapid.IntRange(0, 2).Draw(t, "cordoned") == 0
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: rapid.SampledFrom([]corev1.ConditionStatus{"True", "True", "True", "False", "Unknown"}).Draw(t, "ready")}
	node.Status.Conditions = []corev1.NodeCondition{ready}
	s.nodes[node.Name] = node
	return true
}

func (s *server) timePasses(t *rapid.T) bool {
	s.now = s.now.Add(time.Duration(rapid.IntRange(1, 60_000).Draw(t, "milliseconds")) * time.Millisecond)
	return true
}

// collectGarbage deletes the Pods whose owner is gone or goes in the foreground, and
// then the owners that waited for them.
func (s *server) collectGarbage() bool {
	owners := map[string]bool{} // by UID: whether it stays
	for _, pool := range s.pools {
		owners[string(pool.UID)] = pool.DeletionTimestamp == nil
	}
	for _, claim := range s.claims {
		owners[string(claim.UID)] = claim.DeletionTimestamp == nil
	}
	changed := false
	for _, pod := range sorted(s.pods) {
		if !owners[string(controllerOf(pod).UID)] && pod.DeletionTimestamp == nil {
			changed = s.deletePod(theCollector, pod) == nil || changed
		}
	}
	for _, pool := range sorted(s.pools) {
		if pool.DeletionTimestamp != nil && len(s.podsOf(pool.UID)) == 0 {
			s.removePool(pool)
			changed = true
		}
	}
	for _, claim := range sorted(s.claims) {
		if claim.DeletionTimestamp != nil && len(s.podsOf(claim.UID)) == 0 {
			s.removeClaim(claim)
			changed = true
		}
	}
	return changed
}
