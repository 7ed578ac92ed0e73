// Command trimcrd changes generated CRDs, in place, in two ways.
//
// It takes the descriptions of the PodTemplateSpec out. They repeat what kubectl
// explain pod.spec says and make the CRD too large for kubectl apply, which keeps a
// copy of it in an annotation of at most 256 KiB. The descriptions of our own fields
// stay.
//
// And it has the schema refuse what the Go types can't hold: see tighten.go.
package main

import (
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	for _, path := range os.Args[1:] {
		if err := trim(path); err != nil {
			fmt.Fprintf(os.Stderr, "trimcrd: %s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

func trim(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return err
	}
	trimTemplates(crd)
	tightenTimes(crd)
	out, err := yaml.Marshal(crd)
	if err != nil {
		return err
	}
	// controller-gen writes a document marker; keep it.
	if strings.HasPrefix(string(data), "---\n") {
		out = append([]byte("---\n"), out...)
	}
	return os.WriteFile(path, out, 0o644)
}

// trimTemplates looks for every property called template and removes the
// descriptions of all that it contains, but not its own.
func trimTemplates(node any) {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			if template, ok := value.(map[string]any); ok && key == "template" && template["properties"] != nil {
				removeDescriptions(template["properties"])
				tightenTemplate(template["properties"])
				continue
			}
			trimTemplates(value)
		}
	case []any:
		for _, value := range node {
			trimTemplates(value)
		}
	}
}

func removeDescriptions(node any) {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			// A schema's description is a string; a property that happens to
			// be called description is a schema, thus a map.
			if _, isText := value.(string); isText && key == "description" {
				delete(node, key)
				continue
			}
			removeDescriptions(value)
		}
	case []any:
		for _, value := range node {
			removeDescriptions(value)
		}
	}
}
