package race

// What users and nodes do in a script.

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/test/environment"
)

// The pools of all scripts. A script may well do without the second.
var poolNames = []string{poolName, "games"}

// pool draws one of the pools that are there; empty: none is.
func (a *author) pool() string {
	names := slices.Sorted(maps.Keys(a.pools))
	if len(names) == 0 {
		return ""
	}
	return names[a.IntN(len(names))]
}

func (a *author) createPool() step {
	name := poolNames[0]
	if _, ok := a.pools[name]; ok {
		name = poolNames[1]
	}
	if _, ok := a.pools[name]; ok {
		return step{}
	}
	pool, words := a.newPool(name)
	return step{words + " is created", func(r *run) { r.ns.CreatePool(pool.DeepCopy()) }}
}

// newPool draws a pool.
func (a *author) newPool(name string) (*v1alpha1.WarmPool, string) {
	replicas := a.IntN(5)
	pool, words := environment.Pool(name, int32(replicas)), fmt.Sprintf("a pool %s of %d", name, replicas)
	if name == poolNames[1] {
		pool.Spec.UpdateStrategy.Type = v1alpha1.Recreate
		words += " (Recreate)"
	}
	if a.IntN(5) == 0 {
		pool.Spec.MaxSize = int32(replicas + 1 + a.IntN(4))
		words += fmt.Sprintf(" (maxSize %d)", pool.Spec.MaxSize)
	}
	a.pools[name] = replicas
	a.expectPods(replicas)
	a.expect("event", "warmpools", "", 1)
	a.expectStatus()
	return pool, words
}

func (a *author) createClaims() step {
	n := 1 + a.IntN(4)
	if a.IntN(6) == 0 {
		n += a.IntN(5)
	}
	pool := poolNames[0]
	if a.IntN(3) == 0 {
		pool = poolNames[1]
	}
	a.expectStatus()
	var all []*v1alpha1.PodClaim
	var words []string
	for range n {
		claim, described := a.newClaim(pool)
		all, words = append(all, claim), append(words, described)
	}
	return step{fmt.Sprintf("claims on %s: %s", pool, strings.Join(words, ", ")), func(r *run) {
		for _, claim := range all {
			r.ns.CreateClaim(claim.DeepCopy())
		}
	}}
}

// newClaim draws a claim.
func (a *author) newClaim(pool string) (*v1alpha1.PodClaim, string) {
	a.created++
	claim := environment.Claim(fmt.Sprintf("c%d", a.created), pool)
	words := claim.Name
	if a.IntN(6) == 0 {
		claim.Spec.Priority = int32(1 + a.IntN(9))
		words += fmt.Sprintf(" (priority %d)", claim.Spec.Priority)
	}
	if a.IntN(6) == 0 {
		claim.Spec.TimeoutSeconds = int32(1 + a.IntN(3))
		words += fmt.Sprintf(" (timeout %d s)", claim.Spec.TimeoutSeconds)
	}
	a.claims = append(a.claims, claim.Name)
	a.expect("update", "podclaims", "status", 1)
	a.expect("event", "podclaims", "", 2)
	if _, ok := a.pools[pool]; ok {
		a.expect("patch", "pods", "", 1)
		a.expectPods(1)
	}
	return claim, words
}

func (a *author) deleteClaim() step {
	if len(a.claims) == 0 {
		return step{}
	}
	i := a.IntN(len(a.claims))
	name := a.claims[i]
	a.claims = slices.Delete(a.claims, i, i+1)
	a.expect("event", "podclaims", "", 1)
	a.expect("event", "pods", "", 2)
	return step{fmt.Sprintf("claim %s is deleted", name), func(r *run) { r.ns.DeleteClaim(name) }}
}

// createAndDeleteClaim makes a claim that goes when it has hardly come.
func (a *author) createAndDeleteClaim() step {
	pool := a.pool()
	if pool == "" {
		return step{}
	}
	claim, words := a.newClaim(pool)
	a.claims = slices.DeleteFunc(a.claims, func(name string) bool { return name == claim.Name })
	return step{fmt.Sprintf("claim on %s: %s, deleted at once", pool, words), func(r *run) {
		r.ns.CreateClaim(claim.DeepCopy())
		r.ns.DeleteClaim(claim.Name)
	}}
}

// patchPool draws a change of one of the pools.
func (a *author) patchPool(draw func(pool string) (words, patch string)) step {
	pool := a.pool()
	if pool == "" {
		return step{}
	}
	words, patch := draw(pool)
	a.expect("event", "warmpools", "", 1)
	a.expectStatus()
	return step{fmt.Sprintf("pool %s %s", pool, words), func(r *run) { r.ns.PatchPool(pool, patch) }}
}

func (a *author) resize() step {
	return a.patchPool(func(pool string) (words, patch string) {
		was, replicas := a.pools[pool], a.IntN(6)
		a.pools[pool] = replicas
		if replicas > was {
			a.expectPods(replicas - was)
		} else if replicas < was {
			a.expect("delete", "pods", "", was-replicas)
			a.expect("event", "pods", "", 2*(was-replicas))
		}
		return fmt.Sprintf("gets %d replicas", replicas), fmt.Sprintf(`{"spec": {"replicas": %d}}`, replicas)
	})
}

