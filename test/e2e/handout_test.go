package e2e

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/test/environment"
)

func TestTwoClaimsNeverGetTheSamePod(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.Judge()
	kubelet := ns.StartKubelet()
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", 1))
	for round := range 5 {
		ns.WaitPool("runners", 1, 0)
		kubelet.Stop() // the pool has one ready Pod, and gets no other
		first, second := fmt.Sprintf("first-%d", round), fmt.Sprintf("second-%d", round)
		var creating sync.WaitGroup
		for _, name := range []string{first, second} {
			creating.Go(func() { createClaim(t, ns, name) })
		}
		creating.Wait()

		var waiting string
		ns.Eventually("one claim to be bound and the other to wait", func() error {
			bound := 0
			for name, claim := range ns.Claims() {
				switch {
				case claim.Status.Pod != nil:
					bound++
				case len(claim.Status.Conditions) == 1:
					waiting = name
				}
			}
			if bound != 1 || waiting == "" {
				return fmt.Errorf("%d are bound, %q waits", bound, waiting)
			}
			return nil
		})
		condition := ns.WaitCondition(waiting, "Bound", "False", "Pending")
		if condition.Message != "a Pod is being started for this claim" {
			t.Errorf("the waiting claim is told %q", condition.Message)
		}

		kubelet = ns.StartKubelet()
		ns.WaitBound(first, second)
		ns.WaitPool("runners", 1, 2)
		ns.DeleteClaim(first)
		ns.DeleteClaim(second)
		ns.WaitPods(1)
	}
	ns.WaitPool("runners", 1, 0)
}

func TestAHundredClaimsOnAPoolOfTen(t *testing.T) {
	t.Parallel()
	const claims = 100
	ns := env.Namespace(t)
	ns.Judge()
	ns.StartKubelet()
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", 10))
	ns.WaitPool("runners", 10, 0)

	begun := time.Now()
	names := createClaims(t, ns, "build", claims)
	created := time.Since(begun)
	ns.WaitBound(names...)
	t.Logf("%d claims were created in %s, and all bound %s after the first", claims, created.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond))
	ns.WaitPool("runners", 10, claims)
	ns.WaitPods(10 + claims)
	onePodEach(t, ns)
	writes := ns.SettledWrites()
	t.Logf("the controller wrote\n%s", environment.Table(writes))
	counts := controlplane.CountByKind(writes)
	if counts["create pods"] != 10+claims || counts["delete pods"] != 0 || counts["patch pods"] != claims {
		t.Errorf("%d Pods were created, %d handed out and %d deleted, want %d, %d and none",
			counts["create pods"], counts["patch pods"], counts["delete pods"], 10+claims, claims)
	}
}

// createClaims creates n claims on the pool runners, eight at a time, and returns
// their names.
func createClaims(t *testing.T, ns *environment.Namespace, prefix string, n int) []string {
	t.Helper()
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%d", prefix, i))
	}
	var creating sync.WaitGroup
	for some := range slices.Chunk(names, (n+7)/8) {
		creating.Go(func() {
			for _, name := range some {
				createClaim(t, ns, name)
			}
		})
	}
	creating.Wait()
	return names
}

