package race

// What a controller notes of its own writes, and waits for: it must be settled by what
// really comes, and belong to one object and not to a name.

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

const records = "scenario: records"

// B31: what a ReplicaSet had yet to see was kept under its name, so that another one of
// the name made no Pods until a timeout. B34: a pool of the same name waited for dozens of
// Pods of its predecessor, for minutes. Here a pool is deleted while none of its Pods has
// been seen, and made again at once, many times over, with the garbage collector at work.
func TestAPoolIsMadeAgainBeforeThePodsOfTheFirstAreSeen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rounds   int
		replicas int32
	}{
		"five Pods, six times":     {6, 5},
		"twenty Pods, three times": {3, 20},
	} {
		t.Run(name, func(t *testing.T) {
			r := scenario(t, records, patient)
			for i := range c.rounds {
				_, created := r.count(creations)
				blind := r.goesWrong(blindFor("pods"))
				r.ns.CreatePool(environment.Pool(poolName, c.replicas))
				r.waitSent(created+int(c.replicas), creations, (*faultproxy.Request).Committed)
				r.ns.DeletePool(poolName, "")
				if i%2 == 1 {
					blind.release() // the events come in between
				}
				r.ns.CreatePool(environment.Pool(poolName, c.replicas))
				blind.release()
				r.settleSoon()
				if i+1 < c.rounds {
					r.ns.DeletePool(poolName, "")
				}
			}
			all := c.rounds * 2 * int(c.replicas)
			r.want(creations, all, all)
			r.wantFired("backlog", "parked_behind")
			r.end(history.Terms{})
		})
	}
}

// B32: a deletion met "not found", nobody noted that there was nothing more to wait for,
// and a node stayed without its Pod. Here somebody is faster with the Pod that is about to
// be deleted, and its event is held: it is gone, or it has changed. Then the pool grows.
func TestSomebodyIsFasterWithThePodThatIsToBeDeleted(t *testing.T) {
	t.Parallel()
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
	for name, c := range map[string]struct {
		meddle  func(ctx context.Context, r *run, pod string) error
		created int
	}{
		"it is gone": {func(ctx context.Context, r *run, pod string) error {
			return r.env.Kube.CoreV1().Pods(r.ns.Name).Delete(ctx, pod, now)
		}, 4},
		"it has changed": {func(ctx context.Context, r *run, pod string) error {
			patch := []byte(`{"metadata": {"labels": {"example.com/seen": "yes"}}}`)
			_, err := r.env.Kube.CoreV1().Pods(r.ns.Name).Patch(ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			r := filled(t, records, 3, patient)
			blind := r.goesWrong(blindFor("pods"))
			r.goesWrong(faultproxy.Rule{Match: deletions, Times: 1, Do: faultproxy.Before(func(x *faultproxy.Exchange) {
				if err := c.meddle(t.Context(), r, x.Name); err != nil {
					t.Error(err)
				}
			})})
			r.ns.PatchPool(poolName, `{"spec": {"replicas": 2}}`)
			r.waitSent(1, deletions, answered)
			r.ns.PatchPool(poolName, `{"spec": {"replicas": 3}}`)
			r.wake(2)
			r.wantFired("ledger", "outdated_cache_noticed")
			blind.release()
			r.settleSoon()
			r.want(deletions, 1, 0)
			r.want(creations, c.created, c.created)
			r.end(history.Terms{})
		})
	}
}

// B33: Pods were made and deleted while the watch was down, the next list showed neither,
// and the controller waited for the events of their creation for days. Here the watch is
// frozen while the pool fills, two of its Pods are lost, and then the watch ends with
// "too old", so that the controller never hears of these two.
func TestPodsComeAndGoWhileTheWatchIsFrozen(t *testing.T) {
	r := scenario(t, records, patient)
	regain := r.loseSight("pods")
	r.ns.CreatePool(environment.Pool(poolName, 3))
	lost := r.waitSent(3, creations, (*faultproxy.Request).Committed)[:2]
	for _, q := range lost {
		r.losePod(q.AnswerName, q.AnswerUID)
	}
	r.wake(1)
	r.wantFired("backlog", "parked_behind")
	regain()
	r.settleSoon()
	for _, d := range r.current().proxy.Log().Deliveries {
		if d.UID == lost[0].AnswerUID || d.UID == lost[1].AnswerUID {
			t.Errorf("the controller was told %s of Pod %s", d.Type, d.Name)
		}
	}
	r.want(creations, 5, 5)
	r.end(history.Terms{})
}

// B35: a thing was made and deleted within a second, the record of it was made when both
// events had been handled, and stayed until a restart. Here the answer to a creation comes
// after the Pod's events, that of its end included.
func TestAPodIsGoneBeforeItsCreationIsAnswered(t *testing.T) {
	r := scenario(t, records, patient)
	late := r.goesWrong(faultproxy.Rule{Match: creations, Times: 1, Do: faultproxy.HoldAnswer()})
	r.ns.CreatePool(environment.Pool(poolName, 2))
	pod := r.waitDelivered(func(d faultproxy.Delivery) bool { return d.Resource == history.Pods && d.Type == "ADDED" })
	r.losePod(pod.Name, pod.UID)
	r.waitDelivered(func(d faultproxy.Delivery) bool { return d.UID == pod.UID && d.Type == "DELETED" })
	late.release()
	r.settleSoon()
	r.want(creations, 3, 3)
	r.end(history.Terms{})
}

// B37: a deletion counted as seen when the Pod had its deletionTimestamp, and the Pod as
// one of the pool's as long as it was there, so that more and more were deleted. Here
// finalizers keep the Pods, the pool is made smaller by one, and looked at ten times.
func TestAPodThatIsBeingDeletedStays(t *testing.T) {
	r := filled(t, records, 6, patient)
	r.setFinalizers(`["example.com/wait"]`)
	r.ns.PatchPool(poolName, `{"spec": {"replicas": 5}}`)
	deleted := r.waitSent(1, deletions, (*faultproxy.Request).Committed)[0]
	r.waitDelivered(func(d faultproxy.Delivery) bool {
		return d.Name == deleted.Name && d.ResourceVersion == deleted.AnswerRV
	})
	r.wake(10)
	if pod := r.ns.Pods()[deleted.AnswerUID]; pod == nil || pod.DeletionTimestamp == nil {
		t.Errorf("the deleted Pod is %v, want it to be there and to end", pod)
	}
	r.want(deletions, 1, 1)
	r.setFinalizers("null")
	r.settleSoon()
	r.want(deletions, 1, 1)
	r.want(creations, 6, 6)
	r.end(history.Terms{})
}

// setFinalizers sets the finalizers of all Pods.
func (r *run) setFinalizers(finalizers string) {
	r.t.Helper()
	for _, pod := range r.ns.Pods() {
		r.patchPod(pod.Name, fmt.Sprintf(`{"metadata": {"finalizers": %s}}`, finalizers))
	}
}
