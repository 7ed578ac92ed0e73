package controlplane

// Control planes for tests: one of the test's own, or one that packages share.

import (
	"context"
	"fmt"
	"os"
)

// SharedVariable is the environment variable that names the folder of a control plane
// for several test packages to share.
const SharedVariable = "WARMPOOL_CONTROLPLANE"

// TB is the part of testing.TB that ForTest needs.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// ForTest starts a control plane for one test, which may break it. When the test ends
// it is stopped, and if the test failed the ends of the logs are printed.
func ForTest(t TB, options Options) *ControlPlane {
	t.Helper()
	cp, err := startBuilt(t.Context(), options)
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	t.Cleanup(func() {
		t.Helper()
		if t.Failed() {
			t.Logf("%s", cp.LogTails(tailLines))
		}
		if err := cp.Stop(); err != nil {
			t.Errorf("%v", err)
		}
	})
	return cp
}

// Shared attaches to the control plane that WARMPOOL_CONTROLPLANE names. Without the
// variable it starts one by the options. Either way the caller calls Stop in the end,
// which leaves a shared one running. It is an error if the shared one lacks a
// component, or a user, that the options ask for.
func Shared(ctx context.Context, options Options) (*ControlPlane, error) {
	dir := os.Getenv(SharedVariable)
	if dir == "" {
		return startBuilt(ctx, options)
	}
	cp, err := Attach(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", SharedVariable, err)
	}
	if err := cp.offers(options.withDefaults()); err != nil {
		return nil, fmt.Errorf("%s: the control plane in %s %w: bring up another, or unset the variable", SharedVariable, dir, err)
	}
	return cp, nil
}

// offers says what of the options the control plane lacks.
func (cp *ControlPlane) offers(o Options) error {
	switch {
	case len(cp.APIServers) < o.APIServers:
		return fmt.Errorf("has %d API servers, not %d", len(cp.APIServers), o.APIServers)
	case o.EtcdLinks:
		return fmt.Errorf("has no links to etcd that this program could cut")
	case o.ControllerManager && cp.ControllerManager == nil:
		return fmt.Errorf("has no controller manager")
	case o.Scheduler && cp.Scheduler == nil:
		return fmt.Errorf("has no scheduler")
	case cp.options.Nodes < o.Nodes:
		return fmt.Errorf("has %d nodes, not %d", cp.options.Nodes, o.Nodes)
	}
	for _, u := range o.Users {
		if _, err := find(cp.accounts, u.Name); err != nil {
			return fmt.Errorf("lacks a user: %w", err)
		}
	}
	return nil
}

// RunTests is the whole of a TestMain whose package shares a control plane: it gets
// one from Shared, hands it to use, runs the tests, prints the ends of the logs if one
// failed, stops the control plane, and returns the exit code.
//
//	var cp *controlplane.ControlPlane
//
//	func TestMain(m *testing.M) {
//		os.Exit(controlplane.RunTests(m, controlplane.Options{}, func(c *controlplane.ControlPlane) { cp = c }))
//	}
func RunTests(m interface{ Run() int }, options Options, use func(*ControlPlane)) int {
	cp, err := Shared(context.Background(), options)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	use(cp)
	code := m.Run()
	if code != 0 {
		fmt.Fprint(os.Stderr, cp.LogTails(tailLines))
	}
	if err := cp.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// startBuilt is Start, except that a build, which takes minutes, is never silent.
func startBuilt(ctx context.Context, options Options) (*ControlPlane, error) {
	if options.Binaries == "" {
		binaries, err := Build(ctx, os.Stderr)
		if err != nil {
			return nil, err
		}
		options.Binaries = binaries
	}
	return Start(ctx, options)
}
