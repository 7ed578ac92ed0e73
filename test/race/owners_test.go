package race

// Owners: who a Pod belongs to, and what the garbage collector makes of it.

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/pool"
	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

const owners = "scenario: owners"

// B63: Pods that had been orphaned on purpose were adopted again by a parent that was being
// deleted, and collected with it. This controller adopts nothing. Here a pool is deleted
// and its Pods are to stay; its own events don't come, those of its Pods, which lose their
// owner, do. Then a pool of that name is made again, and leaves them alone too.
func TestAPoolIsDeletedAndItsPodsAreOrphaned(t *testing.T) {
	r := filled(t, owners, 3)
	r.seesPool()
	blind := r.goesWrong(blindFor("warmpools"))
	orphans := r.idle()
	r.ns.DeletePool(poolName, metav1.DeletePropagationOrphan)
	r.waitFor("the pool to be gone and its Pods to stay", func(w *history.World) bool {
		for _, pod := range orphans {
			if w.Pods[pod.UID] == nil || len(w.Pods[pod.UID].OwnerReferences) > 0 {
				return false
			}
		}
		return len(w.Pools) == 0
	})
	r.sendsNothing(held, podWrites, "the pool is gone, unseen, and its Pods are nobody's")
	if r.metric(`warmpool_conflicts_total{write="create pods of pool"}`) == 0 {
		t.Error("nobody has asked the API server for the pool before creating Pods")
	}
	blind.release()
	r.ns.CreatePool(environment.Pool(poolName, 1))
	r.ns.WaitPool(poolName, 1, 0)
	for _, pod := range orphans {
		if now := r.ns.Pods()[pod.UID]; now == nil || len(now.OwnerReferences) > 0 {
			t.Errorf("the orphan %s is gone, or has an owner: %v", pod.Name, now)
		}
		r.losePod(pod.Name, pod.UID) // the judges want an owner for each
	}
	r.settleSoon()
	r.wantMade(4)
	r.want(deletions, 0, 0)
	r.end(history.Terms{})
}

// B64: an owner reference with the right UID and a wrong kind or version made the garbage
// collector delete what was in use. B66: a finalizer of one's own was left on what nobody
// looked after any more. Here all that is written in a whole story is looked through: each
// owner is in the same namespace, and named by its API version, kind, name and UID, and
// nothing has a finalizer of this controller's.
func TestEveryOwnerIsNamedExactlyAndNothingHasAFinalizer(t *testing.T) {
	t.Parallel()
	r := newRun(t, env, owners)
	r.launch()
	r.tell(story())
	known := map[metav1.OwnerReference]bool{}
	named := 0
	for _, v := range r.past().Versions {
		if finalizers := v.Object.GetFinalizers(); len(finalizers) > 0 {
			t.Errorf("%s has the finalizers %v", &v, finalizers)
		}
		known[ownerRef(v.Object.GetAPIVersion(), v.Object.GetKind(), v.Object.GetName(), v.UID())] = true
		if v.Resource != history.Pods {
			continue
		}
		for _, owner := range v.Object.GetOwnerReferences() {
			named++
			if !known[ownerRef(owner.APIVersion, owner.Kind, owner.Name, owner.UID)] || !ptr.Deref(owner.Controller, false) {
				t.Errorf("%s is owned by %+v, which there is not", &v, owner)
			}
		}
	}
	if named == 0 {
		t.Error("no Pod had an owner")
	}
	r.finish(history.Terms{})
}

func ownerRef(apiVersion, kind, name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid}
}

// B67: a Pod was deleted right after it was made, since the garbage collector didn't find
// the owner that was as young. Here fifteen pools get their first Pods at once, while it
// runs, and all of them keep theirs.
func TestThePodsOfPoolsThatAreJustMade(t *testing.T) {
	const pools = 15
	r := scenario(t, owners)
	for i := range pools {
		r.ns.CreatePool(environment.Pool(fmt.Sprintf("%s-%d", poolName, i), 1))
	}
	r.settleSoon()
	r.wantMade(pools)
	r.sendsNothing(stallAfter, guarded, "all pools are full")
	for _, v := range r.past().Versions {
		if v.Resource == history.Pods && v.Object.GetDeletionTimestamp() != nil {
			t.Errorf("%s was deleted", &v)
		}
	}
	r.end(history.Terms{})
}

// B68: "already exists" was taken for one's own work, and somebody else's object was
// deleted in the end. Here each name that the controller chooses first is taken right
// before: by a Pod of nobody, by one with another owner, and by one that a pool of the same
// name has left, which is on its way out. None is touched, and the pool gets other Pods.
func TestTheNamesOfNewPodsAreTaken(t *testing.T) {
	const pods = 3
	r := filled(t, owners, 1)
	old := r.ns.Pool(poolName)
	r.ns.DeletePool(poolName, metav1.DeletePropagationForeground)
	r.waitFor("the first pool to be gone", func(w *history.World) bool { return len(w.Pools)+len(w.Pods) == 0 })
	thief, err := r.env.Kube.CoreV1().ConfigMaps(r.ns.Name).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	squatters := []func(*corev1.Pod){
		func(*corev1.Pod) {},
		func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: thief.Name, UID: thief.UID, Controller: ptr.To(true)}}
		},
		func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(old, v1alpha1.WarmPoolKind)}
			pod.Labels = pool.NewPod(old, pod.Name).Labels
			pod.Finalizers = []string{"example.com/wait"}
		},
	}
	var taken atomic.Int64
	squats := r.goesWrong(faultproxy.Rule{Match: creations, Times: pods, Do: faultproxy.Before(func(x *faultproxy.Exchange) {
		r.squat(x.Name, squatters[taken.Add(1)-1])
	})})
	r.ns.CreatePool(environment.Pool(poolName, pods))
	r.waitFired(squats, pods)
	r.ns.WaitPool(poolName, pods, 0)
	r.wantFired("ledger", "outdated_cache_noticed")
	for _, q := range r.current().proxy.Log().Select(guarded) {
		if q.Verb != "create" && slices.ContainsFunc(r.squatted(), func(pod *corev1.Pod) bool { return pod.Name == q.Name }) {
			t.Errorf("the controller has sent %s of %s, which isn't its own", q.Verb, q.Name)
		}
	}
	if n := len(r.squatted()); n != pods {
		t.Errorf("of %d foreign Pods %d are left", pods, n)
	}
	for _, pod := range r.squatted() {
		if len(pod.Finalizers) > 0 {
			r.patchPod(pod.Name, `{"metadata": {"finalizers": null}}`)
		}
		r.losePod(pod.Name, pod.UID)
	}
	r.settleSoon()
	r.want(deletions, 0, 0)
	r.end(history.Terms{Excess: 1}) // the one that says it is the old pool's
}

// squat takes a name. It may be called by any goroutine.
func (r *run) squat(name string, change func(*corev1.Pod)) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{squatter: "yes"}},
		Spec:       environment.Pool(poolName, 1).Spec.Template.Spec,
	}
	change(pod)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := r.env.Kube.CoreV1().Pods(r.ns.Name).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		r.t.Errorf("take the name %s: %v", name, err)
	}
}

const squatter = "example.com/squatter"

// squatted are the Pods that squat has made.
func (r *run) squatted() []*corev1.Pod {
	r.t.Helper()
	var pods []*corev1.Pod
	for _, pod := range r.ns.Pods() {
		if pod.Annotations[squatter] != "" {
			pods = append(pods, pod)
		}
	}
	return pods
}
