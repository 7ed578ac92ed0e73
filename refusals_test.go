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
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
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
		expect(t, "events", f.events(), []string{`Warning FailedCreate pods "NAME" is forbidden: exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3`})

		elapse(11 * time.Minute) // past progressDeadlineSeconds, of which the status tells
		version := f.api.pool(t, "runners").ResourceVersion
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

// TestWhatIsDueDoesNotWaitForABackoff: a claim on a pool that is tried once a minute times
// out in its own time.
func TestWhatIsDueDoesNotWaitForABackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners"))
		f.api.refuse(refusing("create pods", overQuota))
		f.run()
		elapse(10 * time.Minute)
		f.api.put(t, aClaim("job", timeout(5), func(c *v1alpha1.PodClaim) { c.CreationTimestamp = metav1.Now() }))
		elapse(4500 * time.Millisecond)
		if got, want := describeClaim(f.api.claim(t, "job")), "claim job: Bound=False/PoolExhausted"; got != want {
			t.Errorf("before the time is up: got %s, want %s", got, want)
		}
		elapse(500 * time.Millisecond)
		if got, want := describeClaim(f.api.claim(t, "job")), "claim job: Bound=False/TimedOut, Finished=True/TimedOut"; got != want {
			t.Errorf("when the time is up: got %s, want %s", got, want)
		}
	})
}

// TestARefusalIsOverAtOnceWhenSomethingChanges: an event of the pool doesn't wait for the
// backoff, and one try that succeeds creates all the rest.
func TestARefusalIsOverAtOnceWhenSomethingChanges(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*testing.T, *apiServer)
		want   string
	}{
		{"its template is changed", func(t *testing.T, api *apiServer) {
			changed := api.pool(t, "runners")
			changed.Generation++
			api.put(t, changed)
		}, "pool runners: 50 idle, 0 ready, 0 claimed, 0 pending"},
		{"one of its Pods is deleted", func(t *testing.T, api *apiServer) { api.remove(t, aPod("a")) },
			"pool runners: 50 idle, 0 ready, 0 claimed, 0 pending"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, aPool("runners", replicas(50)), aPod("a"))
				f.api.refuse(refusing("create pods", overQuota))
				f.run()
				elapse(3*time.Minute + 10*time.Second) // the next try is due in more than half a minute
				f.api.refuse(nil)
				f.api.sent()
				test.change(t, f.api)
				elapse(time.Second)
				if got := describePool(f.api.pool(t, "runners")); got != test.want {
					t.Errorf("got %s, want %s", got, test.want)
				}
			})
		})
	}
}

// TestACauseIsToldOnceAlthoughItsNumbersMove: a quota says how much of it is used.
func TestACauseIsToldOnceAlthoughItsNumbersMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		used := 0
		f := newFixture(t, aPool("runners", replicas(100)))
		f.api.refuse(refusing("create pods", func(name string) error {
			used++
			return apierrors.NewForbidden(podResource.GroupResource(), name, fmt.Errorf("exceeded quota: small-1, requested: pods=1, used: pods=%d, limited: pods=3", used))
		}))
		f.run()
		elapse(11 * time.Minute) // past progressDeadlineSeconds, of which the status tells
		version := f.api.pool(t, "runners").ResourceVersion
		elapse(10 * time.Minute)
		const first = `pods "NAME" is forbidden: exceeded quota: small-1, requested: pods=1, used: pods=1, limited: pods=3`
		expect(t, "events", f.events(), []string{"Warning FailedCreate " + first})
		if got := f.api.pool(t, "runners").ResourceVersion; got != version {
			t.Errorf("the pool went from version %s to %s, although nothing new happened", version, got)
		}

		// Another quota is another cause.
		f.api.refuse(refusing("create pods", func(name string) error {
			return apierrors.NewForbidden(podResource.GroupResource(), name, errors.New("exceeded quota: small-2, requested: pods=1, used: pods=3, limited: pods=3"))
		}))
		elapse(2 * time.Minute)
		expect(t, "events of another cause", f.events(), []string{
			`Warning FailedCreate pods "NAME" is forbidden: exceeded quota: small-2, requested: pods=1, used: pods=3, limited: pods=3`,
		})
	})
}

// A webhook that can't be asked is answered as an internal error, which else is none of
// the pool's.
func TestAWebhookThatIsDownIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners", replicas(3)))
		f.api.refuse(refusing("create pods", func(string) error {
			return apierrors.NewInternalError(errors.New(`failed calling webhook "pods.example.com": connection refused`))
		}))
		f.run()
		elapse(time.Second)
		const want = `Internal error occurred: failed calling webhook "pods.example.com": connection refused`
		failure := meta.FindStatusCondition(f.api.pool(t, "runners").Status.Conditions, v1alpha1.PoolReplicaFailure)
		if failure == nil || failure.Status != metav1.ConditionTrue || failure.Message != want {
			t.Errorf("the pool says %+v, want %q", failure, want)
		}
	})
}

func TestAPodThatMayNotBeDeletedKeepsNoOtherFromBeing(t *testing.T) {
	const pods = 40
	for _, c := range []struct {
		name     string
		protects func(pod string) bool
		wantGone int
		mostSent int
	}{
		{"one", func(pod string) bool { return pod == "p00" }, pods - 1, pods},
		{"all: not a request for each", func(string) bool { return true }, 0, 1 + 2 + 4 + 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := []runtime.Object{aPool("runners", replicas(0))}
				for i := range pods {
					objects = append(objects, aPod(fmt.Sprintf("p%02d", i), readyFor(time.Minute)))
				}
				f := newFixture(t, objects...)
				f.api.refuse(refusing("delete pods", func(name string) error {
					if c.protects(name) {
						return apierrors.NewForbidden(podResource.GroupResource(), name, errors.New("denied by a policy"))
					}
					return nil
				}))
				f.sync(t)
				if gone := pods - len(f.api.allPods(t)); gone != c.wantGone {
					t.Errorf("%d Pods are gone, want %d", gone, c.wantGone)
				}
				sent := 0
				for _, request := range f.api.sent() {
					if strings.HasPrefix(request, "delete pods") {
						sent++
					}
				}
				if sent == 0 || sent > c.mostSent {
					t.Errorf("%d deletions were sent, want at most %d", sent, c.mostSent)
				}
			})
		})
	}
}
