package race

// What the named scenarios share. Each of them replays something that went wrong
// elsewhere, and has a number by which docs/scenarios.md knows it.

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

// soon is how long it may take to settle where others have waited for minutes, or for
// ever: less than any timeout of theirs, and enough for a busy machine.
const soon = 30 * time.Second

// The writes that scenarios count.
var (
	creations     = faultproxy.Match{Verb: "create", Resource: "pods"}
	handOuts      = faultproxy.Match{Verb: "patch", Resource: "pods"}
	deletions     = faultproxy.Match{Verb: "delete", Resource: "pods"}
	claimStatuses = faultproxy.Match{Verb: "update", Resource: "podclaims", Subresource: "status"}
	poolStatuses  = faultproxy.Match{Verb: "update", Resource: "warmpools", Subresource: "status"}
)

// How long the controller of a scenario gives a write: where no answer is lost so long
// that a busy machine doesn't lose one, and otherwise so short that doubts are settled soon.
const (
	patient = "--write-timeout=15s"
	quick   = "--write-timeout=2s"
)

// scenario returns a run with a controller that leads, with these flags besides.
func scenario(t *testing.T, mode string, flags ...string) *run {
	t.Helper()
	t.Parallel()
	r := newRun(t, env, mode)
	r.flags = append(r.flags, flags...)
	r.launch().controller.WaitLeading()
	return r
}

// filled is a scenario in which the pool is full, and nothing more is written: between a
// Pod's being Ready and a status that was decided on before it all seems settled.
func filled(t *testing.T, mode string, replicas int32, flags ...string) *run {
	t.Helper()
	r := scenario(t, mode, flags...)
	r.ns.CreatePool(environment.Pool(poolName, replicas))
	r.settle()
	r.rest()
	return r
}

// goesWrong makes a rule go wrong from now on, in the process that was launched last and
// in those to come, until it is released.
func (r *run) goesWrong(rule faultproxy.Rule) *mishap {
	m := &mishap{rule: rule, until: allIsOver}
	r.goWrong(m)
	return m
}

// blindFor is a rule that holds all that comes in the watches of a resource.
func blindFor(resource string) faultproxy.Rule {
	return faultproxy.Rule{
		Name:  "blind for " + resource,
		Match: faultproxy.Match{Verb: "watch", Resource: resource},
		Do:    faultproxy.HoldStream(),
	}
}

// unlisted is a rule that keeps the lists of a resource that aren't streamed.
func unlisted(resource string) faultproxy.Rule {
	return faultproxy.Rule{
		Name:  "no list of " + resource,
		Match: faultproxy.Match{Verb: "list", Resource: resource, Where: func(q *faultproxy.Request) bool { return q.Name == "" }},
		Do:    faultproxy.HoldRequest(),
	}
}

// blindAfterListing is the same for what comes after the lists, which are streamed.
func blindAfterListing(resource string) faultproxy.Rule {
	var mu sync.Mutex
	listed := map[string]bool{}
	rule := blindFor(resource)
	rule.Match.WhereEvent = func(e *faultproxy.Event) bool {
		if e.Watch.Query.Get("sendInitialEvents") != "true" {
			return true
		}
		mu.Lock()
		defer mu.Unlock()
		watch := fmt.Sprint(e.Watch.Who, e.Watch.ID)
		was := listed[watch]
		listed[watch] = was || e.InitialEnd
		return was && !e.InitialEnd
	}
	return rule
}

// waitFired waits until something has gone wrong n times in the current process.
func (r *run) waitFired(m *mishap, n int) {
	r.t.Helper()
	ctx, cancel := r.within(settleTimeout)
	defer cancel()
	if err := m.faults[len(m.faults)-1].WaitFired(ctx, n); err != nil {
		r.fatal("%v", err)
	}
}

// answered tells whether the API server has answered.
func answered(q *faultproxy.Request) bool { return q.Code != 0 }

// waitSent waits until the current process has sent n requests which satisfy state, and
// returns them.
func (r *run) waitSent(n int, m faultproxy.Match, state func(*faultproxy.Request) bool) []faultproxy.Request {
	r.t.Helper()
	ctx, cancel := r.within(settleTimeout)
	defer cancel()
	requests, err := r.current().proxy.WaitRequests(ctx, n, m, state)
	if err != nil {
		r.fatal("%v", err)
	}
	return requests
}

