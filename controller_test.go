package main

import (
	"errors"
	"fmt"

	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/freshness"
)

// refusing returns what refuses the requests with a verb on a resource, such as
// "create pods", with the error that refusal makes for the object's name.
func refusing(request string, refusal func(name string) error) func(clienttesting.Action) error {
	return func(action clienttesting.Action) error {
		resource := action.GetResource().Resource
		if action.GetSubresource() != "" {
			resource += "/" + action.GetSubresource()
		}
		if action.GetVerb()+" "+resource != request {
			return nil
		}
		switch action := action.(type) {
		case clienttesting.CreateActionImpl:
			return refusal(accessorOf(action.Object).GetName())
		case clienttesting.UpdateActionImpl:
			return refusal(accessorOf(action.Object).GetName())
		case clienttesting.PatchActionImpl:
			return refusal(action.Name)
		case clienttesting.DeleteActionImpl:
			return refusal(action.Name)
		case clienttesting.GetActionImpl:
			return refusal(action.Name)
		default:
			return nil
		}
	}
}

func overQuota(name string) error {
	return apierrors.NewForbidden(podResource.GroupResource(), name, errors.New("exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3"))
}

func terminating(name string) error {
	err := apierrors.NewForbidden(podResource.GroupResource(), name, errors.New("unable to create new content in namespace ci because it is being terminated"))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: corev1.NamespaceTerminatingCause, Message: "namespace ci is being terminated", Field: "metadata.namespace",
	})
	return err
}

func unavailable(string) error { return apierrors.NewServiceUnavailable("etcd has no leader") }

func alreadyExists(name string) error {
	return apierrors.NewAlreadyExists(podResource.GroupResource(), name)
}

func deniedByWebhook(name string) error {
	return apierrors.NewForbidden(podResource.GroupResource(), name, errors.New("admission webhook denied the request: label team is missing"))
}

func invalidLabel(name string) error {
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), name, field.ErrorList{
		field.Invalid(field.NewPath("metadata", "labels"), "a b", "must be a qualified name"),
	})
}

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

func TestAClaimsStatusTellsWhereItsPodIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners"), aPod("a", ready), aClaim("job"))
		f.sync(t)
		now := metav1.NewTime(start)
		want := v1alpha1.PodClaimStatus{
			Pod:                &v1alpha1.PodReference{Name: "a", UID: "uid-of-a"},
			PodIPs:             []corev1.PodIP{{IP: "10.0.0.1"}},
			NodeName:           "node-1",
			BoundTime:          &now,
			ObservedGeneration: 1,
			Conditions: []metav1.Condition{
				{Type: "Bound", Status: "True", ObservedGeneration: 1, LastTransitionTime: now, Reason: "HandedOut", Message: "Pod a is this claim's"},
				{Type: "Ready", Status: "True", ObservedGeneration: 1, LastTransitionTime: now, Reason: "PodReady", Message: "the Pod is Ready"},
			},
		}
		if d := diff.Diff(want, f.api.claim(t, "job").Status); d != "" {
			t.Errorf("status of the claim:\n%s", d)
		}
	})
}

func TestAHandOutSetsTheOwnerTheLabelsAndWhatTheClaimAsksFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners"), aPod("a", ready), aClaim("job", podMetadata("example.com/team", "blue")))
		f.sync(t)
		yes := true
		want := metav1.ObjectMeta{
			Labels: map[string]string{
				"warmpool.dev/pool": "runners", "warmpool.dev/state": "claimed", "warmpool.dev/claim": "job", "example.com/team": "blue",
			},
			Annotations: map[string]string{"example.com/team": "blue"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "warmpool.dev/v1alpha1", Kind: "PodClaim", Name: "job", UID: "uid-of-job", Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		}
		pod := f.api.pod(t, "a")
		if d := diff.Diff(want, metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations, OwnerReferences: pod.OwnerReferences}); d != "" {
			t.Errorf("metadata of the Pod:\n%s", d)
		}
	})
}

