package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/claim"
	"warmpool.dev/controller/pkg/generated/clientset/versioned"
	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
)

// claimClient returns a client of package claim, and the proxy through which alone it
// reaches the API server.
func claimClient(t *testing.T, ns *environment.Namespace) (*claim.Client, *faultproxy.Proxy) {
	t.Helper()
	proxy, err := faultproxy.Start(faultproxy.Options{Target: env.Config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	clientset, err := versioned.NewForConfig(proxy.Config(env.Config))
	if err != nil {
		t.Fatal(err)
	}
	return claim.New(clientset, ns.Name), proxy
}

// inTime is a context for waiting at a proxy.
func inTime(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), environment.Timeout)
	t.Cleanup(cancel)
	return ctx
}

// acquired is what became of a call of Acquire.
type acquired struct {
	claim *claim.Claim
	err   error
}

// acquire calls Acquire in a goroutine of its own.
func acquire(ctx context.Context, client *claim.Client, options claim.Options) <-chan acquired {
	result := make(chan acquired, 1)
	go func() {
		c, err := client.Acquire(ctx, options)
		result <- acquired{c, err}
	}()
	return result
}

// receive waits for what comes of an Acquire or a Wait.
func receive[T any](t *testing.T, result <-chan T) T {
	t.Helper()
	timer := time.NewTimer(environment.Timeout)
	defer timer.Stop()
	select {
	case r := <-result:
		return r
	case <-timer.C:
		t.Fatalf("it doesn't return within %s", environment.Timeout)
		panic("unreachable")
	}
}

// onlyClaim waits until there is one claim, whose condition Bound has a reason.
func onlyClaim(ns *environment.Namespace) (only *v1alpha1.PodClaim) {
	ns.Eventually("one claim that waits", func() error {
		claims := ns.Claims()
		for _, c := range claims {
			only = c
		}
		if len(claims) != 1 || len(only.Status.Conditions) == 0 {
			return fmt.Errorf("there are %d: %+v", len(claims), only)
		}
		return nil
	})
	return only
}

// failed fails the test if an Acquire has given a Pod, if its error isn't want, or if it
// has left a claim.
func failed(t *testing.T, ns *environment.Namespace, result acquired, want error) {
	t.Helper()
	if result.claim != nil || !errors.Is(result.err, want) {
		t.Fatalf("Acquire returned %+v and the error %v, want %v", result.claim, result.err, want)
	}
	if claims := ns.Claims(); len(claims) != 0 {
		t.Fatalf("Acquire left the claims %v", claims)
	}
}

// podClaims are the requests that the claim client makes.
var podClaims = faultproxy.Match{Resource: "podclaims"}

// requests counts those requests by their verbs.
func requests(proxy *faultproxy.Proxy) map[string]int {
	counts := map[string]int{}
	for _, r := range proxy.Log().Select(podClaims) {
		counts[r.Verb]++
	}
	return counts
}

