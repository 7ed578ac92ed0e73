package race

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

// B84: a claim hung on a Pod that wasn't ready, or was going, since the copy that said
// otherwise was believed. Here the only Pod stops being ready, is being deleted, or is
// gone, nobody sees it, and a claim comes. It gets the next one.
func TestTheOnlyPodIsNoLongerFitAndNobodySeesIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil, mend func(*run, *corev1.Pod)
		code        int
	}{
		"not ready": {
			spoil: func(r *run, pod *corev1.Pod) { r.ns.SetReady(pod, false) },
			mend:  func(r *run, pod *corev1.Pod) { r.ns.SetReady(pod, true) },
			code:  http.StatusUnprocessableEntity,
		},
		"being deleted": {
			spoil: func(r *run, pod *corev1.Pod) {
				r.setFinalizers(`["example.com/wait"]`)
				r.losePod(pod.Name, pod.UID)
			},
			mend: func(r *run, pod *corev1.Pod) { r.patchPod(pod.Name, `{"metadata": {"finalizers": null}}`) },
			code: http.StatusUnprocessableEntity,
		},
		"gone": {
			spoil: func(r *run, pod *corev1.Pod) { r.losePod(pod.Name, pod.UID) },
			mend:  func(*run, *corev1.Pod) {},
			code:  http.StatusNotFound,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := filled(t, warmPools, 1, patient)
			pod := r.idle()[0]
			blind := r.goesWrong(blindFor("pods"))
			c.spoil(r, pod)
			r.createClaims("a")
			if first := r.waitSent(1, handOuts, answered)[0]; first.Name != pod.Name || first.Code != c.code {
				t.Errorf("the hand-out of Pod %s was answered %d, want %d for %s", first.Name, first.Code, c.code, pod.Name)
			}
			r.wake(3)
			r.want(handOuts, 1, 0)
			r.wantFired("ledger", "outdated_cache_noticed")
			blind.release()
			if bound := r.ns.WaitBound("a")["a"]; bound == pod.UID {
				t.Errorf("the claim has the Pod that is %s", name)
			}
			c.mend(r, pod)
			r.settleSoon()
			r.want(handOuts, 2, 1)
			r.end(history.Terms{})
		})
	}
}

// B86: after an upgrade the Pods' owners had another version of the API than was looked
// for, and no warm Pod was taken any more. Here the owners of the idle Pods are of an
// older version: they are counted, and handed out.
func TestTheOwnersOfPodsAreOfAnOlderVersionOfTheAPI(t *testing.T) {
	r := filled(t, warmPools, 3, patient)
	before := r.idle()
	for _, pod := range before {
		owner := pod.OwnerReferences[0]
		r.patchPod(pod.Name, fmt.Sprintf(
			`{"metadata": {"ownerReferences": [{"apiVersion": "warmpool.dev/v1alpha0", "kind": %q, "name": %q, "uid": %q, "controller": true, "blockOwnerDeletion": true}]}}`,
			owner.Kind, owner.Name, owner.UID))
	}
	changed := r.ns.Pods()[before[2].UID]
	r.waitDelivered(func(d faultproxy.Delivery) bool {
		return d.Name == changed.Name && d.ResourceVersion == changed.ResourceVersion
	})
	r.wake(3)
	r.want(creations, 3, 3)
	r.createClaims("a")
	bound := r.ns.WaitBound("a")["a"]
	if bound != before[0].UID && bound != before[1].UID && bound != before[2].UID {
		t.Error("the claim has none of the Pods that were warm")
	}
	r.settleSoon()
	r.want(creations, 4, 4)
	r.want(handOuts, 1, 1)
	if owner := metav1.GetControllerOf(r.ns.Pods()[bound]); owner.Kind != "PodClaim" || strings.HasSuffix(owner.APIVersion, "v1alpha0") {
		t.Errorf("the owner of the claimed Pod is %v", owner)
	}
	r.end(history.Terms{})
}

// B87: all workers sorted the same list and took the first, so that most of them failed,
// and said that there was nothing although most of it was free. Here there is a ready Pod
// for each of many claims, and all events come late. No attempt fails, and no claim is
// told anything but which Pod it has.
func TestThereIsAReadyPodForEachClaimAndAllEventsLag(t *testing.T) {
	const pools, each = 3, 10
	r := scenario(t, warmPools, "--workers=10", patient)
	for i := range pools {
		r.ns.CreatePool(environment.Pool(fmt.Sprint("pool-", i), each))
	}
	r.settle()
	r.goesWrong(faultproxy.Rule{Match: faultproxy.Match{Verb: "watch"}, Do: faultproxy.LagEvents(300 * time.Millisecond)})
	for i := range pools * each {
		r.ns.CreateClaim(environment.Claim(fmt.Sprint("claim-", i), fmt.Sprint("pool-", i%pools)))
	}
	r.settleSoon()
	r.want(handOuts, pools*each, pools*each)
	r.want(claimStatuses, pools*each, pools*each)
	r.want(creations, 2*pools*each, 2*pools*each)
	r.end(history.Terms{})
}

// B89: runners that had failed counted as there, in a phase that nothing led out of, and
// after an outage in the midst of a change nothing moved any more. Here all idle Pods end
// by themselves, and all writes fail while the pool is changed and a claim comes.
func TestAllPodsFailAndThenAllWrites(t *testing.T) {
	r := filled(t, warmPools, 4, quick)
	fails := r.goesWrong(faultproxy.Rule{Match: guarded, Do: faultproxy.Refuse(faultproxy.InternalError())})
	for i, pod := range r.idle() {
		r.ns.EndPod(pod, []corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded}[i%2])
	}
	r.ns.PatchPool(poolName, `{"spec": {"replicas": 5, "template": {"metadata": {"annotations": {"version": "2"}}}}}`)
	r.createClaims("a")
	r.waitFired(fails, 8)
	fails.release()
	r.heal()
	r.settle()
	r.ns.WaitBound("a")
	r.ns.WaitPool(poolName, 5, 1)
	r.end(history.Terms{})
}

// B91: a name was made from the number of Pods, and existed already once one in the midst
// was missing. Here Pods in the midst go again and again, and their events come late.
func TestPodsInTheMidstGoAgainAndAgain(t *testing.T) {
	const rounds = 4
	r := filled(t, warmPools, 4, patient)
	r.goesWrong(faultproxy.Rule{Match: faultproxy.Match{Verb: "watch", Resource: "pods"}, Do: faultproxy.LagEvents(300 * time.Millisecond)})
	for range rounds {
		for _, pod := range r.idle()[1:3] {
			r.losePod(pod.Name, pod.UID)
		}
		r.settleSoon()
	}
	r.want(creations, 4+2*rounds, 4+2*rounds)
	r.end(history.Terms{})
}