func TestANewPodIsMadeFromTheTemplateAndMarkedAsThePools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners"))
		f.sync(t)
		yes := true
		want := corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ci",
				Labels:    map[string]string{"app": "runner", "warmpool.dev/pool": "runners", "warmpool.dev/state": "idle"},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "warmpool.dev/v1alpha1", Kind: "WarmPool", Name: "runners", UID: "uid-of-runners", Controller: &yes, BlockOwnerDeletion: &yes,
				}},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "runner", Image: "example.com/runner:1"}}},
		}
		for _, pod := range f.api.allPods(t) {
			pod.Name, pod.UID, pod.ResourceVersion, pod.CreationTimestamp = "", "", "", metav1.Time{}
			if d := diff.Diff(want, pod); d != "" {
				t.Errorf("the new Pod:\n%s", d)
			}
		}
	})
}

// TestTheStoryOfAPool works on one key after the other, and lets the caches catch up in
// between: the fakes' writes don't pass the guards' transport, so nothing but that keeps
// a second worker from acting on a cache that lacks them. test/e2e tells the same story
// with workers.
func TestTheStoryOfAPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners", replicas(2)))
		f.syncAll(t)
		f.api.makeReady(t)
		settle()
		f.syncAll(t)
		expect(t, "a full pool", f.api.state(t), []string{
			"pod runners-*: of WarmPool uid-of-runners, idle, ready",
			"pod runners-*: of WarmPool uid-of-runners, idle, ready",
			"pool runners: 2 idle, 2 ready, 0 claimed, 0 pending, Available",
		})

		f.api.put(t, aClaim("job-1"), aClaim("job-2"), aClaim("job-3"))
		for range 3 {
			settle()
			f.syncAll(t)
			f.api.makeReady(t)
		}
		settle()
		f.syncAll(t)
		claimed := map[string]bool{}
		for _, name := range []string{"job-1", "job-2", "job-3"} {
			claim := f.api.claim(t, name)
			if claim.Status.Pod == nil {
				t.Fatalf("%s has no Pod: %s", name, describeClaim(claim))
			}
			pod := f.api.pod(t, claim.Status.Pod.Name)
			if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != claim.UID {
				t.Errorf("%s, but its Pod is: %s", describeClaim(claim), describePod(pod))
			}
			claimed[pod.Name] = true
		}
		if len(claimed) != 3 {
			t.Errorf("got %d Pods for 3 claims", len(claimed))
		}
		if got, want := describePool(f.api.pool(t, "runners")), "pool runners: 2 idle, 2 ready, 3 claimed, 0 pending, Available"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}

		f.api.sent()
		elapse(time.Hour)
		f.syncAll(t)
		expect(t, "requests in an hour in which nothing happens", f.api.sent(), []string{})
		expect(t, "errors", f.errors(), nil)
	})
}

// planningClock calls once what happens while a pool is planned: Plan is given the time
// after the snapshot was read, and before the first write.
type planningClock struct {
	clock.Clock
	meanwhile func()
}

func (c *planningClock) Now() time.Time {
	if meanwhile := c.meanwhile; meanwhile != nil {
		c.meanwhile = nil
		meanwhile()
	}
	return c.Clock.Now()
}

func TestWhatArrivesWhileAPoolIsPlannedIsPlannedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners", replicas(1)))
		f.clock = &planningClock{Clock: f.clock, meanwhile: func() {
			f.api.put(t, aPod("a", ready))
			settle()
		}}
		f.sync(t)
		expect(t, "requests on a plan that is old", f.api.sent(), []string{})
		f.sync(t)
		expect(t, "requests", f.api.sent(), []string{"update warmpools/status runners"})
		expect(t, "state", f.api.state(t), []string{
			"pod a: of WarmPool uid-of-runners, idle, ready",
			"pool runners: 1 idle, 1 ready, 0 claimed, 0 pending, Available",
		})
		if got := f.queue.NumRequeues(runners); got != 0 {
			t.Errorf("the key counts %d failures", got)
		}
		expect(t, "errors", f.errors(), nil)
	})
}

