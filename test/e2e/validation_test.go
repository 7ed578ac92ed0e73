package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/test/environment"
)

// dryRun has the API server judge an object and keep nothing of it. fields are what
// stands in the object beside apiVersion and kind. It returns the object as clients
// would get it.
func dryRun(t *testing.T, namespace, kind, fields string) ([]byte, error) {
	t.Helper()
	result := env.Warmpool.WarmpoolV1alpha1().RESTClient().Post().
		Namespace(namespace).Resource(strings.ToLower(kind)+"s").Param("dryRun", metav1.DryRunAll).
		SetHeader("Content-Type", "application/json").
		Body([]byte(`{"apiVersion": "warmpool.dev/v1alpha1", "kind": "` + kind + `", ` + fields + `}`)).
		Do(t.Context())
	if err := result.Error(); err != nil { // DoRaw's has no message
		return nil, err
	}
	return result.Raw()
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

// podSpec is a template that nothing is wrong with.
const podSpec = `"template": {"spec": {"containers": [{"name": "runner", "image": "registry.k8s.io/pause:3.10"}]}}`

// Each case is what somebody types, and what he is told. The messages are literal: a
// changed one is a changed product.
func TestBadInputIsRefusedWithWhatToDo(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
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
			_, err := dryRun(t, ns.Name, c.kind, c.fields)
			refused(t, err, c.want)
		})
	}
}

