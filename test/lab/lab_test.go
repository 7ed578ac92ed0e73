package lab

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"warmpool.dev/controller/test/environment"
)

var (
	writeDocs = flag.Bool("lab.write", false, "run the whole lab, and write docs/lab.md and docs/lab.svg")
	onlyRow   = flag.String("lab.row", "", "run this row of the lab alone, and write nothing")
	times     = flag.Int("lab.times", 3, "how often each story is told with the guard, and without")
)

var env *environment.Environment

func TestMain(m *testing.M) {
	os.Exit(environment.RunTests(m, func(e *environment.Environment) { env = e }))
}

// The whole lab. Whatever guard is taken out, there is harm, and with it there is none.
func TestLab(t *testing.T) {
	if !*writeDocs && *onlyRow == "" {
		t.Skip("minutes; make lab runs it")
	}
	begun := time.Now()
	all := rows()
	found := make([]*findings, len(all))
	var mu sync.Mutex // for what is printed
	t.Run("rows", func(t *testing.T) {
		for i, r := range all {
			if *onlyRow != "" && *onlyRow != r.guard {
				continue
			}
			t.Run(r.guard, func(t *testing.T) {
				t.Parallel()
				found[i] = experiment(t, r, *times)
				mu.Lock()
				defer mu.Unlock()
				fmt.Printf("%4.0f s  %s\n           without: %s\n           with:    %s\n", time.Since(begun).Seconds(), r.guard, found[i].without, found[i].with)
			})
		}
	})
	if t.Failed() || !*writeDocs {
		return
	}
	version, err := env.Kube.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if err := write(env.Repository, "Kubernetes "+version.GitVersion, found, *times); err != nil {
		t.Fatal(err)
	}
}

// One row of the lab, and its picture, so that the lab can't rot.
func TestWithoutTheLedgerPodsAreCreatedAgain(t *testing.T) {
	t.Parallel()
	f := experiment(t, ledgerRow(), 1)
	if t.Failed() {
		return
	}
	picture := xml.NewDecoder(bytes.NewReader(draw(f.picture[0], f.picture[1], f.creates)))
	for {
		_, err := picture.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("the picture isn't well-formed: %v", err)
		}
	}
}

// experiment tells a row's story with and without its guard. It fails the test if there is no
// harm without it, or some with it.
func experiment(t *testing.T, r row, times int) *findings {
	t.Helper()
	f := &findings{row: r}
	without := build(t, append(append([]edit{}, r.both...), r.out...))
	with := build(t, r.both)
	for n := range times {
		t.Run(fmt.Sprintf("without-%d", n), func(t *testing.T) { f.without = append(f.without, tell(t, r, without, &f.picture[0])) })
		t.Run(fmt.Sprintf("with-%d", n), func(t *testing.T) {
			result := tell(t, r, with, &f.picture[1])
			f.with = append(f.with, result)
			if len(result.broken) > 0 || result.stuck {
				t.Errorf("harm was done although nothing was taken out: %s", results{result})
			}
		})
	}
	if len(f.without) == times && len(f.with) == times && !f.without.worseThan(f.with) {
		t.Errorf("nothing is worse without it: without %s; with %s", f.without, f.with)
	}
	return f
}

// build builds the controller with the edits made. Without any it is the product.
func build(t *testing.T, edits []edit) string {
	t.Helper()
	if len(edits) == 0 {
		return ""
	}
	file, err := overlay(env.Repository, t.TempDir(), edits)
	if err != nil {
		t.Fatal(err)
	}
	return environment.BuildController(t, file)
}

// tell tells a row's story once.
func tell(t *testing.T, r row, binary string, picture *shot) result {
	t.Helper()
	s := newTelling(t, env, binary)
	r.story(s)
	s.end()
	result, h, logs := s.measure(r.creates, r.deletes)
	if picture.history == nil {
		*picture = shot{h, logs[0], s.from}
	}
	return result
}

// Every edit finds its line, and what it makes passes the compiler's checks: if it doesn't,
// the lab is to be adapted.
func TestEveryEditFitsTheSources(t *testing.T) {
	t.Parallel()
	c := newChecker(t, env.Repository)
	for _, r := range rows() {
		t.Run(r.guard, func(t *testing.T) {
			edits := append(append([]edit{}, r.both...), r.out...)
			file, err := overlay(env.Repository, t.TempDir(), edits)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range edits {
				if err := c.check(filepath.Dir(e.file), file); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
