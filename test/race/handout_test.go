package race

// What went wrong in other warm pools: a Pod for two, two Pods for one, Pods without
// number, and Pods that were taken away.

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/pool"
	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

const warmPools = "scenario: warm pools"

// B74: a hand-out was two writes, between them the Pod was nobody's, and another claim
// took it. Here many claims want the only Pod there may be, and the second write, the
// claim's status, gets no answer for long. (A controller that dies between the two is in
// TestTheControllerDiesAfterEveryWrite.)
func TestManyClaimsWantTheOnlyPod(t *testing.T) {
	t.Parallel()
	for _, claims := range []int{2, 20} {
		t.Run(fmt.Sprint(claims), func(t *testing.T) {
			r := scenario(t, warmPools, "--workers=8", quick)
			r.ns.CreatePool(environment.Pool(poolName, 1, func(p *v1alpha1.WarmPool) { p.Spec.MaxSize = 1 }))
			r.settle()
			held := r.goesWrong(faultproxy.Rule{Match: claimStatuses, Times: 1, Do: faultproxy.HoldAnswer()})
			for i := range claims {
				r.createClaims(fmt.Sprint("claim-", i))
			}
			r.waitFired(held, 1)
			r.settleSoon()
			r.want(handOuts, 1, 1)
			for name, claim := range r.ns.Claims() {
				if claim.Status.Pod != nil {
					r.ns.DeleteClaim(name)
				}
			}
			r.settle() // the next one gets another Pod
			r.want(handOuts, 2, 2)
			r.want(creations, 2, 2)
			r.end(history.Terms{})
		})
	}
}

// B75: the Pod was handed out, writing the claim's status failed, and the next attempt
// looked only there, found nothing and took another Pod. Here the statuses fail and the
// Pods' events are held; and one of the hand-outs has no answer besides.
func TestClaimsHaveTheirPodsAndTheirStatusesFail(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"statuses fail": false, "and an answer is lost": true} {
		t.Run(name, func(t *testing.T) {
			r := filled(t, warmPools, 3, quick)
			blind := r.goesWrong(blindFor("pods"))
			fails := r.goesWrong(faultproxy.Rule{Match: claimStatuses, Do: faultproxy.Refuse(faultproxy.InternalError())})
			first := fails
			if lost {
				first = r.goesWrong(faultproxy.Rule{Match: handOuts, Times: 1, Do: faultproxy.LoseAnswer(faultproxy.Reset())})
			}
			r.createClaims("a", "b", "c")
			r.waitFired(first, 1)
			r.waitForGuard("validator", "doubts_resolved")
			_, done := r.count(handOuts)
			r.wake(3)
			r.want(handOuts, done, done)
			blind.release()
			// All have Pods, are looked at again, and can't be told.
			const attempts = 5
			r.waitFired(fails, attempts)
			fails.release()
			r.heal()
			r.settle()
			r.want(handOuts, 3, 3)
			r.end(history.Terms{})
		})
	}
}

// B76: ten times as many Pods as asked for, since each of many workers counted in a cache
// that lagged, and each Pod that was made woke them again. Here many pools are filled by
// more workers than there are pools, and all events come half a second late. (Pods that
// don't become Ready are in TestAPodThatDoesNotBecomeReadyIsReplaced.)
func TestManyPoolsFillWhileAllEventsLag(t *testing.T) {
	const pools, replicas = 8, 6
	r := scenario(t, warmPools, "--workers=20", patient)
	r.goesWrong(faultproxy.Rule{Match: faultproxy.Match{Verb: "watch"}, Do: faultproxy.LagEvents(500 * time.Millisecond)})
	for i := range pools {
		r.ns.CreatePool(environment.Pool(fmt.Sprint("pool-", i), replicas))
	}
	r.settleSoon()
	r.want(creations, pools*replicas, pools*replicas)
	r.want(deletions, 0, 0)
	r.wantFired("backlog", "parked_behind")
	r.end(history.Terms{})
}

