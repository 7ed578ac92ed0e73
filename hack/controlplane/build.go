package controlplane

// Making the six binaries: once, by one process at a time, and never again until
// the list of modules, the flags or the Go version changes.

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// kubernetesVersion is what the binaries call themselves. It is the version of
// k8s.io/kubernetes in components/go.mod; without it they say v0.0.0.
const kubernetesVersion = "v1.37.2"

// The binaries that Build makes.
const (
	etcdBinary              = "etcd"
	apiServerBinary         = "kube-apiserver"
	controllerManagerBinary = "kube-controller-manager"
	schedulerBinary         = "kube-scheduler"
	kubectlBinary           = "kubectl"
	kwokBinary              = "kwok"
)

// stagesFolder lies beside the binaries and holds kwok's rules for nodes and Pods.
const stagesFolder = "stages"

// kwokStages are the rules that kwok is given, as folders of its module's
// kustomize/stage: Pods become Ready and vanish at once, nodes become and stay Ready.
var kwokStages = []string{"pod/fast", "node/fast", "node/heartbeat-with-lease"}

// Build makes the six binaries in <repository>/bin/controlplane and returns that
// folder. The first time takes about eleven minutes on two cores; afterwards it is
// seconds if something changed, milliseconds if nothing did. Progress is told what
// happens, with a line every ten seconds. The repository is the one around the
// working directory. Safe to call from several processes at once: one builds, the
// others wait for it.
func Build(ctx context.Context, progress io.Writer) (string, error) {
	if progress == nil {
		progress = io.Discard
	}
	root, err := RepositoryRoot()
	if err != nil {
		return "", err
	}
	b := builder{
		module: filepath.Join(root, "hack", "controlplane", "components"),
		out:    filepath.Join(root, "bin", "controlplane"),
		flags:  []string{"-trimpath", "-ldflags", "-s -w -X k8s.io/component-base/version.gitVersion=" + kubernetesVersion},
		binaries: map[string]string{
			"server":                etcdBinary, // that is what etcd's module calls it
			apiServerBinary:         apiServerBinary,
			controllerManagerBinary: controllerManagerBinary,
			schedulerBinary:         schedulerBinary,
			kubectlBinary:           kubectlBinary,
			kwokBinary:              kwokBinary,
		},
		stagesModule: "sigs.k8s.io/kwok",
		stages:       kwokStages,
		progress:     progress,
	}
	return b.out, b.build(ctx)
}

// RepositoryRoot is the repository around the working directory: the first folder
// upwards that holds hack/controlplane/components/go.mod. So it is found from any
// module in the repository.
func RepositoryRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "hack", "controlplane", "components", "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("finding the repository: neither %s nor a folder above it holds hack/controlplane/components/go.mod: run from inside the repository", start)
		}
	}
}

// builder makes the tools of one Go module.
type builder struct {
	module       string            // folder of the go.mod that names the tools
	out          string            // folder for the binaries
	flags        []string          // of go build
	binaries     map[string]string // name that go build gives a tool → name in out
	stagesModule string            // module that holds kustomize/stage; empty: no stages
	stages       []string          // folders below it whose files to copy
	progress     io.Writer
}

func (b *builder) build(ctx context.Context) error {
	stamp, err := b.stamp()
	if err != nil {
		return fmt.Errorf("building the control plane: %w", err)
	}
	if b.upToDate(stamp) {
		return nil
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return fmt.Errorf("building the control plane: %w", err)
	}
	unlock, err := lockFile(ctx, filepath.Join(b.out, ".lock"), b.progress)
	if err != nil {
		return fmt.Errorf("building the control plane: %w", err)
	}
	defer unlock()
	if b.upToDate(stamp) { // by whoever held the lock
		return nil
	}
	if err := b.compile(ctx); err != nil {
		return fmt.Errorf("building the control plane: %w", err)
	}
	if err := b.copyStages(ctx); err != nil {
		return fmt.Errorf("building the control plane: %w", err)
	}
	if err := os.WriteFile(b.stampFile(), []byte(stamp), 0o644); err != nil {
		return fmt.Errorf("building the control plane: %w", err)
	}
	return nil
}

