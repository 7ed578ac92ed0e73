package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/test/environment"
)

// Each case is what somebody types, and what he is told. The messages are literal: a
// changed one is a changed product.
func TestBadInputIsRefusedWithWhatToDo(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	const podSpec = `"template": {"spec": {"containers": [{"name": "runner", "image": "registry.k8s.io/pause:3.10"}]}}`
	long := strings.Repeat("x", 64)
	for name, c := range map[string]struct {
		kind, fields, want string
	}{
		"a pool with negative replicas": {
			"WarmPool", `"metadata": {"name": "x"}, "spec": {"replicas": -1, ` + podSpec + `}`,
			`WarmPool.warmpool.dev "x" is invalid: [spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0, .spec.replicas: Invalid value: -1: should be a non-negative integer]`,
		},
		"a pool without a spec": {
			"WarmPool", `"metadata": {"name": "x"}`,
			`WarmPool.warmpool.dev "x" is invalid: [spec: Required value, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`,
		},
		"a pool without a template": {
			"WarmPool", `"metadata": {"name": "x"}, "spec": {"replicas": 1}`,
			`WarmPool.warmpool.dev "x" is invalid: [spec.template: Required value, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`,
		},
		"a pool whose template has no spec": {
			"WarmPool", `"metadata": {"name": "x"}, "spec": {"template": {}}`,
			`WarmPool.warmpool.dev "x" is invalid: spec.template: Invalid value: name at least one container in spec.template.spec.containers`,
		},
		"a pool whose template has no containers": {
			"WarmPool", `"metadata": {"name": "x"}, "spec": {"template": {"spec": {"containers": []}}}`,
			`WarmPool.warmpool.dev "x" is invalid: spec.template: Invalid value: name at least one container in spec.template.spec.containers`,
		},
		"a pool whose template names no containers": {
			"WarmPool", `"metadata": {"name": "x"}, "spec": {"template": {"spec": {}}}`,
			`WarmPool.warmpool.dev "x" is invalid: [spec.template.spec.containers: Required value, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`,
		},
		"a pool with a negative limit": {
			"WarmPool", `"metadata": {"name": "x"}, "spec": {"maxSize": -2, ` + podSpec + `}`,
			`WarmPool.warmpool.dev "x" is invalid: spec.maxSize: Invalid value: -2: spec.maxSize in body should be greater than or equal to 0`,
		},
		"a pool with a name that is too long": {
			"WarmPool", `"metadata": {"name": "` + long + `"}, "spec": {` + podSpec + `}`,
			`WarmPool.warmpool.dev "` + long + `" is invalid: <nil>: Invalid value: metadata.name: choose a name of at most 63 characters, it becomes the label warmpool.dev/pool of every Pod`,
		},
		"a claim without a spec": {
			"PodClaim", `"metadata": {"name": "x"}`,
			`PodClaim.warmpool.dev "x" is invalid: [spec: Required value, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`,
		},
		"a claim without the name of a pool": {
			"PodClaim", `"metadata": {"name": "x"}, "spec": {}`,
			`PodClaim.warmpool.dev "x" is invalid: spec: Invalid value: set spec.poolName to the name of a WarmPool of this namespace`,
		},
		"a claim with an empty name of a pool": {
			"PodClaim", `"metadata": {"name": "x"}, "spec": {"poolName": ""}`,
			`PodClaim.warmpool.dev "x" is invalid: spec: Invalid value: set spec.poolName to the name of a WarmPool of this namespace`,
		},
		"a claim with a name of a pool that is too long": {
			"PodClaim", `"metadata": {"name": "x"}, "spec": {"poolName": "` + long + `"}`,
			`PodClaim.warmpool.dev "x" is invalid: [spec.poolName: Too long: may not be more than 63 bytes, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`,
		},
		"a claim with a reserved label": {
			"PodClaim", `"metadata": {"name": "x"}, "spec": {"poolName": "runners", "podMetadata": {"labels": {"warmpool.dev/state": "idle"}}}`,
			`PodClaim.warmpool.dev "x" is invalid: spec.podMetadata.labels: Invalid value: labels that begin with warmpool.dev/ are reserved: choose another prefix`,
		},
		"a claim with a reserved annotation": {
			"PodClaim", `"metadata": {"name": "x"}, "spec": {"poolName": "runners", "podMetadata": {"annotations": {"warmpool.dev/x": ""}}}`,
			`PodClaim.warmpool.dev "x" is invalid: spec.podMetadata.annotations: Invalid value: annotations that begin with warmpool.dev/ are reserved: choose another prefix`,
		},
		"a claim with a negative timeout": {
			"PodClaim", `"metadata": {"name": "x"}, "spec": {"poolName": "runners", "timeoutSeconds": -1}`,
			`PodClaim.warmpool.dev "x" is invalid: spec.timeoutSeconds: Invalid value: -1: spec.timeoutSeconds in body should be greater than or equal to 0`,
		},
		"a claim with a name that is too long": {
			"PodClaim", `"metadata": {"name": "` + long + `"}, "spec": {"poolName": "runners"}`,
			`PodClaim.warmpool.dev "` + long + `" is invalid: <nil>: Invalid value: metadata.name: choose a name of at most 63 characters, it becomes the label warmpool.dev/claim of the Pod`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := env.Warmpool.WarmpoolV1alpha1().RESTClient().Post().
				Namespace(ns.Name).Resource(strings.ToLower(c.kind)+"s").
				Body([]byte(`{"apiVersion": "warmpool.dev/v1alpha1", "kind": "`+c.kind+`", `+c.fields+`}`)).
				SetHeader("Content-Type", "application/json").
				Do(t.Context()).Error()
			refused(t, err, c.want)
		})
	}
}

