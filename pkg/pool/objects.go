package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

// PodName is the name of a pool's Pod: the pool's name, cut to fit, and a suffix
// that the caller chooses at random. The controller chooses names itself, never by
// generateName, so that a creation whose answer is lost can be looked up. It fits
// in 63 characters, and so is the Pod's host name too.
func PodName(poolName, suffix string) string {
	room := validation.DNS1123LabelMaxLength - len(suffix) - 1
	if len(poolName) > room {
		poolName = poolName[:room]
	}
	return strings.TrimRight(poolName, "-.") + "-" + suffix
}

// NewPod returns the Pod to create for a pool, under a name from PodName. What the
// controller relies on, the owner and the labels warmpool.dev/..., is set last, so
// that a template can't.
func NewPod(pool *v1alpha1.WarmPool, name string) *corev1.Pod {
	template := pool.Spec.Template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			Namespace:       pool.Namespace,
			Labels:          withoutReserved(template.Labels),
			Annotations:     withoutReserved(template.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pool, v1alpha1.WarmPoolKind)},
		},
		Spec: template.Spec,
	}
	pod.Labels[v1alpha1.LabelPool] = pool.Name
	pod.Labels[v1alpha1.LabelState] = v1alpha1.StateIdle
	pod.Labels[v1alpha1.LabelTemplateHash] = TemplateHash(&pool.Spec.Template)
	return pod
}

// TemplateHash tells templates apart: ten hexadecimal digits, the same for the same
// template in every process.
//
// An upgrade of the controller must not change it, or every idle Pod would be replaced.
// So it is made from what the template's JSON says: not from fields in memory, of which
// later versions of the API have more, and without those that say nothing, which one
// version writes and another leaves out (argoproj/argo-rollouts#4755).
func TemplateHash(template *corev1.PodTemplateSpec) string {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(template)
	if err != nil {
		panic(fmt.Sprintf("a template that came as JSON can't be turned back: %v", err))
	}
	encoded, err := json.Marshal(withoutVoid(fields)) // sorts the keys
	if err != nil {
		panic(fmt.Sprintf("a template that came as JSON can't be turned back: %v", err))
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:5])
}

// withoutVoid leaves out what is null, and resources that ask for nothing. Other empty
// objects may mean something: an empty selector selects all.
func withoutVoid(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			if object, ok := inner.(map[string]any); inner == nil || ok && len(object) == 0 && key == "resources" {
				delete(value, key)
				continue
			}
			value[key] = withoutVoid(inner)
		}
	case []any:
		for i := range value {
			value[i] = withoutVoid(value[i])
		}
	}
	return value
}

// withoutReserved copies a map and leaves out the keys that are the controller's.
func withoutReserved(from map[string]string) map[string]string {
	to := map[string]string{}
	for key, value := range from {
		if !strings.HasPrefix(key, v1alpha1.LabelPrefix) {
			to[key] = value
		}
	}
	return to
}

// operation is one step of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// HandOutPatch returns the JSON patch that gives a Pod to a claim. It can succeed
// once: its tests are that the Pod is the one in the snapshot, still the pool's,
// Ready and not being deleted, and its first change makes the second of them fail.
// It tests these facts and not the resourceVersion, so that a kubelet's heartbeat
// doesn't make it fail. The API server answers a failed test with 422 Invalid.
//
// The error tells that the snapshot's Pod can't be handed out at all: a pool doesn't
// own it, or it never was Ready.
func HandOutPatch(pod *corev1.Pod, claim *v1alpha1.PodClaim) ([]byte, error) {
	owner := slices.IndexFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Controller != nil && *o.Controller })
	ready := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	if OwnerPool(pod) == nil || ready < 0 {
		return nil, fmt.Errorf("hand out pod %s/%s: no WarmPool is its controller owner, or it has no Ready condition", pod.Namespace, pod.Name)
	}
	ownerPath := fmt.Sprintf("/metadata/ownerReferences/%d", owner)
	readyPath := fmt.Sprintf("/status/conditions/%d", ready)
	patch := []operation{
		{"test", "/metadata/uid", pod.UID},
		{"test", "/metadata/deletionTimestamp", nil},
		{"test", ownerPath + "/uid", pod.OwnerReferences[owner].UID},
		{"test", ownerPath + "/controller", true},
		{"test", readyPath + "/type", corev1.PodReady},
		{"test", readyPath + "/status", corev1.ConditionTrue},
		{"replace", ownerPath, metav1.NewControllerRef(claim, v1alpha1.PodClaimKind)},
	}
	labels, annotations := map[string]string{}, map[string]string{}
	if claim.Spec.PodMetadata != nil {
		labels = withoutReserved(claim.Spec.PodMetadata.Labels)
		annotations = withoutReserved(claim.Spec.PodMetadata.Annotations)
	}
	labels[v1alpha1.LabelState] = v1alpha1.StateClaimed
	labels[v1alpha1.LabelClaim] = claim.Name
	patch = append(patch, setAll("/metadata/labels", pod.Labels, labels)...)
	patch = append(patch, setAll("/metadata/annotations", pod.Annotations, annotations)...)
	return json.Marshal(patch)
}

// setAll returns the operations that set the keys of want in the map at path,
// which the Pod may not have yet.
func setAll(path string, have, want map[string]string) []operation {
	if len(want) == 0 {
		return nil
	}
	var operations []operation
	if len(have) == 0 {
		// The test keeps the add from wiping out a map that came meanwhile.
		operations = append(operations,
			operation{"test", path, nil},
			operation{"add", path, map[string]string{}})
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		operations = append(operations, operation{"add", path + "/" + escapePointer(key), want[key]})
	}
	return operations
}

// escapePointer writes a key as a part of a JSON pointer (RFC 6901).
func escapePointer(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}
