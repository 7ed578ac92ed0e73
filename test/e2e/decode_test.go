package e2e

// One object that the API server takes and a Go client can't decode stops every informer
// of its kind, in all namespaces. The schemas are walked, so that a field that is added
// is tried too.

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/test/environment"
)

// schema is as much of a CRD's schema as is looked at here.
type schema struct {
	Type                 string             `json:"type"`
	Format               string             `json:"format"`
	Description          string             `json:"description"`
	Default              any                `json:"default"`
	Enum                 []any              `json:"enum"`
	Properties           map[string]*schema `json:"properties"`
	AdditionalProperties *schema            `json:"additionalProperties"`
	Items                *schema            `json:"items"`
	Required             []string           `json:"required"`
	IntOrString          bool               `json:"x-kubernetes-int-or-string"`
}

// readSchema reads the schema of a kind from its CRD in artifacts/crds.
func readSchema(t *testing.T, plural string) *schema {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "artifacts", "crds", "warmpool.dev_"+plural+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema *schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &crd); err != nil {
		t.Fatal(err)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// smallest is a value that the schema takes, with what is required alone.
func (s *schema) smallest() any {
	switch {
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.IntOrString, s.Type == "integer":
		return 1
	case s.Type == "boolean":
		return true
	case s.Type == "array":
		return []any{}
	case s.Format == "date-time":
		return "2026-01-02T03:04:05Z"
	case s.Type == "string":
		return "x"
	}
	object := map[string]any{}
	for _, name := range s.Required {
		object[name] = s.Properties[name].smallest()
	}
	return object
}

// eachLeaf calls do for every place of a schema that holds a plain value. with puts a
// value there, in an object that is otherwise the smallest.
func (s *schema) eachLeaf(path string, with func(any) any, do func(path string, leaf *schema, with func(any) any)) {
	switch {
	case s.Items != nil:
		s.Items.eachLeaf(path+"[]", func(v any) any { return with([]any{v}) }, do)
	case s.AdditionalProperties != nil:
		s.AdditionalProperties.eachLeaf(path+"{}", func(v any) any { return with(map[string]any{"x": v}) }, do)
	case s.Properties != nil:
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			s.Properties[name].eachLeaf(path+"."+name, func(v any) any {
				object := s.smallest().(map[string]any)
				object[name] = v
				return with(object)
			}, do)
		}
	default:
		do(path, s, with)
	}
}

// awkward are values, in JSON, of which some pass for what the schema asks for and aren't
// what a Go type takes.
func (s *schema) awkward() []string {
	switch {
	case s.IntOrString:
		return []string{`3000000000`, `-3000000000`, `1e3`, `1.5`, `"abc"`, `"1e5.5"`, `"1e+"`, `""`, `null`}
	case s.Type == "integer":
		return []string{`3000000000`, `-3000000000`, `9223372036854775808`, `1e21`, `1e3`, `1.5`, `null`}
	case s.Format == "date-time":
		return []string{`"2026-01-02t03:04:05z"`, `"2026-01-02T03:04:05+99:99"`, `"2026-01-02 03:04:05Z"`, `"2026-01-02"`, `null`}
	default: // a string that may be something else in Go, such as a duration
		return []string{`"1d"`, `null`}
	}
}

// mustDecode checks that what the API server took of a request is what a Go client can
// decode. It returns whether it took it.
func mustDecode(t *testing.T, what string, answer []byte, err error, into any) bool {
	t.Helper()
	if err != nil {
		// A patch that isn't valid is answered by 422 too; what isn't even JSON of the kind by 400.
		if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
			t.Errorf("%s: %v", what, err)
		}
		return false
	}
	if err := json.Unmarshal(answer, into); err != nil {
		t.Errorf("the API server takes %s, but no Go client can decode it: %v", what, err)
	}
	return true
}

func TestWhatTheAPIServerTakesGoClientsCanDecode(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	taken, tried := 0, 0
	for kind, into := range map[string]func() any{
		"WarmPool": func() any { return &v1alpha1.WarmPool{} },
		"PodClaim": func() any { return &v1alpha1.PodClaim{} },
	} {
		root := readSchema(t, strings.ToLower(kind)+"s").Properties["spec"]
		root.eachLeaf("spec", func(v any) any { return v }, func(path string, leaf *schema, with func(any) any) {
			for _, value := range leaf.awkward() {
				spec := complete(kind, with(json.RawMessage(value)).(map[string]any))
				fields, err := json.Marshal(spec)
				if err != nil {
					t.Fatal(err)
				}
				answer, err := dryRun(t, ns.Name, kind, `"metadata": {"name": "x"}, "spec": `+string(fields))
				tried++
				if mustDecode(t, fmt.Sprintf("%s %s: %s", kind, path, value), answer, err, into()) {
					taken++
				}
			}
		})
	}
	t.Logf("%d values were tried, %d of them taken", tried, taken)
	// Most places of a template take an empty string and null; else the walk went wrong.
	if taken < 1000 || tried-taken < 1000 {
		t.Errorf("of %d values %d were taken: most of them can't have been tried where they belong", tried, taken)
	}
}

// complete adds to a spec what it needs to be taken.
func complete(kind string, spec map[string]any) map[string]any {
	if kind == "PodClaim" {
		if spec["poolName"] == nil {
			spec["poolName"] = "x"
		}
		return spec
	}
	template, _ := spec["template"].(map[string]any)
	podSpec, _ := template["spec"].(map[string]any)
	if podSpec == nil {
		podSpec = map[string]any{}
	}
	if containers, _ := podSpec["containers"].([]any); len(containers) == 0 {
		podSpec["containers"] = []any{map[string]any{"name": "x"}}
	}
	if template == nil {
		template = map[string]any{}
	}
	template["spec"] = podSpec
	spec["template"] = template
	return spec
}

// A status too: whoever has the right to write it is not only the controller.
func TestWhatTheAPIServerTakesAsAStatusGoClientsCanDecode(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.CreatePool(environment.Pool("x", 1))
	ns.CreateClaim(environment.Claim("x", "none"))
	for plural, into := range map[string]func() any{
		"warmpools": func() any { return &v1alpha1.WarmPool{} },
		"podclaims": func() any { return &v1alpha1.PodClaim{} },
	} {
		root := readSchema(t, plural).Properties["status"]
		taken := 0
		root.eachLeaf("status", func(v any) any { return v }, func(path string, leaf *schema, with func(any) any) {
			for _, value := range append(leaf.awkward(), asJSON(t, leaf.smallest())) {
				patch := asJSON(t, map[string]any{"status": with(json.RawMessage(value))})
				answer, err := env.Warmpool.WarmpoolV1alpha1().RESTClient().Patch(types.MergePatchType).
					Namespace(ns.Name).Resource(plural).Name("x").SubResource("status").
					Param("dryRun", metav1.DryRunAll).Body([]byte(patch)).DoRaw(t.Context())
				if mustDecode(t, fmt.Sprintf("%s %s: %s", plural, path, value), answer, err, into()) {
					taken++
				}
			}
		})
		if taken < 15 {
			t.Errorf("%d values in a status of %s were taken, want at least the good one of each field", taken, plural)
		}
	}
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
