package lab

// docs/lab.md, as it is written.

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/template"
	"time"

	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

// findings are what the lab has found of one row.
type findings struct {
	row
	without, with results
	// picture are the first telling without the guard and the first with it.
	picture [2]shot
}

// shot is what a picture is drawn of.
type shot struct {
	history *history.History
	log     faultproxy.Log
	from    time.Time
}

//go:embed lab.md.tmpl
var pageText string

// page is the whole page.
var page = template.Must(template.New("lab.md").Parse(pageText))

// write writes the page and the picture into docs. machine says where it was measured.
func write(repository, machine string, found []*findings, times int) error {
	var text strings.Builder
	data := map[string]any{
		"Machine": fmt.Sprintf("%d cores, %s/%s, %s, %s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), machine, time.Now().Format("January 2006")),
		"Times":   times, "Patience": patience.Seconds(),
		"Guards": found[:len(guardRows())], "SecondLine": found[len(guardRows()):],
	}
	if err := page.Execute(&text, data); err != nil {
		return fmt.Errorf("write the lab's page: %w", err)
	}
	docs := filepath.Join(repository, "docs")
	if err := os.WriteFile(filepath.Join(docs, "lab.md"), []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("write the lab's page: %w", err)
	}
	picture := draw(found[0].picture[0], found[0].picture[1], found[0].creates)
	if err := os.WriteFile(filepath.Join(docs, "lab.svg"), picture, 0o644); err != nil {
		return fmt.Errorf("write the lab's picture: %w", err)
	}
	tables, _, _ := strings.Cut(text.String(), "\n## Guards without")
	fmt.Println(tables)
	return nil
}

// Anchor is where the page tells more of the row, as it is linked to.
func (f *findings) Anchor() string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r >= 'a' && r <= 'z' || r == '-':
			return r
		default:
			return -1
		}
	}, strings.ToLower(f.guard))
}

// Guard, File, Fault, Remark, Without and With are for the template.
func (f *findings) Guard() string   { return f.guard }
func (f *findings) File() string    { return f.file }
func (f *findings) Fault() string   { return f.fault }
func (f *findings) Remark() string  { return f.remark }
func (f *findings) Without() string { return f.without.String() }
func (f *findings) With() string    { return f.with.String() }

// TakenOut is what was taken out, in a cell of a table.
func (f *findings) TakenOut() string {
	if f.taken != "" {
		return f.taken
	}
	var lines []string
	for _, e := range f.out {
		line, _, _ := strings.Cut(strings.TrimSpace(e.old), "\n")
		lines = append(lines, "`"+strings.TrimSuffix(line, " {")+"`")
	}
	return strings.Join(lines, ", ")
}

// Diff is all of it.
func (f *findings) Diff() string {
	var text strings.Builder
	for _, e := range append(append([]edit{}, f.both...), f.out...) {
		fmt.Fprintf(&text, "%s\n", e.file)
		for line := range strings.Lines(strings.TrimSuffix(e.old, "\n") + "\n") {
			fmt.Fprintf(&text, "-%s", line)
		}
		if e.new == "" {
			continue
		}
		for line := range strings.Lines(strings.TrimSuffix(e.new, "\n") + "\n") {
			fmt.Fprintf(&text, "+%s", line)
		}
	}
	return text.String()
}