// B78: a Pod was free when the pool was made smaller, claimed a moment later, and deleted
// in the hands of its user. Here the deletion is on its way when the Pod is handed out: by
// another leader while the request waits, or by this one long after it has given it up.
func TestAPodIsHandedOutWhileItsDeletionIsOnItsWay(t *testing.T) {
	t.Parallel()
	t.Run("by another leader", func(t *testing.T) {
		r := filled(t, warmPools, 1, patient)
		r.goesWrong(faultproxy.Rule{Match: deletions, Times: 1, Do: faultproxy.Before(func(x *faultproxy.Exchange) {
			if err := r.handOutByHand(x.Name); err != nil {
				t.Error(err)
			}
		})})
		r.ns.PatchPool(poolName, `{"spec": {"replicas": 0}}`)
		r.refusedDeletion()
		r.settleSoon()
		r.ns.WaitBound("a")
		r.want(deletions, 1, 0)
		r.end(history.Terms{})
	})
	t.Run("by this one", func(t *testing.T) {
		r := filled(t, warmPools, 1, quick)
		late := r.goesWrong(faultproxy.Rule{Match: deletions, Times: 1, Do: faultproxy.LateCommit(faultproxy.Reset())})
		r.ns.PatchPool(poolName, `{"spec": {"replicas": 0}}`)
		r.waitFired(late, 1)
		r.createClaims("a")
		bound := r.ns.WaitBound("a")["a"]
		late.release()
		r.refusedDeletion()
		if pod := r.ns.Pods()[bound]; pod == nil || pod.DeletionTimestamp != nil {
			t.Errorf("the Pod of claim a is %v, want it to live", pod)
		}
		r.settleSoon()
		r.want(creations, 1, 1)
		r.end(history.Terms{})
	})
}

// refusedDeletion waits until the API server has refused the first deletion.
func (r *run) refusedDeletion() {
	r.t.Helper()
	if first := r.waitSent(1, deletions, answered)[0]; first.Code != http.StatusConflict {
		r.t.Errorf("the deletion was answered %d, want a conflict", first.Code)
	}
}

// handOutByHand does what another leader would: it hands a Pod out to a claim that it
// creates. It may be called on any goroutine.
func (r *run) handOutByHand(name string) error {
	ctx, pods := r.t.Context(), r.env.Kube.CoreV1().Pods(r.ns.Name)
	claim, err := r.env.Warmpool.WarmpoolV1alpha1().PodClaims(r.ns.Name).Create(ctx, environment.Claim("a", poolName), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pod, err := pods.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	patch, err := pool.HandOutPatch(pod, claim)
	if err != nil {
		return err
	}
	_, err = pods.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{})
	return err
}

// B80: a used Pod was given to a second user, since the claim had been deleted while
// nobody looked and the Pod seemed free. Here the claims' watch is frozen when a claim
// goes, and its Pod, and another claim comes. (Where the controller doesn't run meanwhile,
// it is TestAUsedPodNeverReturnsToThePool.)
func TestAClaimGoesUnseenAndAnotherComes(t *testing.T) {
	r := filled(t, warmPools, 1, patient)
	r.createClaims("a")
	r.settle()
	used := r.ns.Claim("a").Status.Pod.UID
	frozen := r.goesWrong(faultproxy.Rule{Match: faultproxy.Match{Verb: "watch", Resource: "podclaims"}, Do: faultproxy.Freeze()})
	r.ns.DeleteClaim("a")
	r.ns.Eventually("the Pod of the claim to be gone", func() error {
		if pod := r.ns.Pods()[used]; pod != nil {
			return fmt.Errorf("Pod %s is there", pod.Name)
		}
		return nil
	})
	r.createClaims("b")
	r.wake(3)
	r.want(handOuts, 1, 1)
	frozen.release()
	r.settleSoon()
	if pod := r.ns.WaitBound("b")["b"]; pod == used {
		t.Error("the second claim has the Pod that the first one has used")
	}
	r.want(handOuts, 2, 2)
	r.end(history.Terms{})
}

// B82: the Pod of a claim that had expired was looked for under a name in a status, not
// found, and left behind. Here somebody empties a claim's status: the API server keeps
// which Pod it has, the controller restores the rest, and the claim's Pod goes with it.
func TestSomebodyEmptiesAClaimsStatus(t *testing.T) {
	r := filled(t, warmPools, 1, patient)
	r.excused = []string{"O19"} // somebody takes the conditions away
	r.createClaims("a")
	bound := r.ns.WaitBound("a")["a"]
	r.settle()
	patch := func(status string) (string, error) {
		return r.ns.TryKubectl("patch", "podclaim", "a", "--subresource=status", "--type=merge", "--patch", `{"status": `+status+`}`)
	}
	for _, status := range []string{`null`, `{"pod": null}`, `{"pod": {"name": "another", "uid": "another"}}`} {
		if _, err := patch(status); err == nil || !strings.Contains(err.Error(), "status.pod is written once") {
			t.Errorf("the status %s was answered %v", status, err)
		}
	}
	if _, err := patch(`{"conditions": null, "nodeName": null, "podIPs": null}`); err != nil {
		t.Fatal(err)
	}
	r.settleSoon()
	r.ns.WaitCondition("a", "Ready", "True", "PodReady")
	r.ns.DeleteClaim("a")
	r.settle()
	if pod := r.ns.Pods()[bound]; pod != nil {
		t.Errorf("Pod %s of the deleted claim is there still", pod.Name)
	}
	r.want(handOuts, 1, 1)
	r.end(history.Terms{})
}