// waitDelivered waits until the current process was sent an event, and returns it.
func (r *run) waitDelivered(match func(faultproxy.Delivery) bool) (found faultproxy.Delivery) {
	r.t.Helper()
	ctx, cancel := r.within(settleTimeout)
	defer cancel()
	if err := r.current().proxy.WaitDeliveries(ctx, 1, match); err != nil {
		r.fatal("%v", err)
	}
	for _, d := range r.current().proxy.Log().Deliveries {
		if match(d) {
			return d
		}
	}
	return found
}

// count returns how many requests of a kind all processes have sent, and how many of
// them were done.
func (r *run) count(m faultproxy.Match) (sent, done int) {
	for _, log := range r.logs() {
		for _, q := range log.Select(m) {
			sent++
			if q.Committed() {
				done++
			}
		}
	}
	return sent, done
}

// want checks how many requests of a kind were sent, and how many of them were done. It
// can't tell if the machine was so busy that a request got no answer in time which nothing
// was done to; the judges still can whether any harm was done.
func (r *run) want(m faultproxy.Match, sent, done int) {
	r.t.Helper()
	for _, log := range r.logs() {
		for _, q := range log.Select(m) {
			if q.Code == 0 && len(q.Faults) == 0 {
				r.t.Logf("not compared: %s %s %s got no answer", q.Verb, q.Resource, q.Name)
				return
			}
		}
	}
	if s, d := r.count(m); s != sent || d != done {
		r.t.Errorf("%s %s %s: %d were sent and %d done, want %d and %d", m.Verb, m.Resource, m.Subresource, s, d, sent, done)
	}
}

