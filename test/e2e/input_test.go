package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/test/environment"
)

func TestAClaimOnAPoolThatDoesNotExistWaitsAndSaysSo(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartKubelet()
	ns.StartController()
	ns.CreateClaim(environment.Claim("build", "runners"))
	condition := ns.WaitCondition("build", "Bound", "False", "PoolNotFound")
	want := fmt.Sprintf(`there is no WarmPool "runners" in namespace %q: create it, or delete this claim`, ns.Name)
	if condition.Message != want {
		t.Errorf("the claim is told %q, want %q", condition.Message, want)
	}
	ns.CreatePool(environment.Pool("runners", 0))
	ns.WaitBound("build")
}

// A template may name a Pod and even owners of it: the Pod has the controller's all the
// same. That the API server refuses the labels that the controller relies on is in
// TestBadInputIsRefusedWithWhatToDo, that NewPod would leave them out in its own test.
func TestATemplateCanNotSetWhatTheControllerReliesOn(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartKubelet()
	ns.StartController()
	pool := ns.CreatePool(environment.Pool("runners", 1, func(p *v1alpha1.WarmPool) {
		p.Spec.Template.Labels = map[string]string{"app": "runner"}
		p.Spec.Template.Annotations = map[string]string{"app": "runner"}
		p.Spec.Template.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "mine", UID: "mine"}}
		p.Spec.Template.Name = "mine"
	}))
	ns.WaitPool("runners", 1, 0)
	pod := ns.PodsOf(pool.UID)[0]
	for key, want := range map[string]string{"app": "runner", "warmpool.dev/pool": "runners", "warmpool.dev/state": "idle"} {
		if got := pod.Labels[key]; got != want {
			t.Errorf("the Pod's label %s is %q, want %q", key, got, want)
		}
	}
	if got, want := fmt.Sprint(pod.Annotations), "map[app:runner]"; got != want {
		t.Errorf("the Pod's annotations are %s, want %s", got, want)
	}
	if len(pod.OwnerReferences) != 1 || !strings.HasPrefix(pod.Name, "runners-") {
		t.Errorf("the Pod is called %s and has owners %v", pod.Name, pod.OwnerReferences)
	}
}

// A claim whose labels the API server doesn't take is told so; the claims behind it
// get their Pods as if it weren't there.
func TestAClaimThatCanNotBeServedKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartKubelet()
	controller := ns.StartController()
	ns.CreatePool(environment.Pool("runners", 1))
	ns.WaitPool("runners", 1, 0)
	ns.CreateClaim(environment.Claim("bad", "runners", func(c *v1alpha1.PodClaim) {
		c.Spec.Priority = 100
		c.Spec.PodMetadata = &v1alpha1.PodMetadata{Labels: map[string]string{"build": "no spaces, please"}}
	}))
	condition := ns.WaitCondition("bad", "Bound", "False", "HandOutRefused")
	if !strings.Contains(condition.Message, `metadata.labels: Invalid value: "no spaces, please"`) {
		t.Errorf("the claim is told %q, want the API server's words", condition.Message)
	}
	var good []string
	begun := time.Now()
	for i := range 5 {
		good = append(good, fmt.Sprintf("good-%d", i))
		ns.CreateClaim(environment.Claim(good[i], "runners"))
	}
	ns.WaitBound(good...)
	t.Logf("the 5 claims behind it were bound within %s", time.Since(begun).Round(time.Millisecond))

	// It goes on being refused, ever more rarely, and changes nothing by that.
	before := ns.Claim("bad")
	writes := ns.SettledWrites()
	attempts := slices.DeleteFunc(environment.Refused(writes), func(w controlplane.Write) bool { return w.Kind() != "patch pods" })
	t.Logf("%d hand-outs were refused", len(attempts))
	if len(attempts) > 30 {
		t.Errorf("%d hand-outs were refused, want a few", len(attempts))
	}
	if after := ns.Claim("bad"); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the status of the claim that is refused was written again: %v, was %v", after.Status, before.Status)
	}
	// The refusal is final: no newer cache would change it, so nobody waits for one.
	if firing := `freshness_guard_firings_total{action="outdated_cache_noticed"`; strings.Contains(controller.Metrics(), firing) {
		t.Error("a refused hand-out was taken for the fault of an old cache")
	}
	ns.DeleteClaim("bad")
	ns.WaitPool("runners", 1, 5)
	ns.WaitPods(6)
}

// A template that the API server doesn't take is the pool's own trouble.
func TestAPoolWithATemplateThatIsRefusedSaysSo(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartKubelet()
	ns.StartController()
	ns.CreatePool(environment.Pool("broken", 3, func(p *v1alpha1.WarmPool) {
		p.Spec.Template.Spec.Containers = []corev1.Container{{Name: "Not a name", Image: "registry.k8s.io/pause:3.10"}}
	}))
	ns.CreatePool(environment.Pool("runners", 2))
	ns.WaitPool("runners", 2, 0)
	condition := ns.WaitPoolCondition("broken", "ReplicaFailure", "True", "FailedCreate")
	if !strings.Contains(condition.Message, `spec.containers[0].name: Invalid value: "Not a name"`) {
		t.Errorf("the pool says %q, want the API server's words", condition.Message)
	}
	ns.CreateClaim(environment.Claim("build", "broken"))
	waiting := ns.WaitCondition("build", "Bound", "False", "PoolExhausted")
	if want := `the API server refuses to create Pods: see condition ReplicaFailure of WarmPool "broken"`; waiting.Message != want {
		t.Errorf("the claim is told %q, want %q", waiting.Message, want)
	}

	// Mended, it fills, and the condition goes.
	ns.PatchPool("broken", `{"spec": {"template": {"spec": {"containers": [{"name": "runner", "image": "registry.k8s.io/pause:3.10"}]}}}}`)
	ns.WaitBound("build")
	ns.WaitPool("broken", 3, 1)
	ns.WaitPoolCondition("broken", "ReplicaFailure", "False", "CreateAccepted")
}