func TestAcquireTakesAPodAndReleaseDeletesIt(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.Judge()
	ns.StartKubelet()
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", 2))
	ns.WaitPool("runners", 2, 0)
	client, _ := claimClient(t, ns)

	got, err := client.Acquire(t.Context(), claim.Options{
		Pool: "runners", Lifetime: time.Hour,
		Labels: map[string]string{"build": "17"}, Annotations: map[string]string{"example.com/url": "https://example.com/17"},
	})
	if err != nil {
		t.Fatal(err)
	}
	pod := ns.Pods()[got.Pod.UID]
	if pod == nil || pod.Name != got.Pod.Name || metav1.GetControllerOf(pod).UID != got.UID || got.NodeName != pod.Spec.NodeName || !slices.Equal(got.PodIPs, []string{"10.0.0.1"}) {
		t.Fatalf("Acquire returned %+v, the Pod is %+v", got, pod)
	}
	if pod.Labels["build"] != "17" || pod.Annotations["example.com/url"] != "https://example.com/17" {
		t.Errorf("the Pod has labels %v and annotations %v", pod.Labels, pod.Annotations)
	}
	if left := time.Until(got.Expiration); left < 59*time.Minute || left > time.Hour {
		t.Errorf("the claim expires in %s, want an hour", left)
	}
	for range 2 { // the second time there is nothing left to delete
		if err := got.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	ns.WaitPool("runners", 2, 0)
	ns.WaitPods(2)
}

func TestReleaseLeavesAnotherClaimOfTheSameNameAlone(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartKubelet()
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", 1))
	client, _ := claimClient(t, ns)
	got, err := client.Acquire(t.Context(), claim.Options{Pool: "runners"})
	if err != nil {
		t.Fatal(err)
	}
	ns.DeleteClaim(got.Name)
	other := ns.CreateClaim(environment.Claim(got.Name, "runners"))
	if err := got.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if left := ns.Claim(got.Name); left.UID != other.UID || left.DeletionTimestamp != nil {
		t.Errorf("Release deleted a claim that isn't its own: %+v", left)
	}
}

func TestAcquireWaitsByWatch(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", 0))
	client, proxy := claimClient(t, ns)

	result := acquire(t.Context(), client, claim.Options{Pool: "runners"})
	onlyClaim(ns)
	want := map[string]int{"create": 1, "watch": 1}
	if err := proxy.WaitOpenWatches(inTime(t), 1, podClaims); err != nil {
		t.Fatal(err)
	}
	environment.For(t, 5*time.Second, "Acquire waits by its watch alone", func() error {
		if got := requests(proxy); fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("its requests are %v, want %v", got, want)
		}
		return nil
	})
	ns.StartKubelet()
	if r := receive(t, result); r.err != nil {
		t.Fatal(r.err)
	}
	if got := requests(proxy); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the requests of one Acquire are %v, want %v", got, want)
	}
}

func TestAcquireGoesOnWhenItsWatchIsCut(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", 0))
	client, proxy := claimClient(t, ns)

	result := acquire(t.Context(), client, claim.Options{Pool: "runners"})
	waiting := onlyClaim(ns)
	cuts := []faultproxy.Reply{faultproxy.Reset(), faultproxy.Closed(), faultproxy.Expired(), faultproxy.InternalError()}
	for _, reply := range cuts {
		if err := proxy.WaitOpenWatches(inTime(t), 1, podClaims); err != nil {
			t.Fatalf("before %s: %v", reply, err)
		}
		proxy.EndWatches(podClaims, reply)
	}
	// What happens while there is no watch isn't missed either.
	if err := proxy.WaitOpenWatches(inTime(t), 1, podClaims); err != nil {
		t.Fatal(err)
	}
	down := proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Verb: faultproxy.Reads}, Do: faultproxy.Refuse(faultproxy.Unavailable())})
	proxy.EndWatches(podClaims, faultproxy.Reset())
	ns.StartKubelet()
	ns.WaitBound(waiting.Name)
	if err := down.WaitFired(inTime(t), 1); err != nil {
		t.Fatal(err)
	}
	down.Remove()
	r := receive(t, result)
	if r.err != nil {
		t.Fatal(r.err)
	}
	if r.claim.UID != waiting.UID {
		t.Errorf("Acquire returned claim %s, want the one that waited, %s", r.claim.Name, waiting.Name)
	}
	if got := requests(proxy)["create"]; got != 1 {
		t.Errorf("%d claims were created, want 1", got)
	}
	t.Logf("%d watches ended; the requests are %v", len(cuts)+1, requests(proxy))
}

