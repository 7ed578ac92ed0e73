package lab

// One telling of a story.

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

const (
	// writeTimeout is how long the controller gives a write: short, so that doubts are
	// settled soon.
	writeTimeout = time.Second
	// setUp is how long a story may take to get to where the fault begins.
	setUp = 60 * time.Second
	// patience is after how long a key counts as stuck.
	patience = 20 * time.Second
	// restFor is how long nothing may be written for a telling to be over.
	restFor = 700 * time.Millisecond
)

// telling is one telling of a story. It is for the test's goroutine.
type telling struct {
	t        testing.TB
	env      *environment.Environment
	ns       *environment.Namespace
	recorder *history.Recorder
	// binary is the program that is run. Empty: the product.
	binary string
	// flags are those of every controller.
	flags     []string
	processes []*process

	// from is when the fault is over, or the last thing has been asked for. It is from
	// when on time is measured.
	from time.Time
	// until tells that what was asked for has come. Nil: everything is where it belongs.
	until func(*history.World) bool
	// outcome, if a story sets it, says in words what its numbers can't.
	outcome string
	// took is how long it took, and stuck that it didn't come within patience. over tells
	// that the story itself has found that out.
	took        time.Duration
	stuck, over bool
}

// process is one controller and its proxy.
type process struct {
	proxy      *faultproxy.Proxy
	controller *environment.Controller
}

// newTelling returns a telling in a namespace of its own.
func newTelling(t testing.TB, env *environment.Environment, binary string) *telling {
	t.Helper()
	s := &telling{t: t, env: env, ns: env.Namespace(t), binary: binary}
	s.flags = []string{"--namespace=" + s.ns.Name, "--leader-elect=false", "--write-timeout=" + writeTimeout.String()}
	recorder, err := history.Record(t.Context(), history.Recording{
		Endpoints:  []string{env.ControlPlane.EtcdURL},
		Namespaces: []string{s.ns.Name},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.recorder = recorder
	t.Cleanup(recorder.Close)
	s.ns.StartKubelet()
	return s
}

// launch starts a controller behind a proxy of its own, in which the rules stand from the
// beginning, and doesn't wait for anything.
func (s *telling) launch(rules ...faultproxy.Rule) *process {
	s.t.Helper()
	config, err := s.login()
	if err != nil {
		s.t.Fatal(err)
	}
	proxy, err := faultproxy.Start(faultproxy.Options{Name: fmt.Sprintf("controller-%d", len(s.processes)+1), Target: config})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(proxy.Close)
	for _, rule := range rules {
		proxy.Add(rule)
	}
	kubeconfig, err := proxy.Kubeconfig(config)
	if err != nil {
		s.t.Fatal(err)
	}
	path := filepath.Join(s.t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		s.t.Fatal(err)
	}
	flags := append(slices.Clone(s.flags), "--kubeconfig="+path)
	p := &process{proxy: proxy}
	if s.binary == "" {
		p.controller = s.env.LaunchController(s.t, flags...)
	} else {
		p.controller = s.env.LaunchBinary(s.t, s.binary, flags...)
	}
	s.processes = append(s.processes, p)
	return p
}

// start is launch, and waits until the controller is ready.
func (s *telling) start() *process {
	s.t.Helper()
	p := s.launch()
	p.controller.WaitReady()
	return p
}

// login is how the controller reaches the API server.
func (s *telling) login() (*rest.Config, error) {
	path, err := s.env.ControlPlane.Kubeconfig(controlplane.Controller)
	if err != nil {
		return nil, err
	}
	return clientcmd.BuildConfigFromFlags("", path)
}

// asOfNow begins to measure the time.
func (s *telling) asOfNow() { s.from = time.Now() }

// within returns a context for something that is to happen soon.
func (s *telling) within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.t.Context(), d)
}

// world waits until the world is as check wants it, and ends the test if it doesn't get so: a
// fault may only come then.
func (s *telling) world(what string, check func(*history.World) bool) {
	s.t.Helper()
	ctx, cancel := s.within(setUp)
	defer cancel()
	if err := s.recorder.Sync(ctx); err != nil {
		s.t.Fatal(err)
	}
	if err := s.recorder.WaitFor(ctx, what, check); err != nil {
		s.t.Fatal(err)
	}
}

// settle waits until everything is where it belongs, and known to the controllers.
func (s *telling) settle() {
	s.t.Helper()
	for {
		s.world("everything to be where it belongs", isSettled)
		if s.quiet(restFor) {
			return
		}
	}
}