// A pool's spec with one thing wrong, and what its author is told.
func TestABadPoolIsRefusedWithWhatToDo(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	const (
		tolerance      = `set spec.tolerance to a number such as 2, or to a share such as "10%"`
		maxUnavailable = `set maxUnavailable to a number such as 2, or to a share such as "25%"`
		maxSurge       = `set maxSurge to a number such as 2, or to a share such as "25%"`
		bothZero       = `spec.updateStrategy.rollingUpdate: Invalid value: set maxUnavailable or maxSurge of spec.updateStrategy.rollingUpdate to more than 0, or no Pod can ever be replaced`
		notRolling     = `spec.updateStrategy: Invalid value: remove spec.updateStrategy.rollingUpdate, or set spec.updateStrategy.type to RollingUpdate`
		deadline       = `spec: Invalid value: set spec.progressDeadlineSeconds to more than spec.minReadySeconds, or no Pod can be ready in time`
		tooShortLived  = `spec: Invalid value: set spec.maxIdleSeconds to more than spec.minReadySeconds, or each Pod is replaced before it may be handed out`
		lifetime       = `set it to hours, minutes and seconds, such as 1h30m, from 1s to 99999h`
		longestLife    = `set it to hours, minutes and seconds, such as 8h, from 1s to 99999h`
		inconsistent   = `spec.claimLifetime: Invalid value: set default of spec.claimLifetime to at most its maximum`
		unchecked      = `<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation`
		int32Only      = `<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.`
		quantity       = `in body should match '^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$'`
	)
	for _, c := range []struct{ spec, want string }{
		{`"tolerance": -1`, `spec.tolerance: Invalid value: -1: ` + tolerance},
		{`"tolerance": 3000000000`, `spec.tolerance: Invalid value: 3000000000: ` + tolerance},
		{`"tolerance": "abc"`, `spec.tolerance: Invalid value: "abc": ` + tolerance},
		{`"tolerance": "5"`, `spec.tolerance: Invalid value: "5": ` + tolerance},
		{`"tolerance": "150%"`, `spec.tolerance: Invalid value: "150%": ` + tolerance},
		{`"tolerance": "-5%"`, `spec.tolerance: Invalid value: "-5%": ` + tolerance},

		{`"updateStrategy": {"rollingUpdate": {"maxUnavailable": -1}}`, `spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: -1: ` + maxUnavailable},
		{`"updateStrategy": {"rollingUpdate": {"maxUnavailable": 3000000000}}`, `spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: 3000000000: ` + maxUnavailable},
		{`"updateStrategy": {"rollingUpdate": {"maxUnavailable": "abc"}}`, `spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "abc": ` + maxUnavailable},
		{`"updateStrategy": {"rollingUpdate": {"maxUnavailable": "150%"}}`, `spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "150%": ` + maxUnavailable},
		{`"updateStrategy": {"rollingUpdate": {"maxSurge": -1}}`, `spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: -1: ` + maxSurge},
		{`"updateStrategy": {"rollingUpdate": {"maxSurge": 3000000000}}`, `spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 3000000000: ` + maxSurge},
		{`"updateStrategy": {"rollingUpdate": {"maxSurge": "abc"}}`, `spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: "abc": ` + maxSurge},
		{`"updateStrategy": {"rollingUpdate": {"maxSurge": "150%"}}`, `spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: "150%": ` + maxSurge},
		{`"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}}`, bothZero},
		{`"updateStrategy": {"rollingUpdate": {"maxUnavailable": "0%", "maxSurge": "0%"}}`, bothZero},
		{`"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0}}`, bothZero},
		{`"updateStrategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}`, notRolling},
		{`"updateStrategy": {"type": "OnHandOut", "rollingUpdate": {}}`, notRolling},
		{`"updateStrategy": {"type": "BlueGreen"}`, `[spec.updateStrategy.type: Unsupported value: "BlueGreen": supported values: "RollingUpdate", "Recreate", "OnHandOut", ` + unchecked + `]`},

		{`"progressDeadlineSeconds": -1`, `[spec.progressDeadlineSeconds: Invalid value: -1: spec.progressDeadlineSeconds in body should be greater than or equal to 0, ` + deadline + `]`},
		{`"progressDeadlineSeconds": 60, "minReadySeconds": 60`, deadline},
		{`"minReadySeconds": 600`, deadline},
		{`"minReadySeconds": -1`, `spec.minReadySeconds: Invalid value: -1: spec.minReadySeconds in body should be greater than or equal to 0`},
		{`"readinessTimeoutSeconds": -1`, `spec.readinessTimeoutSeconds: Invalid value: -1: spec.readinessTimeoutSeconds in body should be greater than or equal to 0`},
		{`"maxIdleSeconds": -1`, `[spec.maxIdleSeconds: Invalid value: -1: spec.maxIdleSeconds in body should be greater than or equal to 0, ` + tooShortLived + `]`},
		{`"maxIdleSeconds": 30, "minReadySeconds": 30`, tooShortLived},

		{`"maxSize": 3000000000`, int32Only + `maxSize`},
		{`"readinessTimeoutSeconds": 3000000000`, int32Only + `readinessTimeoutSeconds`},
		{`"progressDeadlineSeconds": 3000000000`, int32Only + `progressDeadlineSeconds`},
		{`"maxIdleSeconds": 3000000000`, int32Only + `maxIdleSeconds`},
		{`"minReadySeconds": 3000000000, "progressDeadlineSeconds": 0`, int32Only + `minReadySeconds`},
		{`"replicas": 3000000000`, `[` + int32Only + `replicas, .spec.replicas: Invalid value: 3000000000: should be less than or equal to 2147483647]`},

		{`"claimLifetime": {"default": "2h", "maximum": "1h"}`, inconsistent},
		{`"claimLifetime": {"default": "1d"}`, `spec.claimLifetime.default: Invalid value: "1d": ` + lifetime},
		{`"claimLifetime": {"default": "abc", "maximum": "1h"}`, `spec.claimLifetime.default: Invalid value: "abc": ` + lifetime},
		{`"claimLifetime": {"default": "-5s"}`, `spec.claimLifetime.default: Invalid value: "-5s": ` + lifetime},
		{`"claimLifetime": {"default": "999ms"}`, `spec.claimLifetime.default: Invalid value: "999ms": ` + lifetime},
		{`"claimLifetime": {"maximum": "0s"}`, `spec.claimLifetime.maximum: Invalid value: "0s": ` + longestLife},
		{`"claimLifetime": {"maximum": "1d"}`, `spec.claimLifetime.maximum: Invalid value: "1d": ` + longestLife},
		{`"claimLifetime": {"maximum": "99999h1s"}`, `spec.claimLifetime.maximum: Invalid value: "99999h1s": ` + longestLife},

		{`"template": {"metadata": {"labels": {"warmpool.dev/pool": "others"}}, "spec": {"containers": [{"name": "runner"}]}}`, `spec.template: Invalid value: labels that begin with warmpool.dev/ are reserved: choose another prefix in spec.template.metadata.labels`},
		{`"template": {"metadata": {"annotations": {"warmpool.dev/x": "y"}}, "spec": {"containers": [{"name": "runner"}]}}`, `spec.template: Invalid value: annotations that begin with warmpool.dev/ are reserved: choose another prefix in spec.template.metadata.annotations`},
		{`"template": {"spec": {"containers": [{"name": "runner", "ports": [{"containerPort": 3000000000}]}]}}`, int32Only + `template.spec.containers[0].ports[0].containerPort`},
		{`"template": {"spec": {"containers": [{"name": "runner", "readinessProbe": {"httpGet": {"port": 3000000000}}}]}}`, `spec.template.spec.containers[0].readinessProbe.httpGet.port: Invalid value: 3000000000: spec.template.spec.containers[0].readinessProbe.httpGet.port in body should be less than or equal to 65535`},
		{`"template": {"spec": {"containers": [{"name": "runner", "resources": {"limits": {"cpu": "abc"}}}]}}`, `spec.template.spec.containers[0].resources.limits.cpu: Invalid value: "abc": spec.template.spec.containers[0].resources.limits.cpu ` + quantity},
		// Whoever decodes it computes this power of ten, for longer than anybody waits.
		{`"template": {"spec": {"containers": [{"name": "runner", "resources": {"limits": {"cpu": "1e-999999999"}}}]}}`, `spec.template.spec.containers[0].resources.limits.cpu: Invalid value: "1e-999999999": spec.template.spec.containers[0].resources.limits.cpu ` + quantity},
	} {
		t.Run(c.spec, func(t *testing.T) {
			spec := c.spec
			if !strings.Contains(spec, `"template"`) {
				spec += ", " + podSpec
			}
			_, err := dryRun(t, ns.Name, "WarmPool", `"metadata": {"name": "x"}, "spec": {`+spec+`}`)
			refused(t, err, `WarmPool.warmpool.dev "x" is invalid: `+c.want)
		})
	}
}

