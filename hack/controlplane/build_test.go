package controlplane

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestBuildDoesNothingWhenNothingHasChanged(t *testing.T) {
	dir, err := Build(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(filepath.Join(dir, apiServerBinary))
	if err != nil {
		t.Fatal(err)
	}
	var progress bytes.Buffer
	begun := time.Now()
	if _, err := Build(t.Context(), &progress); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begun)
	t.Logf("it took %s", took)
	if took > time.Second {
		t.Errorf("it took %s, want milliseconds", took)
	}
	if progress.Len() > 0 {
		t.Errorf("it said %q, want nothing", progress.String())
	}
	after, err := os.Stat(filepath.Join(dir, apiServerBinary))
	if err != nil || !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) {
		t.Errorf("kube-apiserver was made again (%v)", err)
	}
}

func TestBuildMakesAllBinariesAndStages(t *testing.T) {
	dir, err := Build(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok",
		"stages/pod-ready.yaml", "stages/pod-complete.yaml", "stages/pod-delete.yaml",
		"stages/node-initialize.yaml", "stages/node-heartbeat-with-lease.yaml",
	} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s is missing or empty (%v)", name, err)
		}
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "kube-apiserver"), "--version").Output()
	if got := strings.TrimSpace(string(out)); err != nil || got != "Kubernetes v1.37.2" {
		t.Errorf("kube-apiserver calls itself %q (%v), want Kubernetes v1.37.2", got, err)
	}
}

func TestTheBinariesCallThemselvesWhatTheyAre(t *testing.T) {
	root, err := RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, "hack", "controlplane", "components", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "k8s.io/kubernetes " + kubernetesVersion + " //"; !strings.Contains(string(content), want) {
		t.Errorf("components/go.mod lacks %q: set kubernetesVersion to the version there", want)
	}
}

func TestOutsideTheRepositoryBuildSaysWhereToRun(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := Build(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "run from inside the repository") {
		t.Errorf("got %v, want an error that says where to run", err)
	}
}

// toyBuilder builds a module of one small tool.
func toyBuilder(t *testing.T, program string, progress io.Writer) *builder {
	t.Helper()
	dir := t.TempDir()
	b := &builder{
		module:   filepath.Join(dir, "module"),
		out:      filepath.Join(dir, "out"),
		binaries: map[string]string{"hello": "greeter"},
		progress: progress,
	}
	for name, content := range map[string]string{
		"go.mod":        "module toy.example\n\ngo 1.26.0\n\ntool toy.example/hello\n",
		"hello/main.go": program,
	} {
		path := filepath.Join(b.module, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

const toyProgram = "package main\n\nfunc main() { println(\"hello\") }\n"

func TestAChangedListOfModulesIsBuiltAgain(t *testing.T) {
	var progress bytes.Buffer
	b := toyBuilder(t, toyProgram, &progress)
	for i, change := range []func() error{
		func() error { return nil }, // the first build
		func() error {
			return os.WriteFile(filepath.Join(b.module, "go.mod"), []byte("module toy.example\n\ngo 1.26.0\n\ntool toy.example/hello // changed\n"), 0o600)
		},
		func() error { b.flags = []string{"-trimpath"}; return nil },
		func() error { return os.Remove(filepath.Join(b.out, "greeter")) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		progress.Reset()
		if err := b.build(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(progress.String(), "built in") {
			t.Errorf("change %d: it said %q, want a build", i, progress.String())
		}
		if out, err := exec.CommandContext(t.Context(), filepath.Join(b.out, "greeter")).CombinedOutput(); err != nil || string(out) != "hello\n" {
			t.Errorf("change %d: the binary printed %q (%v)", i, out, err)
		}
		progress.Reset()
		if err := b.build(t.Context()); err != nil || progress.Len() > 0 {
			t.Errorf("change %d: without a change it said %q (%v), want nothing", i, progress.String(), err)
		}
	}
	left, err := filepath.Glob(filepath.Join(b.out, ".building-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v are left (%v)", left, err)
	}
}

func TestTwoBuildsAtOnceAreOne(t *testing.T) {
	first := toyBuilder(t, toyProgram, nil)
	var said [2]bytes.Buffer
	var wg sync.WaitGroup
	for i := range said {
		b := *first
		b.progress = &said[i]
		wg.Go(func() {
			if err := b.build(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := strings.Count(said[0].String()+said[1].String(), "built in"); n != 1 {
		t.Errorf("it was built %d times, want once:\n%s\n%s", n, said[0].String(), said[1].String())
	}
}

func TestAFailedBuildQuotesTheCompiler(t *testing.T) {
	b := toyBuilder(t, "package main\n\nfunc main() { nonsense }\n", io.Discard)
	err := b.build(t.Context())
	if err == nil || !strings.Contains(err.Error(), "undefined: nonsense") {
		t.Errorf("got %v, want the compiler's words", err)
	}
	if stamp, err := b.stamp(); err != nil || b.upToDate(stamp) {
		t.Errorf("it counts as built (%v)", err)
	}
}

func TestALockIsWaitedForUntilTheContextEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockFile(t.Context(), path, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var progress bytes.Buffer
	if _, err := lockFile(ctx, path, &progress); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
	if strings.Count(progress.String(), "another process holds") != 1 {
		t.Errorf("it said %q, want once that it waits", progress.String())
	}
	unlock()
	again, err := lockFile(t.Context(), path, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestTheMeterCountsWhatTheGoCommandPrints(t *testing.T) {
	m := newMeter(io.Discard, time.Now())
	write := func(s string) {
		t.Helper()
		if n, err := m.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", s, n, err)
		}
	}
	check := func(want string) {
		t.Helper()
		if got := m.status(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	check("fetching modules, 0 so far")
	write("go: downloading k8s.io/api v0.37.2\ngo: downloa")
	write("ding k8s.io/client-go v0.37.2\n")
	check("fetching modules, 2 so far")
	m.setTotal(2)
	write("k8s.io/api/core/v1\n# k8s.io/api/apps/v1\n")
	check("1 of 2 packages compiled")
	write("k8s.io/api/apps/v1\n./x.go:1:2: undefined: y\n")
	check("everything compiled, linking")
	if got, want := m.complaints(), "# k8s.io/api/apps/v1\n./x.go:1:2: undefined: y"; got != want {
		t.Errorf("complaints: got %q, want %q", got, want)
	}
}

func TestTheMeterSpeaksAtEachInterval(t *testing.T) {
	var said bytes.Buffer
	m := newMeter(&said, time.Now())
	m.setTotal(7)
	stop := m.every(time.Millisecond)
	eventually(t, "two lines of progress", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return strings.Count(said.String(), "0 of 7 packages compiled\n") >= 2
	})
	stop()
}
