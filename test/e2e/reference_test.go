package e2e

// docs/reference.md says what the CRDs and the code say.

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// readRepository reads a file of the repository.
func readRepository(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{env.Repository}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// chapter is what stands in the reference under a heading of the second level.
func chapter(t *testing.T, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(readRepository(t, "docs", "reference.md"), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/reference.md has no chapter %q", heading)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	return text
}

// entry is a field in the reference: its path, what its default is, and an example.
var entry = regexp.MustCompile("(?m)^#### `([\\w.]+)`\n\n(?:(Required)\\. |Default: `?([^`]+?)`?\\. )?(?:(?:Unit|Form): [^.]+\\. )?Example: `(.+)`\\.\n\n[^\n]")

// fields are the paths of all fields of spec and status, but for what is in a template,
// in a list or in a map.
func (s *schema) fields(path string, found map[string]*schema) {
	for name, field := range s.Properties {
		found[path+"."+name] = field
		if name != "template" {
			field.fields(path+"."+name, found)
		}
	}
}

func TestTheReferenceHasEveryFieldAndItsDefault(t *testing.T) {
	t.Parallel()
	for kind, plural := range map[string]string{"WarmPool": "warmpools", "PodClaim": "podclaims"} {
		root, fields := readSchema(t, plural), map[string]*schema{}
		for _, part := range []string{"spec", "status"} {
			root.Properties[part].fields(part, fields)
		}
		for _, match := range entry.FindAllStringSubmatch(chapter(t, kind), -1) {
			path, required, told := match[1], match[2] != "", match[3]
			field := fields[path]
			if field == nil {
				t.Errorf("the reference has %s %s, which isn't there, or has it twice", kind, path)
				continue
			}
			delete(fields, path)
			switch {
			case strings.HasPrefix(path, "status."):
				if told != "" {
					t.Errorf("the reference gives %s %s, a status, the default %s", kind, path, told)
				}
			case required:
				if path != "spec.template" && path != "spec.poolName" {
					t.Errorf("the reference says that %s %s is required", kind, path)
				}
			case told != field.defaultText():
				t.Errorf("the reference says that the default of %s %s is %q, the CRD says %q", kind, path, told, field.defaultText())
			}
		}
		for _, path := range slices.Sorted(maps.Keys(fields)) {
			t.Errorf("the reference lacks %s %s, or its first line has another form", kind, path)
		}
	}
}

// defaultText is a field's default as the reference writes it. What has none in the schema
// is nothing: 0, false, or none at all.
func (s *schema) defaultText() string {
	switch value := s.Default.(type) {
	case nil:
	case string:
		return value
	default:
		text, err := json.Marshal(value)
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
	switch s.Type {
	case "integer":
		return "0"
	case "boolean":
		return "false"
	default:
		return "none"
	}
}

// The API server takes each example where it belongs, and leaves nothing of it out.
func TestTheExamplesOfTheReferenceAreTaken(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	for _, kind := range []string{"WarmPool", "PodClaim"} {
		for _, match := range entry.FindAllStringSubmatch(chapter(t, kind), -1) {
			path, example := match[1], match[4]
			var object map[string]any
			if err := yaml.Unmarshal([]byte(example), &object); err != nil {
				t.Errorf("the example of %s %s: %v", kind, path, err)
				continue
			}
			name := path[strings.LastIndex(path, ".")+1:]
			if _, ok := object[name]; !ok || len(object) != 1 {
				t.Errorf("the example of %s %s is %s, want %s alone", kind, path, example, name)
			}
			want, wrapped := object[name], object
			for parent := strings.TrimSuffix(path, "."+name); strings.Contains(parent, "."); {
				cut := strings.LastIndex(parent, ".")
				wrapped = map[string]any{parent[cut+1:]: wrapped}
				parent = parent[:cut]
			}
			if strings.HasPrefix(path, "status.") {
				continue // a status isn't taken from who creates an object
			}
			fields, err := json.Marshal(complete(kind, wrapped))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := dryRun(t, ns.Name, kind, `"metadata": {"name": "x"}, "spec": `+string(fields))
			if err != nil {
				t.Errorf("the example of %s %s: %v", kind, path, err)
				continue
			}
			if got := at(t, answer, path); !contains(got, want) {
				t.Errorf("of the example of %s %s, %s, the API server takes %v", kind, path, example, got)
			}
		}
	}
}

// at is what an object, in JSON, has at a path.
func at(t *testing.T, object []byte, path string) any {
	t.Helper()
	var value any
	if err := yaml.Unmarshal(object, &value); err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(path, ".") {
		value = value.(map[string]any)[name]
	}
	return value
}

// contains tells whether have is want, but for fields of maps that only have has.
func contains(have, want any) bool {
	wantMap, ok := want.(map[string]any)
	if !ok {
		return reflect.DeepEqual(have, want)
	}
	haveMap, ok := have.(map[string]any)
	for name, value := range wantMap {
		ok = ok && contains(haveMap[name], value)
	}
	return ok
}

// row is a row of a table of conditions. The first cell is empty where it is that of the
// row above.
var row = regexp.MustCompile("(?m)^\\| (?:`(\\w+)`)? ?\\| (?:True|False|Unknown) \\| `(\\w+)` \\| .+ \\| .+ \\|$")

// The reasons and conditions are constants beside the types.
func TestTheReferenceHasEveryConditionAndReason(t *testing.T) {
	t.Parallel()
	for kind, file := range map[string]string{"WarmPool": "warmpool_types.go", "PodClaim": "podclaim_types.go"} {
		source := readRepository(t, "pkg", "apis", "warmpool", "v1alpha1", file)
		want, told := map[string]bool{}, map[string]bool{}
		for _, match := range regexp.MustCompile(`(?m)^\s(?:Pool|Claim|Reason)\w+\s+= "(\w+)"`).FindAllStringSubmatch(source, -1) {
			want[match[1]] = true
		}
		for _, match := range row.FindAllStringSubmatch(chapter(t, kind), -1) {
			told[match[1]], told[match[2]] = true, true
		}
		delete(told, "")
		for name := range want {
			if !told[name] {
				t.Errorf("the reference lacks %s of a %s", name, kind)
			}
		}
		for name := range told {
			if !want[name] {
				t.Errorf("the reference has %s of a %s, which isn't there", name, kind)
			}
		}
	}
}

func TestTheReferenceHasEveryLabel(t *testing.T) {
	t.Parallel()
	text := chapter(t, "Labels")
	labels := regexp.MustCompile(`(?m)^\sLabel\w+\s+= LabelPrefix \+ "([\w-]+)"`).FindAllStringSubmatch(readRepository(t, "pkg", "apis", "warmpool", "v1alpha1", "labels.go"), -1)
	if len(labels) == 0 {
		t.Fatal("no labels found")
	}
	for _, match := range labels {
		if label := "warmpool.dev/" + match[1]; !strings.Contains(text, "| `"+label+"` |") {
			t.Errorf("the reference lacks the label %s", label)
		}
	}
}
