package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/test/environment"
)

// The example of artifacts/examples/hpa, with the real autoscaler. It asks for the
// metrics every fifteen seconds, and so the test takes a minute.
func TestAnAutoscalerFollowsTheClaims(t *testing.T) {
	t.Parallel()
	// The API service of the metrics is there for all namespaces, and while nobody serves
	// it no namespace can be deleted: so not on the control plane that others use.
	own := environment.ForTestInstalled(t, controlplane.Options{})
	ns := own.Namespace(t)
	ns.Judge()
	ns.StartController()
	serveMetrics(t, own, ns)
	example := filepath.Join("artifacts", "examples", "hpa")
	ns.Kubectl("apply", "--filename="+filepath.Join(example, "warmpool.yaml"), "--filename="+filepath.Join(example, "hpa.yaml"))

	t.Log("four claims wait: the autoscaler asks for as many idle Pods")
	var claims []string
	claim := func() {
		claims = append(claims, fmt.Sprintf("session-%d", len(claims)))
		ns.CreateClaim(environment.Claim(claims[len(claims)-1], "browsers"))
	}
	for range 4 {
		claim()
	}
	waitReplicas(ns, 4)
	ns.WaitPods(4 + 4)

	t.Log("eight wait: what it asks for is more than maxSize, and isn't refused")
	for range 4 {
		claim()
	}
	waitReplicas(ns, 8)
	ns.Eventually("the pool to be at its capacity", func() error {
		if pool := ns.Pool("browsers"); !meta.IsStatusConditionTrue(pool.Status.Conditions, v1alpha1.PoolAtCapacity) {
			return fmt.Errorf("its conditions are %v", pool.Status.Conditions)
		}
		return nil
	})
	ns.WaitPods(12) // that there were never more is judged in the end

	t.Log("the claims are bound: the scale subresource counts and selects idle Pods alone")
	ns.StartKubelet()
	ns.WaitBound(claims...)
	ns.WaitPool("browsers", 12-8, 8)
	scale := readScale(t, own, ns)
	idle := strings.Fields(ns.Kubectl("get", "pods", "--output=name", "--selector="+scale.Status.Selector))
	if scale.Spec.Replicas != 8 || scale.Status.Replicas != 4 || len(idle) != 4 {
		t.Errorf("the scale is %+v, and its selector finds %v; want 8 asked for, and 4", scale, idle)
	}

	t.Log("no claim waits, eight Pods are in use: two idle ones are enough")
	ns.Kubectl("patch", "hpa", "browsers", "--type=merge", `--patch={"spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":0}}}}`)
	waitReplicas(ns, 2)
	ns.WaitPool("browsers", 2, 8)
	ns.WaitBound(claims...)
	t.Log(ns.Kubectl("describe", "hpa", "browsers"))
}

// waitReplicas waits until the autoscaler has set spec.replicas of the pool.
func waitReplicas(ns *environment.Namespace, want int32) {
	ns.Eventually(fmt.Sprintf("the autoscaler to ask for %d idle Pods", want), func() error {
		if got := *ns.Pool("browsers").Spec.Replicas; got != want {
			return fmt.Errorf("the pool shall have %d\n%s", got, ns.Kubectl("describe", "hpa", "browsers"))
		}
		return nil
	})
}

// scale is what the test reads of autoscaling/v1 Scale.
type scale struct {
	Spec   struct{ Replicas int32 }
	Status struct {
		Replicas int32
		Selector string
	}
}

func readScale(t *testing.T, e *environment.Environment, ns *environment.Namespace) (s scale) {
	t.Helper()
	body, err := e.Warmpool.WarmpoolV1alpha1().RESTClient().Get().Namespace(ns.Name).
		Resource("warmpools").Name("browsers").SubResource("scale").DoRaw(t.Context())
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// serveMetrics plays the metrics adapter of the example: it serves custom.metrics.k8s.io
// from the status of the pools, which Prometheus and its adapter do a little later.
func serveMetrics(t *testing.T, e *environment.Environment, ns *environment.Namespace) {
	t.Helper()
	const root = "/apis/custom.metrics.k8s.io/v1beta2"
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+root, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: "custom.metrics.k8s.io/v1beta2",
		})
	})
	mux.HandleFunc("GET "+root+"/namespaces/{namespace}/warmpools.warmpool.dev/{pool}/{metric}", func(w http.ResponseWriter, r *http.Request) {
		pool, err := e.Warmpool.WarmpoolV1alpha1().WarmPools(r.PathValue("namespace")).Get(r.Context(), r.PathValue("pool"), metav1.GetOptions{})
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		values := map[string]int32{
			"warmpool_pending_claims":   pool.Status.PendingClaims,
			"warmpool_claimed_replicas": pool.Status.ClaimedReplicas,
		}
		answer(w, map[string]any{
			"kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2",
			"items": []any{map[string]any{
				"describedObject": map[string]any{"kind": "WarmPool", "apiVersion": "warmpool.dev/v1alpha1", "namespace": pool.Namespace, "name": pool.Name},
				"metric":          map[string]any{"name": r.PathValue("metric")},
				"timestamp":       metav1.Now(),
				"value":           fmt.Sprint(values[r.PathValue("metric")]),
			}},
		})
	})
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)

	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(t.TempDir(), "metrics.yaml")
	if err := os.WriteFile(manifest, []byte(fmt.Sprintf(metricsService, address.Port(), ns.Name)), 0o600); err != nil {
		t.Fatal(err)
	}
	ns.Kubectl("apply", "--filename="+manifest)
	ns.Kubectl("wait", "--for=condition=Available", "apiservice/v1beta2.custom.metrics.k8s.io", "--timeout=60s")
}

func answer(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(object); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// metricsService leads the API server to the test's own server, by way of a Service that
// stands for a name outside the cluster. It takes the port and the namespace.
const metricsService = `
apiVersion: v1
kind: Service
metadata:
  name: metrics
spec:
  type: ExternalName
  externalName: localhost
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata:
  name: v1beta2.custom.metrics.k8s.io
spec:
  group: custom.metrics.k8s.io
  version: v1beta2
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {name: metrics, port: %s, namespace: %s}
`
