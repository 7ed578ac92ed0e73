package controlplane

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// pretendedTest is a test whose outcome the real test decides.
type pretendedTest struct {
	ctx      context.Context
	failed   bool
	log      strings.Builder
	cleanups []func()
}

func (p *pretendedTest) Helper()                  {}
func (p *pretendedTest) Context() context.Context { return p.ctx }
func (p *pretendedTest) Cleanup(f func())         { p.cleanups = append(p.cleanups, f) }
func (p *pretendedTest) Failed() bool             { return p.failed }
func (p *pretendedTest) Logf(format string, args ...any) {
	fmt.Fprintf(&p.log, format+"\n", args...)
}
func (p *pretendedTest) Errorf(format string, args ...any) {
	p.failed = true
	p.Logf(format, args...)
}
func (p *pretendedTest) Fatalf(format string, args ...any) { p.Errorf(format, args...) }

func TestForTestShowsTheLogsOfAFailedTestOnly(t *testing.T) {
	for _, failed := range []bool{false, true} {
		p := &pretendedTest{ctx: t.Context()}
		cp := ForTest(p, Options{})
		if cp == nil {
			t.Fatal(p.log.String())
		}
		p.failed = failed
		for _, f := range p.cleanups {
			f()
		}
		assertGone(t, cp.Dir)
		if p.failed != failed {
			t.Errorf("the end of the control plane failed the test: %s", p.log.String())
		}
		for _, want := range []string{"--- etcd (running), the end of", "--- kube-apiserver-0 (running), the end of"} {
			if got := strings.Contains(p.log.String(), want); got != failed {
				t.Errorf("failed %v, but %q in what was printed: %v\n%s", failed, want, got, p.log.String())
			}
		}
	}
}

func TestForTestFailsATestWhoseControlPlaneCannotStart(t *testing.T) {
	p := &pretendedTest{ctx: t.Context()}
	if cp := ForTest(p, Options{APIServerFlags: []string{"--no-such-flag"}}); cp != nil || !p.failed {
		t.Errorf("got %v, failed %v, want nothing and a failed test", cp, p.failed)
	}
	if want := "unknown flag: --no-such-flag"; !strings.Contains(p.log.String(), want) {
		t.Errorf("what was printed lacks %q: %s", want, p.log.String())
	}
}

func TestSharedAttachesToTheControlPlaneThatTheVariableNames(t *testing.T) {
	t.Setenv(SharedVariable, shared.Dir)
	cp, err := Shared(t.Context(), Options{APIServers: 2, Users: []User{{Name: "jane"}}})
	if err != nil {
		t.Fatal(err)
	}
	if cp.URL() != shared.URL() {
		t.Errorf("its URL is %s, want %s", cp.URL(), shared.URL())
	}
	for name, test := range map[string]struct {
		options Options
		want    string
	}{
		"too few API servers":   {Options{APIServers: 3}, "has 2 API servers, not 3"},
		"no links to etcd":      {Options{EtcdLinks: true}, "has no links to etcd"},
		"no controller manager": {Options{ControllerManager: true}, "has no controller manager"},
		"no scheduler":          {Options{Scheduler: true}, "has no scheduler"},
		"no nodes":              {Options{Nodes: 1}, "has 0 nodes, not 1"},
		"no such user":          {Options{Users: []User{{Name: "joe"}}}, `no user "joe"`},
	} {
		if _, err := Shared(t.Context(), test.options); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, test.want)
		}
	}
}

func TestSharedSaysThatTheVariableNamesNoControlPlane(t *testing.T) {
	t.Setenv(SharedVariable, t.TempDir())
	if _, err := Shared(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), SharedVariable) || !strings.Contains(err.Error(), "no control plane is up") {
		t.Errorf("got %v, want an error that names the variable", err)
	}
}
