package lab

// A check that sources with a line taken out still compile, without compiling them: the
// packages that they import are compiled once, as they are.

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// checker checks the packages of a repository.
type checker struct {
	repository string
	files      *token.FileSet
	importer   types.Importer
}

// newChecker compiles what the repository's packages import.
func newChecker(t *testing.T, repository string) *checker {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".")
	cmd.Dir = repository
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(output)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	c := &checker{repository: repository, files: token.NewFileSet()}
	c.importer = importer.ForCompiler(c.files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return c
}

// check checks one package, as an overlay changes it. An edit doesn't change what a package
// exports, so the others needn't be.
func (c *checker) check(folder, overlay string) error {
	content, err := os.ReadFile(overlay)
	if err != nil {
		return err
	}
	var replaced struct{ Replace map[string]string }
	if err := json.Unmarshal(content, &replaced); err != nil {
		return err
	}
	names, err := filepath.Glob(filepath.Join(c.repository, folder, "*.go"))
	if err != nil {
		return err
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if other := replaced.Replace[name]; other != "" {
			name = other
		}
		file, err := parser.ParseFile(c.files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	config := types.Config{Importer: c.importer}
	if _, err := config.Check(folder, c.files, files, nil); err != nil {
		return fmt.Errorf("%w: adapt the lab", err)
	}
	return nil
}
