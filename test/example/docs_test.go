package main

// What docs/freshness.md shows is what compiles here. After a change:
//
//	go test ./example -run Document -update

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"warmpool.dev/controller/pkg/freshness"
)

const document = "../../docs/freshness.md"

var update = flag.Bool("update", false, "write the code into "+document)

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// block is a block of Go in the document, with the comment before it that says where it is
// from: a file of this folder and the marker in it.
var block = regexp.MustCompile("(?:<!-- test/example/(\\S+): (.+) -->\n)?```go\n((?s:.*?))```\n")

// region is what stands in a file between two markers.
func region(t *testing.T, file, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(read(t, file), "// docs: "+name+"\n")
	text, _, ended := strings.Cut(rest, "// docs: end\n")
	if !found || !ended {
		t.Fatalf("%s has no region %q", file, name)
	}
	return strings.Trim(text, "\n") + "\n"
}

func TestTheDocumentShowsTheGoThatCompiles(t *testing.T) {
	have, shown := read(t, document), map[string]bool{}
	want := block.ReplaceAllStringFunc(have, func(found string) string {
		match := block.FindStringSubmatch(found)
		file, name := match[1], match[2]
		if file == "" {
			t.Errorf("a block of Go doesn't say where it is from:\n%s", found)
			return found
		}
		shown[name] = true
		return "<!-- test/example/" + file + ": " + name + " -->\n```go\n" + region(t, file, name) + "```\n"
	})
	if *update {
		if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if have != want {
		t.Errorf("the Go in %s isn't that of test/example (-want +have):\n%s", document, cmp.Diff(want, have))
	}
	for _, name := range []string{"all of them", "reconcile", "gate", "feed", "ledger", "fence", "term", "watermark"} {
		if !shown[name] {
			t.Errorf("the document doesn't show %q", name)
		}
	}
}

func TestAllGuardsAreTakenInAboutFortyLines(t *testing.T) {
	if lines := strings.Count(region(t, "controller.go", "all of them"), "\n"); lines > 44 {
		t.Errorf("it takes %d lines, want at most 44", lines)
	}
}

func TestTheDocumentNamesTheFileOfEachGuard(t *testing.T) {
	const folder = "../../pkg/freshness/"
	files, err := filepath.Glob(folder + "*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s: %v", folder, err)
	}
	text := read(t, document)
	for _, file := range files {
		name := filepath.Base(file)
		if strings.Contains(read(t, file), "\n// Closes") && !strings.Contains(text, "`"+name+"`") {
			t.Errorf("the document doesn't name %s, which closes something", name)
		}
	}
}

// metricName finds names of metrics in the document, without what Prometheus adds to them.
var metricName = regexp.MustCompile(`\b(?:freshness|go)_[a-z_]+[a-z]`)

func TestTheDocumentNamesTheMetricsThatThereAre(t *testing.T) {
	descriptions := make(chan *prometheus.Desc, 1000)
	freshness.NewMetrics().Describe(descriptions)
	own := len(descriptions)
	freshness.RuntimeCollector().Describe(descriptions)
	close(descriptions)
	exist, named := map[string]bool{}, map[string]bool{}
	for _, name := range metricName.FindAllString(read(t, document), -1) {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, suffix)
		}
		named[name] = true
	}
	fqName := regexp.MustCompile(`fqName: "([^"]+)"`)
	for i := 0; len(descriptions) > 0; i++ {
		name := fqName.FindStringSubmatch((<-descriptions).String())[1]
		exist[name] = true
		if i < own && !named[name] {
			t.Errorf("the document doesn't name %s", name)
		}
	}
	for name := range named {
		if !exist[name] {
			t.Errorf("the document names %s, which isn't there", name)
		}
	}
}