func (b *builder) stampFile() string { return filepath.Join(b.out, ".stamp") }

// stamp is a digest of all that decides what the binaries are.
func (b *builder) stamp() (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOOS, runtime.GOARCH, b.flags, b.binaries, b.stages)
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(b.module, name))
		if errors.Is(err, os.ErrNotExist) && name == "go.sum" {
			continue // a module that requires none has no sums
		}
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, name, len(content))
		h.Write(content)
	}
	return fmt.Sprintf("%x\n", h.Sum(nil)), nil
}

// upToDate says whether out holds all that a build with this stamp makes.
func (b *builder) upToDate(stamp string) bool {
	have, err := os.ReadFile(b.stampFile())
	if err != nil || string(have) != stamp {
		return false
	}
	for _, name := range b.binaries {
		if _, err := os.Stat(filepath.Join(b.out, name)); err != nil {
			return false
		}
	}
	if b.stagesModule != "" {
		files, err := filepath.Glob(filepath.Join(b.out, stagesFolder, "*.yaml"))
		return err == nil && len(files) > 0
	}
	return true
}

// compile builds into a folder of its own and then moves each binary into its
// place: so a binary is whole or not there, and one that runs is never written to.
func (b *builder) compile(ctx context.Context) error {
	if err := os.Remove(b.stampFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	staging, err := os.MkdirTemp(b.out, ".building-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(staging) }()

	m := newMeter(b.progress, time.Now())
	m.say("building the control plane's %d binaries into %s\n", len(b.binaries), b.out)
	stop := m.every(10 * time.Second)
	defer stop()

	list, err := b.goCommand(ctx, m, append(append([]string{"list"}, b.flags...), "-deps", "-f", staleFormat, "tool")...)
	if err != nil {
		return err
	}
	total := bytes.Count(list, []byte("\n"))
	m.setTotal(total)
	if total > 0 {
		m.say("%d packages to compile: all of Kubernetes takes about 11 minutes on 2 cores, once; after that it is seconds\n", total)
	}
	if _, err := b.goCommand(ctx, m, append(append([]string{"build", "-v"}, b.flags...), "-o", staging, "tool")...); err != nil {
		return err
	}
	for built, name := range b.binaries {
		if err := os.Rename(filepath.Join(staging, built), filepath.Join(b.out, name)); err != nil {
			return err
		}
	}
	m.say("built in %s\n", m.elapsed())
	return nil
}

// copyStages copies kwok's rules out of its module, which the build has downloaded.
func (b *builder) copyStages(ctx context.Context) error {
	if b.stagesModule == "" {
		return nil
	}
	dir, err := b.goCommand(ctx, newMeter(io.Discard, time.Now()), "list", "-m", "-f", "{{.Dir}}", b.stagesModule)
	if err != nil {
		return err
	}
	to := filepath.Join(b.out, stagesFolder)
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	for _, stage := range b.stages {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "kustomize", "stage", stage, "*.yaml"))
		if err != nil {
			return err
		}
		if len(files) == 0 {
			return fmt.Errorf("module %s has no files in kustomize/stage/%s", b.stagesModule, stage)
		}
		for _, file := range files {
			if filepath.Base(file) == "kustomization.yaml" {
				continue
			}
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(to, filepath.Base(file)), content, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// goCommand runs the go command in the tools' module and returns its output. What
// it says on the way goes to the meter.
func (b *builder) goCommand(ctx context.Context, m *meter, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.module
	cmd.Env = append(os.Environ(), "GOWORK=off", "PWD="+b.module)
	cmd.Stderr = m
	// Interrupted, the go command ends its compilers; killed, it would leave them.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("go %s in %s: %w", args[0], b.module, err)
		if said := m.complaints(); said != "" {
			err = fmt.Errorf("%w\n%s", err, indent(said))
		}
		return nil, err
	}
	return out, nil
}