func TestAStateThatIsAsItShouldBeCostsNoWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners", replicas(2)), aPod("a", ready), aPod("b", ready), aPod("c", ready), aClaim("job-1"),
			aClaim("job-2", on("missing")))
		f.syncAll(t)
		f.api.sent()
		// Every key again, as after a restart.
		for _, key := range []string{"runners", "missing"} {
			f.queue.Add(keyNamed(key))
			f.sync(t)
		}
		expect(t, "requests", f.api.sent(), []string{})
	})
}

func TestARefusalIsToldOnceAndTriedAgainAtAMeasuredPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners", replicas(100)))
		f.api.refuse(refusing("create pods", overQuota))
		f.run()
		failure := meta.FindStatusCondition(f.api.pool(t, "runners").Status.Conditions, v1alpha1.PoolReplicaFailure)
		if failure == nil || failure.Reason != "FailedCreate" {
			t.Fatalf("got condition ReplicaFailure %+v, want reason FailedCreate", failure)
		}
		if want := `pods "NAME" is forbidden: exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3`; failure.Message != want {
			t.Errorf("got message %q, want %q", failure.Message, want)
		}
		version := f.api.pool(t, "runners").ResourceVersion
		expect(t, "events", f.events(), []string{`Warning FailedCreate pods "NAME" is forbidden: exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3`})

		elapse(10 * time.Minute)
		f.api.sent()
		elapse(time.Hour)
		if got := len(f.api.sent()); got != 60 {
			t.Errorf("got %d requests in an hour, want 60: one a minute", got)
		}
		if got := f.api.pool(t, "runners").ResourceVersion; got != version {
			t.Errorf("the pool went from version %s to %s, although nothing new happened", version, got)
		}

		f.api.refuse(nil)
		elapse(time.Minute)
		if got, want := describePool(f.api.pool(t, "runners")), "pool runners: 100 idle, 0 ready, 0 claimed, 0 pending"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestAPoolWhoseKeyFailsDoesNotKeepOthersWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("broken", replicas(1)), aPool("runners", replicas(2)))
		f.api.refuse(func(action clienttesting.Action) error {
			create, ok := action.(clienttesting.CreateActionImpl)
			if ok && accessorOf(create.Object).GetLabels()[v1alpha1.LabelPool] == "broken" {
				return unavailable("")
			}
			return nil
		})
		f.run()
		if got, want := describePool(f.api.pool(t, "runners")), "pool runners: 2 idle, 0 ready, 0 claimed, 0 pending"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestARefusedHandOutIsToldOnceAndKeepsNobodyElseFromAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners", replicas(0)), aPod("first", readyFor(2*time.Minute)), aPod("second", readyFor(time.Minute)),
			aClaim("job-1", podMetadata("team", "red")), aClaim("job-2"))
		f.api.refuse(func(action clienttesting.Action) error {
			patch, ok := action.(clienttesting.PatchActionImpl)
			if ok && strings.Contains(string(patch.Patch), `"uid-of-job-1"`) {
				return deniedByWebhook(patch.Name)
			}
			return nil
		})
		f.run()
		version := f.api.claim(t, "job-1").ResourceVersion
		elapse(10 * time.Minute)
		bound := meta.FindStatusCondition(f.api.claim(t, "job-1").Status.Conditions, v1alpha1.ClaimBound)
		if bound == nil || bound.Reason != "HandOutRefused" {
			t.Fatalf("got condition Bound %+v, want reason HandOutRefused", bound)
		}
		if want := `pods "NAME" is forbidden: admission webhook denied the request: label team is missing`; bound.Message != want {
			t.Errorf("got message %q, want %q", bound.Message, want)
		}
		if got := f.api.claim(t, "job-2").Status.Pod; got == nil {
			t.Error("job-2 has no Pod, although nothing refuses it one")
		}
		if got := f.api.claim(t, "job-1").ResourceVersion; got != version {
			t.Errorf("the claim went from version %s to %s, although nothing new happened", version, got)
		}
	})
}

