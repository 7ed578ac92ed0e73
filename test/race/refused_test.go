package race

// Writes that are refused: by a quota, by another writer, by one's own last write.

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

const refusals = "scenario: refused writes"

// patientWrites is for tests that count what is refused, or that write much at once: on a
// busy machine an answer may take longer than the suite's second.
const patientWrites = "--write-timeout=10s"

// conflicted tells whether a write met something that wasn't what it was decided on.
func conflicted(q *faultproxy.Request) bool {
	return q.Code == http.StatusConflict || q.Code == http.StatusUnprocessableEntity || q.Code == http.StatusNotFound
}

// conflicts is how many writes of a kind did, of all processes.
func (r *run) conflicts(m faultproxy.Match) (n int) {
	r.t.Helper()
	for _, log := range r.logs() {
		for _, q := range log.Select(m) {
			if conflicted(&q) {
				n++
			}
		}
	}
	return n
}

// B39, the half without a quota: a controller fired its whole batch again and again into a
// namespace that was being deleted. And B70: a namespace that comes back is served. Here
// the namespace stays for a while, since a Pod of it does, and with it the pool, all of
// whose other Pods are gone. (The quota is TestAQuotaIsReportedAndNotFought in test/e2e.)
func TestTheNamespaceIsDeletedAndMadeAgain(t *testing.T) {
	const few = 16 // an attempt for each event of a Pod that goes
	r := filled(t, refusals, 4)
	r.createClaims("a")
	r.settle()
	r.rest() // until every answer is counted
	last := r.idle()[0].Name
	r.patchPod(last, `{"metadata": {"finalizers": ["example.com/wait"]}}`)
	_, created := r.count(creations)
	namespaces := r.env.Kube.CoreV1().Namespaces()
	if err := namespaces.Delete(t.Context(), r.ns.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.waitFor("all but one Pod to be gone", func(w *history.World) bool { return len(w.Pods) == 1 })
	r.waitSent(created+1, creations, answered)
	r.rest()
	ctx, cancel := r.within(held)
	defer cancel()
	if _, err := r.current().proxy.WaitRequests(ctx, created+few+1, creations, nil); err == nil {
		t.Errorf("in a namespace that is being deleted more than %d creations were tried", few)
	}
	if r.ns.Pool(poolName).DeletionTimestamp != nil {
		t.Error("the pool is being deleted as well, so that nothing was to be created")
	}
	tries, done := r.count(creations)
	t.Logf("%d creations were refused", tries-done)
	if done != created {
		t.Errorf("in a namespace that was being deleted %d Pods were created", done-created)
	}
	r.patchPod(last, `{"metadata": {"finalizers": null}}`)

	r.ns.Eventually("the namespace to be made again", func() error {
		_, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.ns.Name}}, metav1.CreateOptions{})
		return err
	})
	r.ns.Eventually("its service account", func() error {
		_, err := r.env.Kube.CoreV1().ServiceAccounts(r.ns.Name).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	r.ns.CreatePool(environment.Pool(poolName, 2))
	r.createClaims("a")
	r.settleSoon()
	r.ns.WaitBound("a")
	r.end(history.Terms{})
}

// B41: a second write of a status carried the version from before the first, and met a
// conflict with itself, again and again. Here a Pod's readiness turns twenty times, and the
// events of the pool, whose status follows it, don't come.
func TestAPoolsStatusIsToChangeTwentyTimesUnseen(t *testing.T) {
	const turns = 20
	r := filled(t, refusals, 2)
	r.seesPool()
	blind := r.goesWrong(blindFor("warmpools"))
	_, before := r.count(poolStatuses)
	pod := r.idle()[0]
	for i := range turns {
		r.ns.SetReady(pod, i%2 == 1)
	}
	r.waitSent(before+1, poolStatuses, (*faultproxy.Request).Committed)
	r.sendsNothing(held, poolStatuses, "the last status hasn't been seen")
	r.wantFired("backlog", "parked_behind")
	blind.release()
	r.settleSoon()
	if n := r.conflicts(poolStatuses); n > 0 {
		t.Errorf("%d writes of the pool's status met a conflict, with nobody but the controller itself", n)
	}
	if _, done := r.count(poolStatuses); done > before+2 {
		t.Errorf("the status was written %d times, want 2 at most: unseen, and when it was seen", done-before)
	}
	r.end(history.Terms{})
}

// B42: a retry read the same old object from the cache again, until its attempts were used
// up; or it took the new version and did what it had decided on the old one. Here somebody
// else takes the only idle Pod, unseen, and a claim comes. One attempt is refused, the next
// one is made when the Pod was seen to be taken, and is another decision.
func TestSomebodyElseTakesThePodUnseen(t *testing.T) {
	r := filled(t, refusals, 1, patientWrites)
	blind := r.goesWrong(blindFor("pods"))
	taken := r.idle()[0]
	thief, err := r.env.Kube.CoreV1().ConfigMaps(r.ns.Name).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "thief"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.patchPod(taken.Name, fmt.Sprintf(`{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "thief", "uid": %q, "controller": true}]}}`, thief.UID))
	r.createClaims("a")
	r.waitSent(1, handOuts, conflicted)
	r.sendsNothing(held, handOuts, "the Pod hasn't been seen to be taken")
	r.wantFired("ledger", "outdated_cache_noticed")
	blind.release()
	if pod := r.ns.WaitBound("a")["a"]; pod == taken.UID {
		t.Error("the claim has the Pod that somebody else had taken")
	}
	if owner := metav1.GetControllerOf(r.ns.Pods()[taken.UID]); owner == nil || owner.UID != thief.UID {
		t.Errorf("the Pod that was taken has the owner %v", owner)
	}
	r.losePod(taken.Name, taken.UID) // it is the thief's, whom nobody judges
	r.settleSoon()
	if n := r.conflicts(handOuts); n != 1 {
		t.Errorf("%d hand-outs were refused, want one", n)
	}
	r.end(history.Terms{})
}

// B43: of six claims at once five were never served, in a storm of conflicts. Here sixty
// come at once to a pool of ten, and each event of a Pod comes half a second late.
func TestManyClaimsMeetACacheThatLags(t *testing.T) {
	const (
		claims, few = 60, 6
		late        = 500 * time.Millisecond
	)
	r := filled(t, refusals, 10, patientWrites)
	r.goesWrong(faultproxy.Rule{Match: faultproxy.Match{Verb: "watch", Resource: "pods"}, Do: faultproxy.LagEvents(late)})
	for i := range claims {
		r.createClaims(fmt.Sprintf("claim-%d", i))
	}
	r.settleSoon()
	r.judgeWaits(claims, soon)
	if n := r.conflicts(guarded); n > few {
		t.Errorf("%d writes met a conflict, want %d at most", n, few)
	}
	r.wantFired("backlog", "parked_behind")
	r.wantMade(10 + claims)
	r.end(history.Terms{})
}

// B46: what was being deleted was deleted again in a hot loop; or a copy of it that said so
// kept the controller from ever doing anything more. Here Pods take their time to go, since
// somebody else's finalizer holds them, while the pool is made smaller and larger; then
// they go, and it isn't seen.
func TestPodsTakeTheirTimeToGo(t *testing.T) {
	r := filled(t, refusals, 3)
	for _, pod := range r.idle() {
		r.patchPod(pod.Name, `{"metadata": {"finalizers": ["example.com/wait"]}}`)
	}
	r.ns.PatchPool(poolName, `{"spec": {"replicas": 1}}`)
	r.waitSent(2, deletions, (*faultproxy.Request).Committed)
	r.sendsNothing(held, deletions, "the Pods are going already")
	r.ns.PatchPool(poolName, `{"spec": {"replicas": 3}}`)
	r.waitSent(5, creations, (*faultproxy.Request).Committed)

	unseen := r.goesWrong(faultproxy.Rule{
		Match: faultproxy.Match{Verb: "watch", Resource: "pods", Event: "DELETED"},
		Do:    faultproxy.HoldStream(),
	})
	for _, pod := range r.ns.Pods() {
		if len(pod.Finalizers) > 0 {
			r.patchPod(pod.Name, `{"metadata": {"finalizers": null}}`)
		}
	}
	r.waitFor("the Pods to be gone", func(w *history.World) bool { return len(w.Pods) == 3 })
	r.waitFired(unseen, 1)
	r.ns.PatchPool(poolName, `{"spec": {"replicas": 2}}`)
	r.waitSent(3, deletions, (*faultproxy.Request).Committed)
	r.sendsNothing(held, deletions, "the Pods are gone already")
	unseen.release()
	r.settleSoon()
	r.wantMade(5)
	r.end(history.Terms{})
}