func TestAcquireSaysWhyItGotNoPod(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", 0, func(p *v1alpha1.WarmPool) { p.Spec.MaxSize = 1 }))
	client, _ := claimClient(t, ns)

	timedOut, err := client.Acquire(t.Context(), claim.Options{Pool: "runners", Timeout: 1500 * time.Millisecond})
	failed(t, ns, acquired{timedOut, err}, &claim.FinishedError{Reason: v1alpha1.ReasonTimedOut})
	t.Log(err)

	result := acquire(t.Context(), client, claim.Options{Pool: "runners"})
	ns.DeleteClaim(onlyClaim(ns).Name)
	r := receive(t, result)
	failed(t, ns, r, &claim.FinishedError{Reason: claim.ReasonDeleted})
	t.Log(r.err)

	first, cancelFirst := context.WithCancel(t.Context())
	defer cancelFirst()
	has := acquire(first, client, claim.Options{Pool: "runners", Priority: 1})
	onlyClaim(ns)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	none, err := client.Acquire(ctx, claim.Options{Pool: "runners", NamePrefix: "second"})
	if want := "AtCapacity: WarmPool \"runners\" has reached spec.maxSize (1)"; none != nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
		t.Errorf("Acquire on a pool that is full returned %v, want the deadline and %q", err, want)
	}
	t.Log(err)
	cancelFirst()
	failed(t, ns, receive(t, has), context.Canceled)

	refused, err := client.Acquire(t.Context(), claim.Options{Pool: "runners", Labels: map[string]string{"warmpool.dev/pool": "others"}})
	if refused != nil || !apierrors.IsInvalid(err) {
		t.Errorf("Acquire with a reserved label returned %v, want the API server's refusal", err)
	}
	t.Log(err)
	failed(t, ns, acquired{refused, err}, err)
}

func TestTwentyAcquireFromAPoolOfTen(t *testing.T) {
	t.Parallel()
	const programs, maxSize = 20, 10
	ns := env.Namespace(t)
	ns.Judge()
	ns.StartKubelet()
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", maxSize, func(p *v1alpha1.WarmPool) { p.Spec.MaxSize = maxSize }))
	ns.WaitPool("runners", maxSize, 0)
	client, proxy := claimClient(t, ns)

	var mu sync.Mutex
	users := map[types.UID]string{} // of each Pod ever given
	var all sync.WaitGroup
	for range programs {
		all.Go(func() {
			got, err := client.Acquire(t.Context(), claim.Options{Pool: "runners"})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			if other := users[got.Pod.UID]; other != "" {
				t.Errorf("claims %s and %s were given the same Pod", other, got.Name)
			}
			users[got.Pod.UID] = got.Name
			mu.Unlock()
			if err := got.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(users) != programs {
		t.Errorf("%d programs were given %d Pods", programs, len(users))
	}
	ns.WaitPool("runners", maxSize, 0)
	ns.WaitPods(maxSize)
	if claims := ns.Claims(); len(claims) != 0 {
		t.Errorf("there are claims left: %v", claims)
	}
	t.Logf("the requests are %v", requests(proxy))
}

func TestWaitReturnsWhenTheClaimIsOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason   string
		lifetime time.Duration
		end      func(*environment.Namespace, *claim.Claim, *corev1.Pod)
	}{
		{v1alpha1.ReasonPodFailed, 0, func(ns *environment.Namespace, _ *claim.Claim, pod *corev1.Pod) { ns.EndPod(pod, corev1.PodFailed) }},
		{v1alpha1.ReasonPodLost, 0, func(ns *environment.Namespace, _ *claim.Claim, pod *corev1.Pod) {
			ns.Kubectl("delete", "pod", pod.Name)
		}},
		{v1alpha1.ReasonExpired, time.Second, func(*environment.Namespace, *claim.Claim, *corev1.Pod) {}},
		{claim.ReasonDeleted, 0, func(ns *environment.Namespace, c *claim.Claim, _ *corev1.Pod) { ns.DeleteClaim(c.Name) }},
	} {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			ns := env.Namespace(t)
			ns.StartKubelet()
			ns.StartController()
			ns.CreatePool(environment.Pool("runners", 1))
			client, proxy := claimClient(t, ns)
			got, err := client.Acquire(t.Context(), claim.Options{Pool: "runners", Lifetime: c.lifetime})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- got.Wait(t.Context()) }()
			c.end(ns, got, ns.Pods()[got.Pod.UID])
			err = receive(t, ended)
			if !errors.Is(err, &claim.FinishedError{Reason: c.reason}) {
				t.Errorf("Wait returned %v, want reason %s", err, c.reason)
			}
			t.Logf("%v; the requests are %v", err, requests(proxy))
		})
	}
}