// A claim's spec with one thing wrong, and what its author is told.
func TestABadClaimIsRefusedWithWhatToDo(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	const (
		poolName  = `spec: Invalid value: set spec.poolName to the name of a WarmPool of this namespace`
		lifetime  = `set spec.lifetime to hours, minutes and seconds, such as 1h30m, from 1s to 99999h`
		int32Only = `<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.`
	)
	for _, c := range []struct{ spec, want string }{
		{`"poolName": "The runners"`, poolName},
		{`"poolName": "-x"`, poolName},
		{`"poolName": "p", "lifetime": "1d"`, `spec.lifetime: Invalid value: "1d": ` + lifetime},
		{`"poolName": "p", "lifetime": "abc"`, `spec.lifetime: Invalid value: "abc": ` + lifetime},
		{`"poolName": "p", "lifetime": ""`, `spec.lifetime: Invalid value: "": ` + lifetime},
		{`"poolName": "p", "lifetime": "-5s"`, `spec.lifetime: Invalid value: "-5s": ` + lifetime},
		{`"poolName": "p", "lifetime": "0s"`, `spec.lifetime: Invalid value: "0s": ` + lifetime},
		{`"poolName": "p", "lifetime": "99999999999999h"`, `spec.lifetime: Invalid value: "99999999999999h": ` + lifetime},
		{`"poolName": "p", "priority": 3000000000`, int32Only + `priority`},
		{`"poolName": "p", "priority": -3000000000`, int32Only + `priority`},
		{`"poolName": "p", "timeoutSeconds": 3000000000`, int32Only + `timeoutSeconds`},
	} {
		t.Run(c.spec, func(t *testing.T) {
			_, err := dryRun(t, ns.Name, "PodClaim", `"metadata": {"name": "x"}, "spec": {`+c.spec+`}`)
			refused(t, err, `PodClaim.warmpool.dev "x" is invalid: `+c.want)
		})
	}
}