// metric reads a counter of the current process. A counter that isn't there is 0.
func (r *run) metric(series string) int {
	r.t.Helper()
	line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`)
	match := line.FindStringSubmatch(r.current().controller.Metrics())
	if match == nil {
		return 0
	}
	value, err := strconv.ParseFloat(match[1], 64)
	if err != nil {
		r.t.Fatalf("read the metric %s: %v", series, err)
	}
	return int(value)
}

// firings returns how often a guard of the current process has fired.
func (r *run) firings(guard, action string) int {
	r.t.Helper()
	return r.metric(fmt.Sprintf(`freshness_guard_firings_total{action=%q,guard=%q}`, action, guard))
}

// wantFired checks that a guard has fired, without which the scenario has not happened, or
// was stopped by something else.
func (r *run) wantFired(guard, action string) {
	r.t.Helper()
	if r.firings(guard, action) == 0 {
		r.t.Errorf("the guard %s hasn't fired (%s)", guard, action)
	}
}

// waitForGuard waits until a guard of the current process has fired.
func (r *run) waitForGuard(guard, action string) {
	r.t.Helper()
	r.ns.Eventually(fmt.Sprintf("the guard %s to fire (%s)", guard, action), func() error {
		if r.firings(guard, action) == 0 {
			return errors.New("it hasn't")
		}
		return nil
	})
}

// The two results of a guard's check of a key.
const (
	fresh = `freshness_checks_total{result="fresh"}`
	stale = `freshness_checks_total{result="stale"}`
)

// wake touches the pool n times, each time until the current process has looked at it.
func (r *run) wake(n int) {
	r.t.Helper()
	looked := func() int { return r.metric(fresh) + r.metric(stale) }
	for i := range n {
		before := looked()
		r.ns.PatchPool(poolName, fmt.Sprintf(`{"metadata": {"annotations": {"example.com/touched": "%d %d"}}}`, before, i))
		r.ns.Eventually("the controller to look at the pool", func() error {
			if looked() == before {
				return fmt.Errorf("it has looked %d times", before)
			}
			return nil
		})
	}
}

// idle are the idle Pods of the pool, by name.
func (r *run) idle() []*corev1.Pod {
	r.t.Helper()
	return r.ns.PodsOf(r.ns.Pool(poolName).UID)
}

// settleSoon waits until pools and claims are where they belong, where it is the point how
// long that takes. What is left to the garbage collector, which may be late, isn't waited for.
func (r *run) settleSoon() {
	r.t.Helper()
	ctx, cancel := r.within(soon)
	defer cancel()
	err := r.recorder.Sync(ctx)
	if err == nil {
		err = r.recorder.WaitFor(ctx, "everything to settle", func(w *history.World) bool { return len(w.Unsettled()) == 0 })
	}
	if err != nil {
		r.fatal("not settled %s after it could be: %v", soon, err)
	}
}

// end ends all that goes wrong, which must have happened, and judges the run.
func (r *run) end(terms history.Terms) {
	r.t.Helper()
	for _, m := range r.trouble {
		if !m.fired() {
			r.t.Errorf("this never happened: %s", m.faults[0].Name())
		}
	}
	r.heal()
	r.finish(terms)
}

// waitFor waits until what is recorded is as check wants it.
func (r *run) waitFor(what string, check func(*history.World) bool) {
	r.t.Helper()
	ctx, cancel := r.within(settleTimeout)
	defer cancel()
	if err := r.recorder.WaitFor(ctx, what, check); err != nil {
		r.fatal("%v", err)
	}
}

// sendsNothing checks that the current process sends no such request for a time.
func (r *run) sendsNothing(d time.Duration, m faultproxy.Match, meanwhile string) {
	r.t.Helper()
	proxy := r.current().proxy
	before := len(proxy.Log().Select(m))
	ctx, cancel := r.within(d)
	defer cancel()
	if sent, err := proxy.WaitRequests(ctx, before+1, m, nil); err == nil {
		last := sent[len(sent)-1]
		r.t.Errorf("%s: the controller has sent %s %s %s", meanwhile, last.Verb, last.Resource, last.Name)
	}
}

// guarded are the writes that matter, all of them.
var guarded = faultproxy.Match{Verb: faultproxy.Writes, Where: history.IsGuarded}

// loseSight takes the current process's sight of resources, and returns what gives it back.
// What happens in between it learns from a list, and is never sent as an event.
func (r *run) loseSight(resources ...string) (regain func()) {
	r.t.Helper()
	var regains []func()
	for _, resource := range resources {
		frozen := r.goesWrong(faultproxy.Rule{
			Match: faultproxy.Match{Verb: "watch", Resource: resource},
			Do:    faultproxy.Freeze(),
		})
		// Another watch would go on where the last one was.
		again := rewatch()
		again.Resource = resource
		listOnly := r.current().proxy.Add(faultproxy.Rule{Match: again, Do: faultproxy.Refuse(faultproxy.Expired())})
		regains = append(regains, func() {
			r.t.Helper()
			r.endInAList(resource, frozen)
			listOnly.Release()
		})
	}
	return func() {
		r.t.Helper()
		for _, regain := range regains {
			regain()
		}
	}
}

// endInAList ends a frozen watch, and waits until the list that follows has been sent.
func (r *run) endInAList(resource string, frozen *mishap) {
	r.t.Helper()
	proxy := r.current().proxy
	listed := func(d faultproxy.Delivery) bool { return d.Resource.Resource == resource && d.InitialEnd }
	n := 0
	for _, d := range proxy.Log().Deliveries {
		if listed(d) {
			n++
		}
	}
	frozen.faults[len(frozen.faults)-1].Remove()
	proxy.EndWatches(faultproxy.Match{Verb: "watch", Resource: resource}, faultproxy.Expired())
	frozen.release()
	ctx, cancel := r.within(settleTimeout)
	defer cancel()
	if err := proxy.WaitDeliveries(ctx, n+1, listed); err != nil {
		r.fatal("%v", err)
	}
}

// patchPod changes a Pod by a JSON merge patch, as somebody else.
func (r *run) patchPod(name, patch string) {
	r.t.Helper()
	_, err := r.env.Kube.CoreV1().Pods(r.ns.Name).Patch(r.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
}

// past is all that was written so far.
func (r *run) past() *history.History {
	r.t.Helper()
	ctx, cancel := r.within(settleTimeout)
	defer cancel()
	h, err := r.recorder.History(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

// wantMade checks how many Pods were made, whether their creations were answered or not.
func (r *run) wantMade(want int) {
	r.t.Helper()
	made := map[types.UID]bool{}
	for _, v := range r.past().Versions {
		if v.Resource == history.Pods {
			made[v.UID()] = true
		}
	}
	if len(made) != want {
		r.t.Errorf("%d Pods were made, want %d", len(made), want)
	}
}

// seesPool waits until the current process has been sent the newest version of the pool.
func (r *run) seesPool() {
	r.t.Helper()
	version := r.ns.Pool(poolName).ResourceVersion
	r.waitDelivered(func(d faultproxy.Delivery) bool {
		return d.Resource == history.WarmPools && d.ResourceVersion == version
	})
}