// quiet waits so long, and tells whether nothing was written meanwhile but leases.
func (s *telling) quiet(d time.Duration) bool {
	ctx, cancel := s.within(d)
	defer cancel()
	var before map[types.UID]string
	return s.recorder.WaitFor(ctx, "a write", func(w *history.World) bool {
		if before == nil {
			before = versions(w)
		}
		return !maps.Equal(before, versions(w))
	}) != nil
}

// versions are those of all objects that matter.
func versions(w *history.World) map[types.UID]string {
	all := map[types.UID]string{}
	for uid, pool := range w.Pools {
		all[uid] = pool.ResourceVersion
	}
	for uid, claim := range w.Claims {
		all[uid] = claim.ResourceVersion
	}
	for uid, pod := range w.Pods {
		all[uid] = pod.ResourceVersion
	}
	return all
}

// lasts lets the fault last for a time.
func (s *telling) lasts(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.t.Context().Done():
	}
}

// fires waits until a fault has been met.
func (s *telling) fires(f *faultproxy.Fault) {
	s.t.Helper()
	ctx, cancel := s.within(setUp)
	defer cancel()
	if err := f.WaitFired(ctx, 1); err != nil {
		s.t.Fatal(err)
	}
}

// hears waits until the controller has been sent an event of a resource at a version or later.
func (s *telling) hears(p *process, resource, version string) {
	s.t.Helper()
	ctx, cancel := s.within(setUp)
	defer cancel()
	err := p.proxy.WaitDeliveries(ctx, 1, func(d faultproxy.Delivery) bool {
		return d.Resource.Resource == resource && d.Type != "BOOKMARK" && !isOlder(d.ResourceVersion, version)
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// sends waits until a controller has sent so many requests that m chooses, and was answered.
func (s *telling) sends(p *process, n int, m faultproxy.Match) {
	s.t.Helper()
	ctx, cancel := s.within(setUp)
	defer cancel()
	answered := func(r *faultproxy.Request) bool { return !r.Replied.IsZero() }
	if _, err := p.proxy.WaitRequests(ctx, n, m, answered); err != nil {
		s.t.Fatal(err)
	}
}

// end waits until what was asked for has come and nothing is written any more, or patience
// is over.
func (s *telling) end() {
	s.t.Helper()
	if s.over {
		return
	}
	until := s.until
	if until == nil {
		until = isSettled
	}
	ctx, cancel := context.WithDeadline(s.t.Context(), s.from.Add(patience))
	defer cancel()
	for {
		if err := s.recorder.Sync(ctx); err != nil {
			break
		}
		if err := s.recorder.WaitFor(ctx, "what was asked for", until); err != nil {
			break
		}
		s.took = time.Since(s.from)
		if s.quiet(restFor) || s.until != nil {
			return
		}
	}
	s.stuck = true
	s.explain()
}

// explain shows, if the test fails, what isn't where it belongs and what the controllers say.
func (s *telling) explain() {
	ctx, cancel := s.within(time.Second)
	defer cancel()
	_ = s.recorder.WaitFor(ctx, "a look", func(w *history.World) bool { // there may be nothing to see
		for _, u := range w.Unsettled() {
			s.t.Logf("%s: %s", u.Object, u.Message)
		}
		return true
	})
	for i, p := range s.processes {
		lines := strings.Split(p.controller.Log(), "\n")
		s.t.Logf("the end of the log of controller-%d:\n%s", i+1, strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
}

// isSettled tells whether everything is where it belongs, and nothing is left to the garbage
// collector.
func isSettled(w *history.World) bool { return len(w.Remaining()) == 0 }

// isBound tells that a claim has its Pod.
func isBound(name string) func(*history.World) bool {
	return func(w *history.World) bool {
		for _, claim := range w.Claims {
			if claim.Name == name {
				return claim.Status.Pod != nil
			}
		}
		return false
	}
}

// firstToGo is the idle Pod that the next claim gets: the one that is Ready for longest.
func (s *telling) firstToGo(pool string) *corev1.Pod {
	s.t.Helper()
	pods := s.ns.PodsOf(s.ns.Pool(pool).UID)
	if len(pods) == 0 {
		s.t.Fatalf("pool %s has no idle Pod", pool)
	}
	return slices.MinFunc(pods, func(a, b *corev1.Pod) int {
		return readySince(a).Compare(readySince(b)) // stable: by name else
	})
}

func readySince(pod *corev1.Pod) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
