package race

// The story that is told again and again.

import (
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/test/environment"
)

// poolName is the pool that the story is about.
const poolName = "runners"

// step is something that users and nodes do, all of it at once. It is over when
// everything is where it belongs.
type step struct {
	name string
	do   func(*run)
}

// story is told to each controller. Four claims on three Pods make one of them wait; a
// claim whose Pod is lost is finished; the deletion of a claim leaves its Pod to the
// garbage collector; the Pods that are left roll one by one.
func story() []step {
	return []step{
		{"a pool of three is created", func(r *run) { r.ns.CreatePool(environment.Pool(poolName, 3, halfAtATime)) }},
		{"four claims come at once", func(r *run) { r.createClaims("a", "b", "c", "d") }},
		{"two more claims come", func(r *run) { r.createClaims("e", "f") }},
		{"the pool is made larger", func(r *run) { r.ns.PatchPool(poolName, `{"spec": {"replicas": 4}}`) }},
		{"a claim is deleted, a claimed Pod and an idle one are lost", func(r *run) {
			r.ns.DeleteClaim("a")
			r.losePodOf("b")
			r.loseIdlePod()
		}},
		{"the pool is made smaller, and its template changed", func(r *run) {
			r.ns.PatchPool(poolName, `{"spec": {"replicas": 2, "template": {"metadata": {"annotations": {"version": "2"}}}}}`)
		}},
	}
}

// halfAtATime lets a roll take half of the Pods at a time: few enough that some must stay,
// and so many that the story doesn't become longer than it must.
func halfAtATime(pool *v1alpha1.WarmPool) {
	pool.Spec.UpdateStrategy.RollingUpdate = &v1alpha1.RollingUpdateSettings{MaxUnavailable: ptr.To(intstr.FromString("50%"))}
}

func (r *run) createClaims(names ...string) {
	r.t.Helper()
	for _, name := range names {
		r.ns.CreateClaim(environment.Claim(name, poolName))
	}
}

// losePodOf makes the Pod of a claim vanish, if it has one.
func (r *run) losePodOf(claim string) {
	r.t.Helper()
	if pod := r.ns.Claim(claim).Status.Pod; pod != nil {
		r.losePod(pod.Name, pod.UID)
	}
}

// loseIdlePod makes an idle Pod of the pool vanish, if it has one.
func (r *run) loseIdlePod() {
	r.t.Helper()
	if idle := r.ns.PodsOf(r.ns.Pool(poolName).UID); len(idle) > 0 {
		r.losePod(idle[0].Name, idle[0].UID)
	}
}

// losePod makes a Pod vanish at once, as when its node is gone.
func (r *run) losePod(name string, uid types.UID) {
	r.t.Helper()
	err := r.env.Kube.CoreV1().Pods(r.ns.Name).Delete(r.t.Context(), name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0),
		Preconditions:      &metav1.Preconditions{UID: &uid},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		r.t.Fatalf("delete %s %s: %v", corev1.ResourcePods, name, err)
	}
}
