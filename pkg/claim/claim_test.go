package claim

// What takes minutes in real time, or a server that breaks in ways of its own. The rest is
// tested at a real API server, in test/e2e.

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/generated/clientset/versioned/fake"
)

var resource = v1alpha1.Resource("podclaims").WithVersion("v1alpha1")

// refuse has every request of a verb end with err.
func refuse(clientset *fake.Clientset, verb string, err error) {
	clientset.PrependReactor(verb, "podclaims", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

// freezeWatches has no watch ever tell anything.
func freezeWatches(clientset *fake.Clientset) {
	clientset.PrependWatchReactor("podclaims", func(clienttesting.Action) (bool, watch.Interface, error) {
		return true, watch.NewFake(), nil
	})
}

// count counts the requests of a verb.
func count(clientset *fake.Clientset, verb string) (n int) {
	for _, action := range clientset.Actions() {
		if action.Matches(verb, "podclaims") {
			n++
		}
	}
	return n
}

func TestASilentWatchHoldsNobodyUpForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientset := fake.NewSimpleClientset()
		freezeWatches(clientset)
		begun := time.Now()
		time.AfterFunc(time.Minute, func() { bind(t, clientset) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		claim, err := New(clientset, "ci").Acquire(ctx, Options{Pool: "runners"})
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); claim.Pod.Name != "runners-1" || took > watchTimeout+2*requestTimeout || count(clientset, "get") != 1 {
			t.Errorf("after %s and %d reads Acquire returned %+v", took, count(clientset, "get"), claim)
		}
	})
}

// bind has the only claim bound.
func bind(t *testing.T, clientset *fake.Clientset) {
	claims := clientset.WarmpoolV1alpha1().PodClaims("ci")
	list, err := claims.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("there are the claims %v (%v)", list, err)
		return
	}
	claim := &list.Items[0]
	claim.Status.Pod = &v1alpha1.PodReference{Name: "runners-1", UID: "1"}
	if err := clientset.Tracker().Update(resource, claim, "ci"); err != nil {
		t.Error(err)
	}
}

func TestAcquireGivesUpACreateThatMayHaveHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientset := fake.NewSimpleClientset()
		refuse(clientset, "create", errors.New("connection reset"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		_, err := New(clientset, "ci").Acquire(ctx, Options{Pool: "runners"})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "connection reset") {
			t.Errorf("the error is %v, want the deadline and its cause", err)
		}
		if took := time.Since(begun); took != time.Minute+doubtTimeout {
			t.Errorf("Acquire returned after %s, want the context's minute and %s of looking for a claim that is late", took, doubtTimeout)
		}
		if creates, gets := count(clientset, "create"), count(clientset, "get"); creates > 15 || gets > 25 {
			t.Errorf("in a minute %d creates and %d reads were sent", creates, gets)
		}
	})
}

func TestARequestThatWasNeverSentIsNotInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientset := fake.NewSimpleClientset()
		refuse(clientset, "create", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		_, err := New(clientset, "ci").Acquire(ctx, Options{Pool: "runners"})
		if took := time.Since(begun); !errors.Is(err, syscall.ECONNREFUSED) || took != time.Minute || count(clientset, "get") != 0 {
			t.Errorf("after %s and %d reads the error is %v", took, count(clientset, "get"), err)
		}
	})
}

func TestAcquireNamesTheClaimThatItCouldNotDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientset := fake.NewSimpleClientset()
		freezeWatches(clientset)
		refuse(clientset, "delete", apierrors.NewServiceUnavailable("no etcd"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		_, err := New(clientset, "ci").Acquire(ctx, Options{Pool: "runners"})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "delete claim runners-") || !strings.Contains(err.Error(), "no etcd") {
			t.Errorf("the error is %v", err)
		}
		if took := time.Since(begun); took != time.Second+releaseTimeout {
			t.Errorf("Acquire returned after %s", took)
		}
	})
}

func TestAcquireTakesNoClaimOfSomebodyElse(t *testing.T) {
	clientset := fake.NewSimpleClientset()
	clientset.PrependReactor("create", "podclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := action.(clienttesting.CreateAction).GetObject().(*v1alpha1.PodClaim).Name
		other := &v1alpha1.PodClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ci"}}
		if err := clientset.Tracker().Add(other); err != nil {
			t.Error(err)
		}
		return true, nil, apierrors.NewAlreadyExists(resource.GroupResource(), name)
	})
	_, err := New(clientset, "ci").Acquire(t.Context(), Options{Pool: "runners"})
	if !apierrors.IsAlreadyExists(err) || count(clientset, "delete") != 0 {
		t.Errorf("the error is %v, and %d claims were deleted", err, count(clientset, "delete"))
	}
}

func TestOptionsBecomeAClaim(t *testing.T) {
	long := strings.Repeat("a", 51) + "-long-name"
	claim := newPodClaim(Options{Pool: long, Timeout: 1500 * time.Millisecond, Lifetime: 1500 * time.Millisecond})
	if claim.Spec.TimeoutSeconds != 2 || claim.Spec.Lifetime.Duration != 2*time.Second {
		t.Errorf("a second and a half became %d s and %s", claim.Spec.TimeoutSeconds, claim.Spec.Lifetime.Duration)
	}
	if prefix, suffix := claim.Name[:len(claim.Name)-11], claim.Name[len(claim.Name)-11:]; len(claim.Name) > 63 || prefix != strings.Repeat("a", 51) || suffix[0] != '-' {
		t.Errorf("the name is %q", claim.Name)
	}
	if named := newPodClaim(Options{Pool: "runners", NamePrefix: "build-17"}); !strings.HasPrefix(named.Name, "build-17-") {
		t.Errorf("the name is %q", named.Name)
	}
	if claim.Spec.PodMetadata != nil || claim.Labels != nil {
		t.Errorf("metadata that nobody asked for: %+v", claim)
	}
}
