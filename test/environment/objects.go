package environment

// Pools and claims: build, create, read.

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

// Pool returns a pool that keeps so many idle Pods. change may set more.
func Pool(name string, replicas int32, change ...func(*v1alpha1.WarmPool)) *v1alpha1.WarmPool {
	pool := &v1alpha1.WarmPool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.WarmPoolSpec{
			Replicas: ptr.To(replicas),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "runner", Image: "registry.k8s.io/pause:3.10"}},
				// Where the control plane is a shared one it may have a scheduler,
				// which leaves alone what names another.
				SchedulerName: "test-kubelet",
			}},
		},
	}
	for _, f := range change {
		f(pool)
	}
	return pool
}

// Claim returns a claim on a pool. change may set more.
func Claim(name, pool string, change ...func(*v1alpha1.PodClaim)) *v1alpha1.PodClaim {
	claim := &v1alpha1.PodClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.PodClaimSpec{PoolName: pool},
	}
	for _, f := range change {
		f(claim)
	}
	return claim
}

// CreatePool creates a pool.
func (n *Namespace) CreatePool(pool *v1alpha1.WarmPool) *v1alpha1.WarmPool {
	n.t.Helper()
	created, err := n.env.Warmpool.WarmpoolV1alpha1().WarmPools(n.Name).Create(n.t.Context(), pool, metav1.CreateOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	return created
}

// CreateClaim creates a claim.
func (n *Namespace) CreateClaim(claim *v1alpha1.PodClaim) *v1alpha1.PodClaim {
	n.t.Helper()
	created, err := n.env.Warmpool.WarmpoolV1alpha1().PodClaims(n.Name).Create(n.t.Context(), claim, metav1.CreateOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	return created
}

// DeletePool deletes a pool. An empty policy leaves it to the API server, which
// deletes the dependents in the background.
func (n *Namespace) DeletePool(name string, policy metav1.DeletionPropagation) {
	n.t.Helper()
	var options metav1.DeleteOptions
	if policy != "" {
		options.PropagationPolicy = &policy
	}
	if err := n.env.Warmpool.WarmpoolV1alpha1().WarmPools(n.Name).Delete(n.t.Context(), name, options); err != nil {
		n.t.Fatal(err)
	}
}

// DeleteClaim deletes a claim.
func (n *Namespace) DeleteClaim(name string) {
	n.t.Helper()
	if err := n.env.Warmpool.WarmpoolV1alpha1().PodClaims(n.Name).Delete(n.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

// PatchPool changes a pool by a JSON merge patch.
func (n *Namespace) PatchPool(name, patch string) {
	n.t.Helper()
	if _, err := n.env.Warmpool.WarmpoolV1alpha1().WarmPools(n.Name).Patch(n.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

// PatchTemplate gives a pool another template: one with the annotation "version".
func (n *Namespace) PatchTemplate(name, version string) {
	n.t.Helper()
	n.PatchPool(name, fmt.Sprintf(`{"spec": {"template": {"metadata": {"annotations": {"version": %q}}}}}`, version))
}

// Pool reads a pool.
func (n *Namespace) Pool(name string) *v1alpha1.WarmPool {
	n.t.Helper()
	pool, err := n.env.Warmpool.WarmpoolV1alpha1().WarmPools(n.Name).Get(n.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	return pool
}

// Claim reads a claim.
func (n *Namespace) Claim(name string) *v1alpha1.PodClaim {
	n.t.Helper()
	claim, err := n.env.Warmpool.WarmpoolV1alpha1().PodClaims(n.Name).Get(n.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	return claim
}

// Claims reads all claims, by name.
func (n *Namespace) Claims() map[string]*v1alpha1.PodClaim {
	n.t.Helper()
	list, err := n.env.Warmpool.WarmpoolV1alpha1().PodClaims(n.Name).List(n.t.Context(), metav1.ListOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	claims := map[string]*v1alpha1.PodClaim{}
	for i := range list.Items {
		claims[list.Items[i].Name] = &list.Items[i]
	}
	return claims
}

// Pods reads all Pods, by their UID.
func (n *Namespace) Pods() map[types.UID]*corev1.Pod {
	n.t.Helper()
	list, err := n.env.Kube.CoreV1().Pods(n.Name).List(n.t.Context(), metav1.ListOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	pods := map[types.UID]*corev1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].UID] = &list.Items[i]
	}
	return pods
}

// PodsOf reads the Pods whose controller owner has the UID and that aren't being
// deleted, in the order of their names.
func (n *Namespace) PodsOf(owner types.UID) []*corev1.Pod {
	n.t.Helper()
	var pods []*corev1.Pod
	for _, pod := range n.Pods() {
		if controller := metav1.GetControllerOf(pod); controller != nil && controller.UID == owner && pod.DeletionTimestamp == nil {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return pods
}