// createClaim creates a claim on the pool runners; other than the namespace's own
// method it may be called by any goroutine, since it doesn't end the test.
func createClaim(t *testing.T, ns *environment.Namespace, name string) {
	t.Helper()
	claims := env.Warmpool.WarmpoolV1alpha1().PodClaims(ns.Name)
	if _, err := claims.Create(t.Context(), environment.Claim(name, "runners"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

// onePodEach fails the test if a claim owns another number of Pods than one, those
// that are being deleted included.
func onePodEach(t *testing.T, ns *environment.Namespace) {
	t.Helper()
	owned := map[string][]string{}
	for _, pod := range ns.Pods() {
		if owner := metav1.GetControllerOf(pod); owner.Kind == "PodClaim" {
			owned[owner.Name] = append(owned[owner.Name], pod.Name)
		}
	}
	for name := range ns.Claims() {
		if len(owned[name]) != 1 {
			t.Errorf("claim %s owns %d Pods: %v", name, len(owned[name]), owned[name])
		}
	}
}

func TestAClaimWithHigherPriorityIsServedFirst(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.Judge()
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", 0))
	pods := func(n int) (pending []*corev1.Pod) {
		ns.Eventually(fmt.Sprintf("%d Pods to be started", n), func() error {
			if pending = ns.PodsOf(ns.Pool("runners").UID); len(pending) != n {
				return fmt.Errorf("there are %d", len(pending))
			}
			return nil
		})
		return pending
	}
	ns.CreateClaim(environment.Claim("early", "runners"))
	pods(1) // so that the claim is known before the next one is created
	ns.CreateClaim(environment.Claim("urgent", "runners", func(c *v1alpha1.PodClaim) { c.Spec.Priority = 10 }))
	started := pods(2)

	ns.SetReady(started[0], true)
	ns.WaitBound("urgent")
	if claim := ns.Claim("early"); claim.Status.Pod != nil {
		t.Errorf("the claim with the lower priority has Pod %s", claim.Status.Pod.Name)
	}
	ns.SetReady(started[1], true)
	ns.WaitBound("early", "urgent")
	ns.WaitPool("runners", 0, 2)
}

func TestWhatAClaimAsksForIsSetOnItsPod(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.Judge()
	ns.StartKubelet()
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", 1, func(p *v1alpha1.WarmPool) {
		p.Spec.Template.Labels = map[string]string{"app": "runner", "build": "none"}
	}))
	ns.CreateClaim(environment.Claim("build", "runners", func(c *v1alpha1.PodClaim) {
		c.Spec.PodMetadata = &v1alpha1.PodMetadata{
			Labels:      map[string]string{"build": "17", "example.com/team": "a"},
			Annotations: map[string]string{"example.com/url": "https://example.com/17?a~b"},
		}
	}))
	uid := ns.WaitBound("build")["build"]
	ns.WaitPool("runners", 1, 1)

	pod := ns.Pods()[uid]
	for key, want := range map[string]string{"app": "runner", "build": "17", "example.com/team": "a", "warmpool.dev/claim": "build", "warmpool.dev/state": "claimed"} {
		if pod.Labels[key] != want {
			t.Errorf("label %s of the Pod is %q, want %q", key, pod.Labels[key], want)
		}
	}
	if got := pod.Annotations["example.com/url"]; got != "https://example.com/17?a~b" {
		t.Errorf("the Pod's annotation is %q", got)
	}
}

func TestABoundClaimFollowsItsPod(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartKubelet()
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", 1))
	for _, name := range []string{"flaps", "succeeds", "fails", "lost"} {
		ns.CreateClaim(environment.Claim(name, "runners"))
	}
	bound := ns.WaitBound("flaps", "succeeds", "fails", "lost")
	pods := ns.Pods()

	ns.SetReady(pods[bound["flaps"]], false)
	ns.WaitCondition("flaps", "Ready", "False", "PodNotReady")
	ns.SetReady(pods[bound["flaps"]], true)
	ns.WaitCondition("flaps", "Ready", "True", "PodReady")
	ns.EndPod(pods[bound["succeeds"]], corev1.PodSucceeded)
	ns.WaitCondition("succeeds", "Finished", "True", "PodSucceeded")
	ns.EndPod(pods[bound["fails"]], corev1.PodFailed)
	ns.WaitCondition("fails", "Finished", "True", "PodFailed")
	ns.Kubectl("delete", "pod", pods[bound["lost"]].Name)
	lost := ns.WaitCondition("lost", "Finished", "True", "PodLost")
	if want := fmt.Sprintf("Pod %s is gone: delete this claim, and create a new one for another Pod", pods[bound["lost"]].Name); lost.Message != want {
		t.Errorf("the claim is told %q, want %q", lost.Message, want)
	}
	if got := ns.Claim("lost").Status.Pod; got == nil || got.UID != bound["lost"] {
		t.Errorf("status.pod of the claim whose Pod was lost is %v, want what it was", got)
	}
	ns.WaitPool("runners", 1, 3) // the ended ones are claimed still, the lost one is gone
}
