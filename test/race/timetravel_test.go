package race

// P10 and P15 in the plan: two API servers on one etcd, and the controller moves from the
// one to the other, which may be cut off from etcd. Such a server answers from its caches
// what may be old, takes watches and keeps silent in them, and answers nothing that needs
// etcd. The older worlds that a server would have to lie about are in oldworld_test.go.

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

// laggard is an API server of a test's own, which the test cuts off from etcd, or restarts.
// The first API server of its control plane stays as it is: users, kubelets and the garbage
// collector are there.
type laggard struct {
	env    *environment.Environment
	server *controlplane.APIServer
	// there are its administrator's clients.
	there *environment.Environment
	// lagging and fresh are how the controller logs in at the two.
	lagging, fresh *rest.Config
	// fired are the firings of all controllers that have moved.
	fired counts
}

// The tests share a control plane, since it takes a while to start; each has an API server
// of its own to cut off.
func TestTimeTravel(t *testing.T) {
	t.Parallel()
	points := writesIn(reference(t))
	tests := []struct {
		name string
		tell func(*laggard, *testing.T, []point)
	}{
		{"the controller moves to a server that lags", (*laggard).takesAll},
		{"the caches are fed by a server that lags", (*laggard).takesFeeds},
		{"a controller starts at a server that lags", (*laggard).takesStarts},
		{"the server is healthy, or restarts", (*laggard).isHealthy},
	}
	shared := environment.ForTestInstalled(t, controlplane.Options{APIServers: 1 + len(tests), EtcdLinks: true, NoAudit: true})
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.tell(newLaggard(t, shared, shared.ControlPlane.APIServers[1+i]), t, points)
		})
	}
}

func newLaggard(t *testing.T, env *environment.Environment, server *controlplane.APIServer) *laggard {
	t.Helper()
	fresh := environment.ControllerConfig(t, env.ControlPlane.APIServers[0])
	lagging := environment.ControllerConfig(t, server)
	there, err := environment.New(&controlplane.ControlPlane{APIServers: []*controlplane.APIServer{server}})
	if err != nil {
		t.Fatal(err)
	}
	l := &laggard{env: env, server: server, there: there, fresh: fresh, lagging: lagging}
	l.waitServing(t)
	return l
}