// What stands just within the rules, and what other tools write, is taken.
func TestWhatIsWithinTheRulesIsTaken(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	for _, c := range []struct{ kind, spec string }{
		{"WarmPool", `"tolerance": 0`},
		{"WarmPool", `"tolerance": 2147483647`},
		{"WarmPool", `"tolerance": "100%"`},
		{"WarmPool", `"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}`},
		{"WarmPool", `"updateStrategy": {"rollingUpdate": {"maxUnavailable": "0%", "maxSurge": "1%"}}`},
		{"WarmPool", `"updateStrategy": {"rollingUpdate": {"maxSurge": 0}}`},
		{"WarmPool", `"updateStrategy": {"rollingUpdate": null, "type": "Recreate"}`},
		{"WarmPool", `"updateStrategy": {"type": "OnHandOut"}`},
		{"WarmPool", `"minReadySeconds": 599`},
		{"WarmPool", `"minReadySeconds": 6000, "progressDeadlineSeconds": 0`},
		{"WarmPool", `"maxIdleSeconds": 31, "minReadySeconds": 30`},
		{"WarmPool", `"replicas": 100, "maxSize": 10`}, // an HPA scales beyond the limit: clamped
		{"WarmPool", `"claimLifetime": {}`},
		{"WarmPool", `"claimLifetime": {"default": "90m", "maximum": "1.5h"}`},
		{"PodClaim", `"poolName": "runners.of-team-1"`},
		{"PodClaim", `"poolName": "p", "lifetime": "1s"`},
		{"PodClaim", `"poolName": "p", "lifetime": "99999h"`},
		{"PodClaim", `"poolName": "p", "lifetime": "1h0m0s"`}, // how Go writes 1h
		{"PodClaim", `"poolName": "p", "lifetime": "1.5s"`},   // and 1500ms
		{"PodClaim", `"poolName": "p", "priority": -2147483648`},
	} {
		t.Run(c.spec, func(t *testing.T) {
			spec := c.spec
			if c.kind == "WarmPool" {
				spec += ", " + podSpec
			}
			if _, err := dryRun(t, ns.Name, c.kind, `"metadata": {"name": "x"}, "spec": {`+spec+`}`); err != nil {
				t.Error(err)
			}
		})
	}
}

// Somebody tries a manifest before he applies it.
func TestKubectlDryRunShowsWhatToDo(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	manifest := filepath.Join(t.TempDir(), "pool.yaml")
	if err := os.WriteFile(manifest, []byte(`{"apiVersion": "warmpool.dev/v1alpha1", "kind": "WarmPool", "metadata": {"name": "runners"}, "spec": {
		"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0}}, "toleranse": 1, `+podSpec+`}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ flag, want string }{
		{"--validate=strict", `unknown field "spec.toleranse"`},
		{"--validate=ignore", `The WarmPool "runners" is invalid: spec.updateStrategy.rollingUpdate: Invalid value: set maxUnavailable or maxSurge of spec.updateStrategy.rollingUpdate to more than 0, or no Pod can ever be replaced`},
	} {
		output, err := ns.TryKubectl("apply", "--dry-run=server", c.flag, "--filename="+manifest)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("kubectl apply %s: %s (%v), want it to say %q", c.flag, output, err, c.want)
		}
	}
	if _, err := ns.TryKubectl("get", "warmpool", "runners"); err == nil {
		t.Error("a dry run has created the pool")
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
		"the lifetime of a claim":    {`{"spec": {"lifetime": "99h"}}`, nil, changedSpec},
		"the timeout of a claim":     {`{"spec": {"timeoutSeconds": 99}}`, nil, changedSpec},
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
