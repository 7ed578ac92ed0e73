package race

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// repository is this repository's folder, seen from here.
const repository = "../.."

// scenarioTable is where it says which test replays which scenario.
var scenarioTable = filepath.Join(repository, "docs", "scenarios.md")

var (
	scenarioRow    = regexp.MustCompile(`^\| \[(B\d+)\]\(https://\S+\) \|(.*)\|$`)
	scenarioNumber = regexp.MustCompile(`\bB\d+\b`)
	testName       = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
)

// A row of the table names a test that there is, or says why there is none; and a test that
// has a scenario's number is named in its row.
func TestTheTableOfScenariosNamesTheTestsThatThereAre(t *testing.T) {
	t.Parallel()
	replayedBy, err := readTable()
	if err != nil {
		t.Fatal(err)
	}
	docs, err := testsIn(repository)
	if err != nil {
		t.Fatal(err)
	}
	for number, names := range replayedBy {
		for _, name := range names {
			if _, ok := docs[name]; !ok {
				t.Errorf("%s is said to be replayed by %s, which doesn't exist", number, name)
			}
		}
	}
	own, err := testsIn(".")
	if err != nil {
		t.Fatal(err)
	}
	for name, doc := range own {
		for i, number := range scenarioNumber.FindAllString(doc, -1) {
			names, ok := replayedBy[number]
			switch {
			case !ok:
				t.Errorf("the comment of %s speaks of %s, of which there is no row", name, number)
			case i == 0 && strings.HasPrefix(doc, number) && !slices.Contains(names, name):
				t.Errorf("%s replays %s, and its row doesn't say so", name, number)
			}
		}
	}
}

// readTable returns the tests that the table names, by the numbers of the scenarios.
func readTable() (map[string][]string, error) {
	content, err := os.ReadFile(scenarioTable)
	if err != nil {
		return nil, fmt.Errorf("read the table of scenarios: %w", err)
	}
	replayedBy := map[string][]string{}
	for _, line := range strings.Split(string(content), "\n") {
		if !strings.HasPrefix(line, "| [") {
			continue
		}
		row := scenarioRow.FindStringSubmatch(line)
		if row == nil {
			return nil, fmt.Errorf("read a row of the table of scenarios: no number with an address: %s", line)
		}
		cells := strings.Split(row[2], " | ")
		const columns = 3 // without the number
		if len(cells) != columns || slices.ContainsFunc(cells, isOpen) {
			return nil, fmt.Errorf("read a row of the table of scenarios: a cell is missing or open: %s", line)
		}
		replayedBy[row[1]] = []string{}
		for _, name := range testName.FindAllStringSubmatch(cells[1], -1) {
			replayedBy[row[1]] = append(replayedBy[row[1]], name[1])
		}
	}
	return replayedBy, nil
}

func isOpen(cell string) bool { return strings.Trim(cell, " .…") == "" }

// testsIn returns the comments of all tests in a folder and below, by name. Modules of
// tools, which are in folders of their own, are left out.
func testsIn(folder string) (map[string]string, error) {
	docs := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "hack"}, entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse %s: %w", path, err)
		}
		for _, declaration := range file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				docs[f.Name.Name] = f.Doc.Text()
			}
		}
		return nil
	})
	return docs, err
}