func TestNothingIsCreatedForAPoolThatTheCacheIsBehindOn(t *testing.T) {
	for _, test := range []struct {
		name   string
		behind func(t *testing.T, api *apiServer)
	}{
		{"it is gone", func(t *testing.T, api *apiServer) { api.remove(t, aPool("runners")) }},
		{"it is another of the same name", func(t *testing.T, api *apiServer) {
			other := aPool("runners", replicas(3))
			other.UID = "another"
			api.put(t, other)
		}},
		{"its spec has changed", func(t *testing.T, api *apiServer) {
			changed := aPool("runners", replicas(0))
			changed.Generation = 2
			api.put(t, changed)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, aPool("runners", replicas(3)))
				f.api.behindTheCaches(func() { test.behind(t, f.api) })
				f.sync(t)
				for _, write := range f.api.sent() {
					if write == "create pods" {
						t.Error("a Pod was created")
					}
				}
				if f.queue.NumRequeues(runners) == 0 {
					t.Error("the key isn't tried again")
				}
			})
		})
	}
}

func TestAConflictIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners", replicas(0)), aPod("a", ready), aClaim("job"))
		f.api.behindTheCaches(func() { f.api.put(t, aPod("a", ready, ofClaim("other"))) })
		f.sync(t)
		f.events()
		// The caches catch up, with a Pod for the claim.
		f.api.put(t, aPod("a", ready, ofClaim("other")), aPod("b", ready))
		settle()
		f.sync(t)
		if got := f.api.claim(t, "job").Status.Pod; got == nil || got.Name != "b" {
			t.Errorf("got Pod %v for the claim, want b", got)
		}
		if got := f.queue.NumRequeues(runners); got != 0 {
			t.Errorf("the key still counts %d failures after a success", got)
		}
		expect(t, "errors", f.errors(), nil)
		expect(t, "events", f.events(), []string{"Normal HandedOut Pod b is this claim's"})
	})
}

func TestAClaimTimesOutThoughNothingHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aClaim("job", timeout(90))) // a minute old
		f.run()
		elapse(28 * time.Second)
		expect(t, "before the time is up", f.api.state(t), []string{"claim job: Bound=False/PoolNotFound"})
		elapse(2 * time.Second)
		expect(t, "when the time is up", f.api.state(t), []string{"claim job: Bound=False/TimedOut, Finished=True/TimedOut"})
	})
}

func TestAPanicCostsItsOwnKeyABackoffAndNotTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("broken", replicas(1)), aPool("runners", replicas(1)))
		f.api.refuse(func(action clienttesting.Action) error {
			create, ok := action.(clienttesting.CreateActionImpl)
			if ok && accessorOf(create.Object).GetLabels()[v1alpha1.LabelPool] == "broken" {
				panic("a bug in a write")
			}
			return nil
		})
		f.run()
		if got, want := describePool(f.api.pool(t, "runners")), "pool runners: 1 idle, 0 ready, 0 claimed, 0 pending"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		logged := f.errors()
		if len(logged) == 0 || !strings.Contains(logged[0], "reconciling ci/broken panicked: a bug in a write") || !strings.Contains(logged[0], "writes.go") {
			t.Errorf("got the errors %q logged, want the key, the cause and the stack", logged)
		}
		if len(logged) > 10 {
			t.Errorf("got %d panics in a second, want a backoff", len(logged))
		}
		f.api.refuse(nil)
		elapse(time.Minute)
		if got, want := describePool(f.api.pool(t, "broken")), "pool broken: 1 idle, 0 ready, 0 claimed, 0 pending"; got != want {
			t.Errorf("got %s after the cause of the panic is gone, want %s", got, want)
		}
	})
}

func TestNothingIsDoneBeforeTheCachesAreComplete(t *testing.T) {
	for _, missing := range []string{"warmpools", "podclaims", "pods"} {
		t.Run(missing, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newUnstartedFixture(t, aPool("runners", replicas(2)), aPod("a", ready), aPod("b", ready), aClaim("job", bound("c")), aPod("c", ready, ofClaim("job")))
				f.api.refuse(refusingLists(missing, unavailable("")))
				f.startGuards()
				started := make(chan error, 1)
				go func() {
					started <- f.guards.TakeOver(f.ctx)
					f.Run(f.ctx, 4)
				}()
				elapse(2 * time.Second)
				expect(t, "requests while a cache is empty", f.api.sent(), []string{})
				f.api.refuse(nil)
				elapse(10 * time.Second) // client-go's backoff has a jitter
				if err := <-started; err != nil {
					t.Fatal(err)
				}
				expect(t, "requests", f.api.sent(), []string{"update warmpools/status runners"})
			})
		})
	}
}