// waitServing waits until the server serves what etcd has.
func (l *laggard) waitServing(t testing.TB) {
	t.Helper()
	if err := l.there.WaitInstalled(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// The whole of the controller moves to a server that was cut off right before a write: it
// sees no more, and nothing that it writes is answered, but may happen when the server is
// back. In every other telling connections to etcd aren't silent but refused.
func (l *laggard) takesAll(t *testing.T, points []point) {
	for i, p := range every(8, 0, points) {
		t.Run(p.String(), func(t *testing.T) {
			r := newRun(t, l.env, "moved to a server that lags")
			moves := func(x *faultproxy.Exchange) { r.moveTo(r.sender(x).proxy, l.lagging) }
			r.trouble = trouble{l.cutOff(r, p, l.cut(i), moves)}
			l.tell(r)
		})
	}
	l.wantFired(t, firing{"backlog", "parked_behind"}, firing{"validator", "doubts_resolved"})
}

// A load balancer spreads connections: caches are fed by the server that lags, one of them
// or all, and all else, writes and quorum reads, goes to the one that is fresh. So the
// writes succeed, and the controller doesn't see them.
func (l *laggard) takesFeeds(t *testing.T, points []point) {
	for i, p := range every(8, 4, points) {
		t.Run(p.String(), func(t *testing.T) {
			r := newRun(t, l.env, "caches fed by a server that lags")
			fed := l.feeds(resources[i%len(resources)])
			moves := func(x *faultproxy.Exchange) { fed.move(r.sender(x).proxy) }
			r.trouble = trouble{l.cutOff(r, p, l.cut(i/2), moves), fed.mishap}
			l.tell(r)
		})
	}
	l.wantFired(t, firing{"backlog", "parked_behind"}, firing{"validator", "nudge"})
}

// resources are those whose caches a server feeds; empty: all.
var resources = []string{"pods", "", "podclaims", "warmpools"}

// cut is how the server is cut off, the ith time.
func (l *laggard) cut(i int) func() {
	if i%2 == 0 {
		return l.server.EtcdLink.Stall
	}
	return l.server.EtcdLink.Refuse
}

// cutOff has the server cut off right before a write, and something done right after it.
// So it stays while the story goes on.
func (l *laggard) cutOff(r *run, p point, cut func(), then func(*faultproxy.Exchange)) *mishap {
	r.t.Cleanup(func() { _ = l.server.EtcdLink.Restore() }) // for the next telling, if this one fails
	return &mishap{
		rule: p.rule(faultproxy.Do("cut off", func(x *faultproxy.Exchange, forward func() *faultproxy.Answer) *faultproxy.Answer {
			cut()
			answer := forward()
			then(x)
			return answer
		})),
		steps: 2, atLeast: held, first: func() { l.restore(r) },
	}
}

// moveTo sends all that a controller sends from now on to another API server.
func (r *run) moveTo(proxy *faultproxy.Proxy, config *rest.Config) {
	if err := proxy.Retarget(config); err != nil {
		r.t.Error(err)
	}
	proxy.EndWatches(faultproxy.Match{}, faultproxy.Closed())
}

// feed is a way to the server that lags, for nothing but what fills caches.
type feed struct {
	*mishap
	resource string
	moved    *atomic.Bool
}

// feeds makes the way for a resource, or for all. Nothing takes it before move is called.
func (l *laggard) feeds(resource string) feed {
	f := feed{resource: resource, moved: new(atomic.Bool)}
	f.mishap = &mishap{rule: faultproxy.Rule{Match: faultproxy.Match{Where: f.takes}, Do: faultproxy.Elsewhere(l.lagging)}, until: allIsOver}
	return f
}

// takes chooses the watches and lists of informers. A list of one name, or of metadata, is
// a quorum read of the guards.
func (f feed) takes(q *faultproxy.Request) bool {
	list := q.Verb == "list" && q.Name == "" && !strings.Contains(q.Accept, "PartialObjectMetadata")
	return f.moved.Load() && (list || q.Verb == "watch") && (f.resource == "" || f.resource == q.Resource)
}

// move sends them that way from now on.
func (f feed) move(proxy *faultproxy.Proxy) {
	f.moved.Store(true)
	proxy.EndWatches(faultproxy.Match{Verb: "watch", Resource: f.resource}, faultproxy.Closed())
}

// restore gives the server etcd back, and waits until it is up to date.
func (l *laggard) restore(r *run) {
	r.t.Helper()
	if err := l.server.EtcdLink.Restore(); err != nil {
		r.t.Fatal(err)
	}
	l.waitServing(r.t)
}

// tell tells the story to a controller that begins at the server that is fresh.
func (l *laggard) tell(r *run) {
	r.t.Helper()
	r.launch()
	r.tell(story())
	l.noteFirings(r)
	// A creation that was under way when the server was cut off may happen when it is
	// back, long after it was to be given up.
	r.finish(history.Terms{Excess: len(inDoubt(r.logs()))})
}

// noteFirings adds what the guards of the process that was launched last have done. It may
// have been launched a moment ago, by the end of the story.
func (l *laggard) noteFirings(r *run) {
	r.t.Helper()
	r.current().controller.WaitReady()
	l.fired.noteFirings(r.current().controller.Metrics())
}

// inDoubt are the creations of which nobody knows whether they happened.
func inDoubt(logs []faultproxy.Log) []faultproxy.Request {
	var all []faultproxy.Request
	for _, log := range logs {
		all = append(all, log.Select(faultproxy.Match{Verb: "create", Resource: "pods", Where: (*faultproxy.Request).InDoubt})...)
	}
	return all
}

// wantFired checks that guards have fired in one telling or another.
func (l *laggard) wantFired(t *testing.T, wanted ...firing) {
	t.Helper()
	for _, f := range wanted {
		if l.fired.firings[f] == 0 {
			t.Errorf("the guard %s hasn't fired (%s): %v", f.guard, f.action, l.fired.firings)
		}
	}
}

// The controller is killed right after a write that the server has not heard of, and
// started again there, or where its caches are fed from there. It doesn't become ready, it
// writes nothing, also where its writes would succeed, and it ends with an error that names
// the caches. It is started again until the server is back.
func (l *laggard) takesStarts(t *testing.T, points []point) {
	for i, p := range every(8, 2, points) {
		t.Run(p.String(), func(t *testing.T) {
			r := newRun(t, l.env, "started at a server that lags")
			r.mayEnd = true
			r.flags = append(r.flags, "--cache-sync-timeout=3s")
			fed := l.feeds(resources[i%len(resources)])
			cutOff := l.cutOff(r, p, l.cut(i/2), func(x *faultproxy.Exchange) {
				fed.move(r.sender(x).proxy)
				r.sender(x).kill()
			})
			cutOff.first = func() {
				if r.current() == r.processes[0] { // the story was over with that write
					r.waitGone(r.current())
					r.revive()
				}
				r.endsForItsCaches(fed.resource)
				l.restore(r)
			}
			r.trouble = trouble{cutOff, fed.mishap}
			if i%3 != 0 {
				r.trouble = append(r.trouble, neverStreamed())
			}
			r.launch()
			if fed.resource == "" {
				l.becomesHome(r)
			}
			r.tell(story())
			l.noteFirings(r)
			r.finish(history.Terms{})
		})
	}
	l.wantFired(t, firing{"gate", "made_workers_wait"}, firing{"feed", "stale_list_prevented"}, firing{"fence", "passed"})
}

// neverStreamed makes informers list, as API servers do that can't stream lists. A streamed
// list gets no answer from a server that is cut off from etcd; one as of any time, which is
// what client-go asks for instead, is answered at once, from an old cache.
func neverStreamed() *mishap {
	return &mishap{rule: faultproxy.Rule{Match: relist("watch"), Do: faultproxy.Refuse(faultproxy.Invalid())}, until: allIsOver}
}

// becomesHome makes the server the one where controllers of a run start from now on.
func (l *laggard) becomesHome(r *run) {
	home := *l.env
	home.ControlPlane = l.there.ControlPlane
	r.env = &home
}

// endsForItsCaches waits until the process that was launched last ends by itself, which
// must say that the cache of a resource is missing, or that all are, and must not have
// acted.
func (r *run) endsForItsCaches(resource string) {
	r.t.Helper()
	p := r.current()
	if code := p.controller.WaitForEnd(); code != 1 {
		r.t.Errorf("%s ended with exit code %d, want 1", p.name, code)
	}
	log := p.controller.Log()
	for name, line := range map[string]string{
		"pods":      "\n\t  pods: ",
		"podclaims": "\n\t  podclaims.warmpool.dev: ",
		"warmpools": "\n\t  warmpools.warmpool.dev: ",
	} {
		named := strings.Contains(log, "caches not synced within 3s") && strings.Contains(log, line)
		if want := resource == "" || resource == name; named != want {
			r.t.Errorf("%s ended; its error names the cache of %s: %v, want %v", p.name, name, named, want)
		}
	}
	if wrote := p.proxy.Log().Select(guarded); len(wrote) > 0 || strings.Contains(log, "Starting workers") {
		r.t.Errorf("%s started its workers where a cache is fed by a server that lags, and sent %d writes", p.name, len(wrote))
	}
}

// The controller is moved between two servers that are both healthy, at some writes or at
// each; and the server that it is at is restarted, in good order or not, in the midst of
// the story.
func (l *laggard) isHealthy(t *testing.T, points []point) {
	t.Run("moves at each write", func(t *testing.T) {
		r := newRun(t, l.env, "moved between healthy servers")
		r.trouble = trouble{{rule: faultproxy.Rule{Match: guarded, Do: faultproxy.Before(l.backAndForth(r))}, until: allIsOver}}
		l.tell(r)
	})
	t.Run("moves now and then", func(t *testing.T) {
		r := newRun(t, l.env, "moved between healthy servers")
		for _, p := range every(8, 6, points) {
			r.trouble = append(r.trouble, &mishap{rule: p.rule(faultproxy.Before(l.backAndForth(r))), until: allIsOver})
		}
		l.tell(r)
	})
	t.Run("restarts", func(t *testing.T) {
		r := newRun(t, l.env, "the API server restarts")
		half := len(points) / 2
		r.trouble = trouble{
			l.restartServer(r, points[3], func(context.Context) error { return l.server.Kill() }),
			l.restartServer(r, points[3+half], l.server.Stop),
		}
		l.becomesHome(r)
		l.tell(r)
	})
	l.wantFired(t, firing{"backlog", "parked_behind"})
}

// backAndForth moves the sender of a request to the other server each time.
func (l *laggard) backAndForth(r *run) func(*faultproxy.Exchange) {
	var times atomic.Int64
	return func(x *faultproxy.Exchange) {
		to := l.fresh
		if times.Add(1)%2 == 1 {
			to = l.lagging
		}
		r.moveTo(r.sender(x).proxy, to)
	}
}

// restartServer ends the server right before a write, and starts it again.
func (l *laggard) restartServer(r *run, p point, end func(context.Context) error) *mishap {
	restarted := make(chan error, 1)
	return &mishap{
		rule: p.rule(faultproxy.Before(func(*faultproxy.Exchange) {
			go func() {
				err := end(r.t.Context())
				if err == nil {
					err = l.server.Restart(r.t.Context())
				}
				restarted <- err
			}()
		})),
		steps: 1,
		first: func() {
			if err := <-restarted; err != nil {
				r.t.Fatal(fmt.Errorf("restart %s: %w", l.server.Name, err))
			}
		},
	}
}