func (a *author) limit() step {
	return a.patchPool(func(string) (words, patch string) {
		size := a.IntN(8)
		return fmt.Sprintf("gets maxSize %d", size), fmt.Sprintf(`{"spec": {"maxSize": %d}}`, size)
	})
}

func (a *author) changeTemplate() step {
	return a.patchPool(func(pool string) (words, patch string) {
		version, n := a.IntN(100), a.pools[pool]
		a.expect("delete", "pods", "", n)
		a.expect("event", "pods", "", 2*n)
		a.expectPods(n)
		return fmt.Sprintf("gets the template %d", version),
			fmt.Sprintf(`{"spec": {"template": {"metadata": {"annotations": {"version": "%d"}}}}}`, version)
	})
}

// labelPool is an edit that is none of the controller's business.
func (a *author) labelPool() step {
	return a.patchPool(func(string) (words, patch string) {
		label := a.IntN(100)
		return fmt.Sprintf("gets the label %d", label), fmt.Sprintf(`{"metadata": {"labels": {"somebody": "%d"}}}`, label)
	})
}

func (a *author) deletePool() step {
	name := a.pool()
	if name == "" {
		return step{}
	}
	return a.dropPool(name)
}

// dropPool deletes a pool; its idle Pods go to the garbage collector.
func (a *author) dropPool(name string) step {
	a.expect("event", "pods", "", 2*a.pools[name])
	a.expect("event", "warmpools", "", 1)
	delete(a.pools, name)
	return step{fmt.Sprintf("pool %s is deleted", name), func(r *run) { r.ns.DeletePool(name, "") }}
}

// recreatePool replaces a pool by another one of the same name.
func (a *author) recreatePool() step {
	name := a.pool()
	if name == "" {
		return step{}
	}
	drop := a.dropPool(name)
	pool, words := a.newPool(name)
	return step{fmt.Sprintf("%s, and %s created at once", drop.name, words), func(r *run) {
		drop.do(r)
		r.ns.CreatePool(pool.DeepCopy())
	}}
}

// removeIdle draws an idle Pod, and how it goes.
func (a *author) removeIdle(how string, remove func(*run, string, types.UID)) step {
	pool := a.pool()
	if pool == "" {
		return step{}
	}
	n := a.IntN(5)
	a.expectPods(1)
	a.expect("event", "pods", "", 1)
	a.expectStatus()
	return step{fmt.Sprintf("idle Pod %d of %s %s", n, pool, how), func(r *run) {
		if idle := r.ns.PodsOf(r.ns.Pool(pool).UID); len(idle) > 0 {
			pod := idle[n%len(idle)]
			remove(r, pod.Name, pod.UID)
		}
	}}
}

// removeClaimed draws a claim whose Pod goes, if it has one.
func (a *author) removeClaimed(how string, remove func(*run, string, types.UID)) step {
	if len(a.claims) == 0 {
		return step{}
	}
	claim := a.claims[a.IntN(len(a.claims))]
	a.expect("update", "podclaims", "status", 1)
	a.expect("event", "podclaims", "", 1)
	a.expect("event", "pods", "", 1)
	return step{fmt.Sprintf("the Pod of claim %s %s", claim, how), func(r *run) {
		if pod := r.ns.Claim(claim).Status.Pod; pod != nil {
			remove(r, pod.Name, pod.UID)
		}
	}}
}

// deletePod asks a Pod to end, as kubectl delete does.
func (r *run) deletePod(name string, uid types.UID) {
	r.t.Helper()
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	if err := r.env.Kube.CoreV1().Pods(r.ns.Name).Delete(r.t.Context(), name, options); err != nil && !apierrors.IsNotFound(err) {
		r.t.Fatalf("delete pod %s: %v", name, err)
	}
}

// evictPod evicts a Pod, as kubectl drain does.
func (r *run) evictPod(name string, uid types.UID) {
	r.t.Helper()
	err := r.env.Kube.PolicyV1().Evictions(r.ns.Name).Evict(r.t.Context(), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: name, Namespace: r.ns.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		r.t.Fatalf("evict pod %s: %v", name, err)
	}
}

// endPod has a Pod end by itself.
func (r *run) endPod(name string, uid types.UID) {
	r.t.Helper()
	r.patchPodStatus(name, uid, `"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "False"}]`)
}

// flapPod has a Pod not Ready, and Ready again.
func (r *run) flapPod(name string, uid types.UID) {
	r.t.Helper()
	r.patchPodStatus(name, uid, `"conditions": [{"type": "Ready", "status": "False"}]`)
	r.patchPodStatus(name, uid, `"conditions": [{"type": "Ready", "status": "True"}]`)
}

// patchPodStatus does what a kubelet does to a Pod, if it is there still.
func (r *run) patchPodStatus(name string, uid types.UID, status string) {
	r.t.Helper()
	patch := fmt.Sprintf(`{"metadata": {"uid": %q}, "status": {%s}}`, uid, status)
	_, err := r.env.Kube.CoreV1().Pods(r.ns.Name).Patch(r.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		r.t.Fatalf("patch the status of pod %s: %v", name, err)
	}
}