func TestACacheThatDoesNotSyncEndsTheControllerWithTheCause(t *testing.T) {
	for _, test := range []struct {
		missing string
		refusal error
		want    []string
	}{{
		missing: "podclaims",
		refusal: apierrors.NewForbidden(claimResource.GroupResource(), "", errors.New(`User "warmpool" cannot list resource "podclaims"`)),
		want:    []string{"podclaims.warmpool.dev: forbidden", `User "warmpool" cannot list resource "podclaims"`, "kubectl apply -f artifacts/deploy"},
	}, {
		missing: "warmpools",
		refusal: apierrors.NewGenericServerResponse(404, "list", poolResource.GroupResource(), "", "", 0, true),
		want:    []string{"warmpools.warmpool.dev: the API server doesn't know this resource", "kubectl apply -f artifacts/crds"},
	}} {
		t.Run(test.missing, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newUnstartedFixture(t)
				f.api.refuse(refusingLists(test.missing, test.refusal))
				begun := time.Now()
				err := <-f.startGuards()
				var notSynced *freshness.NotSyncedError
				if !errors.As(err, &notSynced) {
					t.Fatalf("got %v, want a *freshness.NotSyncedError", err)
				}
				if got := time.Since(begun); got != freshness.DefaultSyncTimeout {
					t.Errorf("it took %s, want %s", got, freshness.DefaultSyncTimeout)
				}
				for _, want := range test.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("the error doesn't contain %q:\n%v", want, err)
					}
				}
			})
		})
	}
}

func refusingLists(resource string, refusal error) func(clienttesting.Action) error {
	return func(action clienttesting.Action) error {
		if action.GetVerb() == "list" && action.GetResource().Resource == resource {
			return refusal
		}
		return nil
	}
}

func TestRunReturnsWhenTheLastWorkerHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("a"), aPool("b"), aPool("c"), aPool("d"), aPool("e"), aPool("f"))
		underWay := make(chan struct{})
		f.api.refuse(func(action clienttesting.Action) error {
			if action.GetVerb() == "create" {
				<-underWay
			}
			return nil
		})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f.Run(f.ctx, 1)
		}()
		settle()
		f.end()
		settle()
		select {
		case <-ended:
			t.Error("Run returned although a worker was in the midst of a write")
		default:
		}
		close(underWay)
		<-ended
		// The worker finishes its key, and takes no other.
		sent := f.api.sent()
		if len(sent) != 2 || sent[0] != "create pods" || !strings.HasPrefix(sent[1], "update warmpools/status ") {
			t.Errorf("got the requests %q around the end, want those of the one key that was under way", sent)
		}
		elapse(time.Hour)
		expect(t, "requests after the end", f.api.sent(), []string{})
	})
}

func TestEventsTellOfWhatWasDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners", replicas(2)), aPod("a", ready), aClaim("job-1"), aClaim("job-2", bound("b")))
		f.sync(t)
		expect(t, "events", sorted(f.events()), []string{
			"Normal HandedOut Pod a is this claim's",
			"Normal PodLost Pod b is gone: delete this claim, and create a new one for another Pod",
			"Normal PodsCreated Created 2 Pods",
		})
		f.api.put(t, aPool("runners", replicas(1)))
		f.syncAll(t)
		events := f.events()
		if len(events) != 1 || !strings.HasPrefix(events[0], "Normal PodDeleted Deleted Pod runners-") || !strings.HasSuffix(events[0], ": more idle Pods than asked for") {
			t.Errorf("got events %q, want one of a deletion, with its reason", events)
		}
	})
}
