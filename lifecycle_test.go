package main

import (
	"errors"

	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clienttesting "k8s.io/client-go/testing"

	"warmpool.dev/controller/pkg/freshness"
)

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
