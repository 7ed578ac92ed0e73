package main

import (
	"fmt"

	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"warmpool.dev/controller/pkg/freshness"
)

// TestSync is what one look at a pool does: what there is, and what there is after it.
func TestSync(t *testing.T) {
	for _, test := range []struct {
		name string
		// objects are in the caches; the first has the resourceVersion 101, the
		// second 102, and so on.
		objects []runtime.Object
		// behind makes changes that the caches don't show.
		behind func(*testing.T, *apiServer)
		// refusal is what the API server refuses.
		refusal func(clienttesting.Action) error

		// sent are the requests that would change something, in alphabetical order.
		sent []string
		// state is what there is afterwards.
		state []string
		// retried tells that the key is tried again although nothing happens.
		retried bool
		// logged are parts of what is logged as errors, one each.
		logged []string
	}{{
		name:    "an empty pool is filled",
		objects: []runtime.Object{aPool("runners", replicas(3))},
		sent:    []string{"create pods", "create pods", "create pods", "update warmpools/status runners"},
		state: []string{
			"pod runners-*: of WarmPool uid-of-runners, idle, not ready",
			"pod runners-*: of WarmPool uid-of-runners, idle, not ready",
			"pod runners-*: of WarmPool uid-of-runners, idle, not ready",
			"pool runners: 3 idle, 0 ready, 0 claimed, 0 pending",
		},
	}, {
		name:    "a claim gets the ready Pod and is told, and the pool refills",
		objects: []runtime.Object{aPool("runners"), aPod("a", ready), aClaim("job")},
		sent:    []string{"create pods", "patch pods a", "update podclaims/status job", "update warmpools/status runners"},
		state: []string{
			"claim job: Bound=True/HandedOut, Ready=True/PodReady, pod uid-of-a",
			"pod a: of PodClaim uid-of-job, claimed, ready",
			"pod runners-*: of WarmPool uid-of-runners, idle, not ready",
			"pool runners: 1 idle, 0 ready, 1 claimed, 0 pending",
		},
	}, {
		name:    "a claim that a Pod carries, and whose status was lost, gets its status back and no second Pod",
		objects: []runtime.Object{aPool("runners"), aPod("a", ready), aPod("b", ready, ofClaim("job")), aClaim("job")},
		sent:    []string{"update podclaims/status job", "update warmpools/status runners"},
		state: []string{
			"claim job: Bound=True/HandedOut, Ready=True/PodReady, pod uid-of-b",
			"pod a: of WarmPool uid-of-runners, idle, ready",
			"pod b: of PodClaim uid-of-job, claimed, ready",
			"pool runners: 1 idle, 1 ready, 1 claimed, 0 pending, Available",
		},
	}, {
		name:    "a Pod whose labels were edited is its claim's still",
		objects: []runtime.Object{aPool("runners"), aPod("a", ready), aPod("b", ready, ofClaim("job"), labelledFor("builders")), aClaim("job")},
		sent:    []string{"update podclaims/status job", "update warmpools/status runners"},
		state: []string{
			"claim job: Bound=True/HandedOut, Ready=True/PodReady, pod uid-of-b",
			"pod a: of WarmPool uid-of-runners, idle, ready",
			"pod b: of PodClaim uid-of-job, claimed, ready",
			"pool runners: 1 idle, 1 ready, 1 claimed, 0 pending, Available",
		},
	}, {
		name:    "an idle Pod whose labels were edited is its pool's still",
		objects: []runtime.Object{aPool("runners"), aPod("a", ready, labelledFor("builders"))},
		sent:    []string{"update warmpools/status runners"},
		state: []string{
			"pod a: of WarmPool uid-of-runners, idle, ready",
			"pool runners: 1 idle, 1 ready, 0 claimed, 0 pending, Available",
		},
	}, {
		name:    "a Pod whose claim is gone takes up room until the garbage collector has taken it",
		objects: []runtime.Object{aPool("runners", maxSize(1)), aPod("a", ready, ofClaim("gone"))},
		sent:    []string{"update warmpools/status runners"},
		state: []string{
			"pod a: of PodClaim uid-of-gone, claimed, ready",
			"pool runners: 0 idle, 0 ready, 1 claimed, 0 pending, AtCapacity",
		},
	}, {
		name:    "a claim on a pool that doesn't exist is told so",
		objects: []runtime.Object{aClaim("job")},
		sent:    []string{"update podclaims/status job"},
		state:   []string{"claim job: Bound=False/PoolNotFound"},
	}, {
		name:    "a claim that no Pod is ready for waits, and a Pod is started for it",
		objects: []runtime.Object{aPool("runners"), aPod("a"), aClaim("job")},
		sent:    []string{"create pods", "update podclaims/status job", "update warmpools/status runners"},
		state: []string{
			"claim job: Bound=False/Pending",
			"pod a: of WarmPool uid-of-runners, idle, not ready",
			"pod runners-*: of WarmPool uid-of-runners, idle, not ready",
			"pool runners: 2 idle, 0 ready, 0 claimed, 1 pending",
		},
	}, {
		name:    "a pool that is scaled down deletes Pods on condition that they are as the cache shows them",
		objects: []runtime.Object{aPool("runners", replicas(1)), aPod("a", ready), aPod("b"), aPod("c")},
		sent: []string{
			"delete pods b if it is uid-of-b at 103",
			"delete pods c if it is uid-of-c at 104",
			"update warmpools/status runners",
		},
		state: []string{
			"pod a: of WarmPool uid-of-runners, idle, ready",
			"pool runners: 1 idle, 1 ready, 0 claimed, 0 pending, Available",
		},
	}, {
		name:    "a Pod that was handed out a moment ago survives the deletion decided on before",
		objects: []runtime.Object{aPool("runners", replicas(0)), aPod("a", ready)},
		behind:  func(t *testing.T, api *apiServer) { api.put(t, aPod("a", ready, ofClaim("other"))) },
		sent:    []string{"delete pods a if it is uid-of-a at 102", "update warmpools/status runners"},
		state: []string{
			"pod a: of PodClaim uid-of-other, claimed, ready",
			"pool runners: 1 idle, 1 ready, 0 claimed, 0 pending, Available",
		},
		retried: true,
	}, {
		name:    "a deletion of a Pod that is gone is done, and no error",
		objects: []runtime.Object{aPool("runners", replicas(0)), aPod("a", ready)},
		behind:  func(t *testing.T, api *apiServer) { api.remove(t, aPod("a")) },
		sent:    []string{"delete pods a if it is uid-of-a at 102", "update warmpools/status runners"},
		state:   []string{"pool runners: 0 idle, 0 ready, 0 claimed, 0 pending, Available"},
	}, {
		name: "a hand-out that comes too late is tried again, and other claims are served",
		objects: []runtime.Object{
			aPool("runners", replicas(0)), aPod("a", readyFor(2*time.Minute)), aPod("b", readyFor(time.Minute)), aClaim("job-1"), aClaim("job-2"),
		},
		behind: func(t *testing.T, api *apiServer) { api.put(t, aPod("a", ready, ofClaim("other"))) },
		sent:   []string{"patch pods a", "patch pods b", "update podclaims/status job-2", "update warmpools/status runners"},
		state: []string{
			"claim job-1: no status",
			"claim job-2: Bound=True/HandedOut, Ready=True/PodReady, pod uid-of-b",
			"pod a: of PodClaim uid-of-other, claimed, ready",
			"pod b: of PodClaim uid-of-job-2, claimed, ready",
			"pool runners: 1 idle, 1 ready, 1 claimed, 1 pending, Available",
		},
		retried: true,
	}, {
		name:    "a Pod that stopped being ready is not handed out",
		objects: []runtime.Object{aPool("runners"), aPod("a", ready), aClaim("job")},
		behind: func(t *testing.T, api *apiServer) {
			api.put(t, aPod("a", ready, func(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }))
		},
		sent: []string{"create pods", "patch pods a", "update warmpools/status runners"},
		state: []string{
			"claim job: no status",
			"pod a: of WarmPool uid-of-runners, idle, not ready",
			"pod runners-*: of WarmPool uid-of-runners, idle, not ready",
			"pool runners: 2 idle, 1 ready, 0 claimed, 1 pending, Available",
		},
		retried: true,
	}, {
		name:    "a Pod that is gone and made again under its name is not handed out",
		objects: []runtime.Object{aPool("runners"), aPod("a", ready), aClaim("job")},
		behind: func(t *testing.T, api *apiServer) {
			api.remove(t, aPod("a"))
			api.put(t, aPod("a", ready, withUID("uid-of-the-second-a")))
		},
		sent: []string{"create pods", "patch pods a", "update warmpools/status runners"},
		state: []string{
			"claim job: no status",
			"pod a: of WarmPool uid-of-runners, idle, ready",
			"pod runners-*: of WarmPool uid-of-runners, idle, not ready",
			"pool runners: 2 idle, 1 ready, 0 claimed, 1 pending, Available",
		},
		retried: true,
	}, {
		name:    "a quota that refuses Pods costs one request, and the pool says so",
		objects: []runtime.Object{aPool("runners", replicas(100))},
		refusal: refusing("create pods", overQuota),
		sent:    []string{"create pods", "update warmpools/status runners"},
		state:   []string{"pool runners: 0 idle, 0 ready, 0 claimed, 0 pending, ReplicaFailure"},
		retried: true,
		logged:  []string{"exceeded quota: small"},
	}, {
		name:    "a creation that the API server fails to serve is an error, and no refusal",
		objects: []runtime.Object{aPool("runners", replicas(100))},
		refusal: refusing("create pods", unavailable),
		sent:    []string{"create pods", "update warmpools/status runners"},
		state:   []string{"pool runners: 0 idle, 0 ready, 0 claimed, 0 pending"},
		retried: true,
		logged:  []string{"etcd has no leader"},
	}, {
		name:    "a write that waits for what became of an earlier one is tried again, and is no news",
		objects: []runtime.Object{aPool("runners", replicas(0)), aPod("a", ready), aClaim("job")},
		refusal: refusing("patch pods", func(string) error { return fmt.Errorf("Patch %q: %w", "pods/a", &freshness.InDoubtError{}) }),
		sent:    []string{"patch pods a", "update warmpools/status runners"},
		state: []string{
			"claim job: no status",
			"pod a: of WarmPool uid-of-runners, idle, ready",
			"pool runners: 1 idle, 1 ready, 0 claimed, 1 pending, Available",
		},
		retried: true,
	}, {
		name:    "a write that could land after the leader's term is no news",
		objects: []runtime.Object{aPool("runners", replicas(100))},
		refusal: refusing("create pods", func(string) error { return fmt.Errorf("Post %q: %w", "pods", freshness.ErrTermEnded) }),
		sent:    []string{"create pods", "update warmpools/status runners"},
		state:   []string{"pool runners: 0 idle, 0 ready, 0 claimed, 0 pending"},
		retried: true,
	}, {
		name:    "a name that is taken is left to its owner, and another one is tried later",
		objects: []runtime.Object{aPool("runners")},
		refusal: refusing("create pods", alreadyExists),
		sent:    []string{"create pods", "update warmpools/status runners"},
		state:   []string{"pool runners: 0 idle, 0 ready, 0 claimed, 0 pending"},
		retried: true,
	}, {
		name:    "a namespace that is terminating is no error, and costs one request",
		objects: []runtime.Object{aPool("runners", replicas(100))},
		refusal: refusing("create pods", terminating),
		sent:    []string{"create pods", "update warmpools/status runners"},
		state:   []string{"pool runners: 0 idle, 0 ready, 0 claimed, 0 pending"},
	}, {
		name:    "a claim whose Pod is missing in the cache but alive isn't finished",
		objects: []runtime.Object{aPool("runners", replicas(0)), aClaim("job", bound("a"))},
		behind:  func(t *testing.T, api *apiServer) { api.put(t, aPod("a", ready, ofClaim("job"))) },
		sent:    []string{"update warmpools/status runners"},
		state: []string{
			"claim job: Bound=True/HandedOut, Ready=True/PodReady, pod uid-of-a",
			"pod a: of PodClaim uid-of-job, claimed, ready",
			"pool runners: 0 idle, 0 ready, 0 claimed, 0 pending, Available",
		},
		retried: true,
	}, {
		name:    "a claim whose Pod can't be asked for isn't finished",
		objects: []runtime.Object{aPool("runners", replicas(0)), aClaim("job", bound("a"))},
		refusal: refusing("get pods", unavailable),
		sent:    []string{"update warmpools/status runners"},
		state: []string{
			"claim job: Bound=True/HandedOut, Ready=True/PodReady, pod uid-of-a",
			"pool runners: 0 idle, 0 ready, 0 claimed, 0 pending, Available",
		},
		retried: true,
		logged:  []string{"look for pod ci/a of claim job: etcd has no leader"},
	}, {
		name:    "a claim whose Pod is gone is finished, and gets no other",
		objects: []runtime.Object{aPool("runners"), aPod("b", ready), aClaim("job", bound("a"))},
		sent:    []string{"update podclaims/status job", "update warmpools/status runners"},
		state: []string{
			"claim job: Bound=True/HandedOut, Ready=False/PodLost, Finished=True/PodLost, pod uid-of-a",
			"pod b: of WarmPool uid-of-runners, idle, ready",
			"pool runners: 1 idle, 1 ready, 0 claimed, 0 pending, Available",
		},
	}, {
		name:    "a claim whose Pod is gone and made again under its name is finished",
		objects: []runtime.Object{aPool("runners"), aPod("a", ready, withUID("uid-of-the-second-a")), aClaim("job", bound("a"))},
		sent:    []string{"update podclaims/status job", "update warmpools/status runners"},
		state: []string{
			"claim job: Bound=True/HandedOut, Ready=False/PodLost, Finished=True/PodLost, pod uid-of-a",
			"pod a: of WarmPool uid-of-runners, idle, ready",
			"pool runners: 1 idle, 1 ready, 0 claimed, 0 pending, Available",
		},
	}, {
		name:    "a claim that is gone when it is handed a Pod needs no status",
		objects: []runtime.Object{aPool("runners", replicas(0)), aPod("a", ready), aClaim("job")},
		behind:  func(t *testing.T, api *apiServer) { api.remove(t, aClaim("job")) },
		sent:    []string{"patch pods a", "update podclaims/status job", "update warmpools/status runners"},
		state: []string{
			"pod a: of PodClaim uid-of-job, claimed, ready",
			"pool runners: 0 idle, 0 ready, 1 claimed, 0 pending, Available",
		},
	}, {
		name:    "a claim that somebody else wrote to is written to again later",
		objects: []runtime.Object{aPool("runners", replicas(0)), aPod("a", ready, ofClaim("job")), aClaim("job")},
		behind:  func(t *testing.T, api *apiServer) { api.put(t, aClaim("job")) },
		sent:    []string{"update podclaims/status job", "update warmpools/status runners"},
		state: []string{
			"claim job: no status",
			"pod a: of PodClaim uid-of-job, claimed, ready",
			"pool runners: 0 idle, 0 ready, 1 claimed, 0 pending, Available",
		},
		retried: true,
	}, {
		name:    "a pool that somebody else wrote to gets its status later",
		objects: []runtime.Object{aPool("runners", replicas(0))},
		behind:  func(t *testing.T, api *apiServer) { api.put(t, aPool("runners", replicas(0))) },
		sent:    []string{"update warmpools/status runners"},
		state:   []string{"pool runners: no status"},
		retried: true,
	}, {
		name:    "a pool that is gone is no error",
		objects: []runtime.Object{aPool("runners", replicas(0))},
		behind:  func(t *testing.T, api *apiServer) { api.remove(t, aPool("runners")) },
		sent:    []string{"update warmpools/status runners"},
		state:   []string{},
	}, {
		name:    "a pool that is being deleted gets no more Pods, and its claims are told",
		objects: []runtime.Object{aPool("runners", replicas(3), poolDeleting), aPod("a", ready), aClaim("job")},
		sent:    []string{"update podclaims/status job", "update warmpools/status runners"},
		state: []string{
			"claim job: Bound=False/PoolNotFound",
			"pod a: of WarmPool uid-of-runners, idle, ready",
			"pool runners: 1 idle, 1 ready, 0 claimed, 1 pending",
		},
	}, {
		name:    "a hand-out that an admission webhook refuses is told to the claim",
		objects: []runtime.Object{aPool("runners", replicas(0)), aPod("a", ready), aClaim("job")},
		refusal: refusing("patch pods", deniedByWebhook),
		sent:    []string{"patch pods a", "update podclaims/status job", "update warmpools/status runners"},
		state: []string{
			"claim job: Bound=False/HandOutRefused",
			"pod a: of WarmPool uid-of-runners, idle, ready",
			"pool runners: 1 idle, 1 ready, 0 claimed, 1 pending, Available",
		},
		retried: true,
		logged:  []string{"hand out pod ci/a to claim ci/job: pods \"a\" is forbidden: admission webhook denied the request: label team is missing"},
	}, {
		name:    "a hand-out that makes no valid Pod is told to the claim",
		objects: []runtime.Object{aPool("runners", replicas(0)), aPod("a", ready), aClaim("job", podMetadata("a b", "c"))},
		refusal: refusing("patch pods", invalidLabel),
		sent:    []string{"patch pods a", "update podclaims/status job", "update warmpools/status runners"},
		state: []string{
			"claim job: Bound=False/HandOutRefused",
			"pod a: of WarmPool uid-of-runners, idle, ready",
			"pool runners: 1 idle, 1 ready, 0 claimed, 1 pending, Available",
		},
		retried: true,
		logged:  []string{`Pod "a" is invalid: metadata.labels: Invalid value: "a b"`},
	}, {
		name:    "a hand-out that the API server fails to serve is an error, and no refusal",
		objects: []runtime.Object{aPool("runners", replicas(0)), aPod("a", ready), aClaim("job")},
		refusal: refusing("patch pods", unavailable),
		sent:    []string{"patch pods a", "update warmpools/status runners"},
		state: []string{
			"claim job: no status",
			"pod a: of WarmPool uid-of-runners, idle, ready",
			"pool runners: 1 idle, 1 ready, 0 claimed, 1 pending, Available",
		},
		retried: true,
		logged:  []string{"hand out pod ci/a to claim ci/job: etcd has no leader"},
	}, {
		name:    "a pool at its maximal size says so to itself and to the claim that waits",
		objects: []runtime.Object{aPool("runners", maxSize(1)), aPod("a", ready, ofClaim("job-1")), aClaim("job-1", bound("a")), aClaim("job-2")},
		sent:    []string{"update podclaims/status job-2", "update warmpools/status runners"},
		state: []string{
			"claim job-1: Bound=True/HandedOut, Ready=True/PodReady, pod uid-of-a",
			"claim job-2: Bound=False/AtCapacity",
			"pod a: of PodClaim uid-of-job-1, claimed, ready",
			"pool runners: 0 idle, 0 ready, 1 claimed, 1 pending, AtCapacity",
		},
	}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, test.objects...)
				if test.behind != nil {
					f.api.behindTheCaches(func() { test.behind(t, f.api) })
				}
				f.api.refuse(test.refusal)
				f.sync(t)
				expect(t, "requests", f.api.sent(), test.sent)
				expect(t, "state", f.api.state(t), test.state)
				if retried := f.queue.NumRequeues(runners) > 0; retried != test.retried {
					t.Errorf("the key is tried again: %t, want %t", retried, test.retried)
				}
				logged := f.errors()
				if len(logged) != len(test.logged) {
					t.Fatalf("got %d errors logged, want %d: %q", len(logged), len(test.logged), logged)
				}
				for i, want := range test.logged {
					if !strings.Contains(logged[i], want) {
						t.Errorf("got the error %q logged, want %q in it", logged[i], want)
					}
				}
			})
		})
	}
}
