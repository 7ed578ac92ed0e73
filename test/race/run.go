package race

// One telling of a story: a namespace with a recorder, a kubelet and a controller, or
// several, each behind a proxy of its own.

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

// writeTimeout is how long the controller gives a write: short, so that doubts are
// settled soon.
const writeTimeout = time.Second

// run is one telling. It is for the test's goroutine.
type run struct {
	t   testing.TB
	env *environment.Environment
	ns  *environment.Namespace
	// mode is the kind of trouble, for the tally.
	mode string
	// excused are rules that the run isn't judged by.
	excused []string
	// mayEnd tells that a controller may end by itself, with an error, and is started
	// again.
	mayEnd bool
	// flags are those of every controller of the run.
	flags []string
	// trouble is planted in the proxy of each process.
	trouble  trouble
	recorder *history.Recorder
	// processes are all that were ever launched, in order. Proxies look there for the
	// sender of a request.
	processes []*process
	mu        sync.Mutex // for those
	// healed is when the last trouble and the last step were over, and longest how long
	// a step took at most until everything was where it belongs, or the story went on.
	healed  time.Time
	longest time.Duration
}

// newRun returns a run in a namespace of its own, with a recorder and a kubelet.
func newRun(t testing.TB, env *environment.Environment, mode string) *run {
	t.Helper()
	r := &run{t: t, env: env, ns: env.Namespace(t), mode: mode}
	r.flags = []string{"--namespace=" + r.ns.Name, "--leader-elect=false", "--write-timeout=" + writeTimeout.String()}
	recorder, err := history.Record(t.Context(), history.Recording{
		Endpoints:  []string{env.ControlPlane.EtcdURL},
		Namespaces: []string{r.ns.Name},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.recorder = recorder
	t.Cleanup(recorder.Close)
	r.ns.StartKubelet()
	return r
}

// process is one controller and its proxy.
type process struct {
	name       string
	proxy      *faultproxy.Proxy
	controller *environment.Controller
	// dying is set when a fault kills it, and gone closed when that is done. asleep is set
	// while it is frozen.
	dying, asleep atomic.Bool
	gone          chan struct{}
	// replaced tells that another was launched for it.
	replaced bool
	// woken is when it was thawed.
	woken []time.Time
}

// kill ends the process as a crash does. Any goroutine may call it.
func (p *process) kill() {
	if p.dying.CompareAndSwap(false, true) {
		p.controller.Kill()
		close(p.gone)
	}
	<-p.gone
}

// waitGone waits until a process that a fault kills has ended.
func (r *run) waitGone(p *process) {
	r.t.Helper()
	select {
	case <-p.gone:
	case <-time.After(settleTimeout):
		r.fatal("%s wasn't killed within %s", p.name, settleTimeout)
	}
}

// launch starts a controller behind a proxy of its own, in which the trouble is planted,
// and doesn't wait for anything.
func (r *run) launch() *process {
	r.t.Helper()
	return r.launchAt(r.env.ControlPlane.APIServers[0])
}

// launchAt is launch at an API server of one's choice.
func (r *run) launchAt(server *controlplane.APIServer) *process {
	r.t.Helper()
	proxy := environment.StartProxy(r.t, server, r.nextName())
	r.trouble.plant(proxy)
	p := &process{name: r.nextName(), proxy: proxy, gone: make(chan struct{})}
	flags := slices.Concat(r.flags, []string{environment.ThroughProxy(r.t, server, proxy)})
	p.controller = r.env.LaunchController(r.t, flags...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processes = append(r.processes, p)
	return p
}

// nextName is that of the next process, for logs.
func (r *run) nextName() string { return fmt.Sprintf("controller-%d", len(r.processes)+1) }

// sender is the process that has sent a request.
func (r *run) sender(x *faultproxy.Exchange) *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.processes[slices.IndexFunc(r.processes, func(p *process) bool { return p.name == x.Who })]
}

// current is the process that was launched last.
func (r *run) current() *process { return r.processes[len(r.processes)-1] }

// revive launches a process for each that can do nothing any more, as a Deployment does: a
// fault has killed it or sent it to sleep, or, where mayEnd says so, it has ended by itself.
func (r *run) revive() {
	r.t.Helper()
	for _, p := range r.processes {
		if p.replaced || !p.controller.Ended() && !p.asleep.Load() {
			continue
		}
		p.replaced = true
		switch {
		case p.asleep.Load():
		case p.dying.Load():
			<-p.gone
		default:
			if code := p.controller.WaitForEnd(); code != 1 || !r.mayEnd {
				r.fatal("%s has ended by itself with exit code %d", p.name, code)
			}
		}
		r.launch()
	}
}

// stop ends the process as an operator does, after its guards' firings were noted.
func (r *run) stop(p *process) {
	r.t.Helper()
	tally.noteFirings(p.controller.Metrics())
	p.controller.Stop()
}

// running are the processes that run.
func (r *run) running() []*process {
	return slices.DeleteFunc(slices.Clone(r.processes), func(p *process) bool { return p.controller.Ended() })
}

// logs are what the proxies of all processes have seen.
func (r *run) logs() []faultproxy.Log {
	var logs []faultproxy.Log
	for _, p := range r.processes {
		logs = append(logs, p.proxy.Log())
	}
	return logs
}

// within returns a context for something that is to happen soon.
func (r *run) within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.t.Context(), d)
}