// refused checks that the API server has refused an object with these words.
func refused(t *testing.T, err error, want string) {
	t.Helper()
	if !apierrors.IsInvalid(err) {
		t.Fatalf("the API server answered %v, want 422 Invalid", err)
	}
	if err.Error() != want {
		t.Errorf("the user is told\n  %s\nwant\n  %s", err, want)
	}
}

func TestWhatIsFixedCanNotBeChanged(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartKubelet()
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", 1))
	ns.CreateClaim(environment.Claim("build", "runners"))
	bound := ns.WaitBound("build")
	claims := env.Warmpool.WarmpoolV1alpha1().PodClaims(ns.Name)

	const changedSpec = `PodClaim.warmpool.dev "build" is invalid: spec: Invalid value: spec can't be changed: delete this PodClaim and create a new one`
	const changedPod = `PodClaim.warmpool.dev "build" is invalid: <nil>: Invalid value: status.pod is written once and can't be changed or removed: create a new PodClaim to get another Pod`
	for name, c := range map[string]struct {
		patch        string
		subresources []string
		want         string
	}{
		"the pool of a claim":        {`{"spec": {"poolName": "others"}}`, nil, changedSpec},
		"the priority of a claim":    {`{"spec": {"priority": 5}}`, nil, changedSpec},
		"a label for the Pod":        {`{"spec": {"podMetadata": {"labels": {"a": "b"}}}}`, nil, changedSpec},
		"the Pod of a claim":         {`{"status": {"pod": {"name": "other", "uid": "other"}}}`, []string{"status"}, changedPod},
		"the uid of a claim's Pod":   {`{"status": {"pod": {"uid": "other"}}}`, []string{"status"}, changedPod},
		"no Pod in a claim's status": {`{"status": {"pod": null}}`, []string{"status"}, changedPod},
		"no status of a claim":       {`{"status": null}`, []string{"status"}, changedPod},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := claims.Patch(t.Context(), "build", types.MergePatchType, []byte(c.patch), metav1.PatchOptions{}, c.subresources...)
			refused(t, err, c.want)
		})
	}
	// Without the subresource a status isn't even looked at.
	if _, err := claims.Patch(t.Context(), "build", types.MergePatchType, []byte(`{"status": {"pod": {"name": "other", "uid": "other"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("a patch of the claim that holds a status: %v", err)
	}
	if again := ns.WaitBound("build"); fmt.Sprint(again) != fmt.Sprint(bound) {
		t.Errorf("the claim has Pod %v, had %v", again, bound)
	}
}

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

// A template may name labels, annotations and even an owner of our own: the Pod has
// those of the controller all the same.
func TestATemplateCanNotSetWhatTheControllerReliesOn(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartKubelet()
	ns.StartController()
	pool := ns.CreatePool(environment.Pool("runners", 1, func(p *v1alpha1.WarmPool) {
		p.Spec.Template.Labels = map[string]string{"app": "runner", "warmpool.dev/pool": "others", "warmpool.dev/state": "claimed", "warmpool.dev/claim": "build"}
		p.Spec.Template.Annotations = map[string]string{"app": "runner", "warmpool.dev/x": "y"}
		p.Spec.Template.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "mine", UID: "mine"}}
		p.Spec.Template.Name = "mine"
	}))
	ns.WaitPool("runners", 1, 0)
	pod := ns.PodsOf(pool.UID)[0]
	if got, want := fmt.Sprint(pod.Labels), "map[app:runner warmpool.dev/pool:runners warmpool.dev/state:idle]"; got != want {
		t.Errorf("the Pod's labels are %s, want %s", got, want)
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
