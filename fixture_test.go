package main

// The fixture of the tests of the loop: a controller with real informers on a fake API
// server, in a bubble of testing/synctest, where settle waits until nothing moves any
// more and elapse lets time pass at once.

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"warmpool.dev/controller/pkg/freshness"
)

// TestMain takes out apimachinery's brake on errors. It remembers the time of the last
// error in the process, and each bubble starts in the year 2000: the first error of a
// bubble would sleep for as long as another bubble was ahead. The logging stays.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}

// settle waits until every other goroutine of the bubble waits for something.
func settle() { synctest.Wait() }

// elapse lets d pass on the clock of the bubble. No real time passes.
func elapse(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

var runners = cache.NewObjectName("ci", "runners")

// fixture is a controller whose caches are complete, and whose workers aren't running.
// It writes by the fake clientsets and not over a connection, so that the ledger hears of
// none of its writes: what the guards add is tested where they are.
type fixture struct {
	*Controller
	api      *apiServer
	guards   *freshness.Guards[cache.ObjectName]
	recorder *record.FakeRecorder
	ctx      context.Context
	end      context.CancelFunc
	logs     ktesting.Buffer
	stores   []cache.Store
}

// newFixture returns a controller that has seen the objects. It must be called in a
// bubble, and ends with the test.
func newFixture(t *testing.T, objects ...runtime.Object) *fixture {
	t.Helper()
	f := newUnstartedFixture(t, objects...)
	f.startGuards()
	if err := f.guards.TakeOver(f.ctx); err != nil {
		t.Fatal(err)
	}
	// The fake loses what is deleted between an informer's list and its watch.
	settle()
	return f
}

// newUnstartedFixture returns a controller whose caches are empty.
func newUnstartedFixture(t *testing.T, objects ...runtime.Object) *fixture {
	t.Helper()
	f := &fixture{api: newAPIServer(), recorder: record.NewFakeRecorder(10_000)}
	f.api.put(t, objects...)
	f.ctx, f.logs = logging(t)
	f.ctx, f.end = context.WithCancel(f.ctx)
	guards, err := freshness.New(&rest.Config{}, freshness.Options[cache.ObjectName]{Live: live{f.api}})
	if err != nil {
		t.Fatal(err)
	}
	feeds, err := newFeeds(guards, f.api.kube, f.api.warmpool, "")
	if err != nil {
		t.Fatal(err)
	}
	f.guards = guards
	for _, feed := range []*freshness.Feed{feeds.pools, feeds.claims, feeds.pods, feeds.nodes} {
		f.stores = append(f.stores, feed.Informer().GetStore())
	}
	f.Controller, err = NewController(guards, feeds, f.api.kube, f.api.warmpool, f.recorder, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.end()
		guards.Queue.ShutDown()
	})
	return f
}

// startGuards runs the informers and the guards, and returns how to wait for their end.
func (f *fixture) startGuards() (ended <-chan error) {
	done := make(chan error, 1)
	go func() { done <- f.guards.Run(f.ctx) }()
	return done
}

// logging returns a context whose logger writes to the test's log, and to a buffer.
func logging(t *testing.T) (context.Context, ktesting.Buffer) {
	t.Helper()
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(4)))
	return klog.NewContext(t.Context(), logger), logger.GetSink().(ktesting.Underlier).GetBuffer()
}

// sync works on the next key of the queue, waits until the caches have seen what came
// of it, and checks that no object of the caches was changed.
func (f *fixture) sync(t *testing.T) {
	t.Helper()
	if f.queue.Len() == 0 {
		t.Fatal("there is no key in the queue")
	}
	var cached, copies []runtime.Object
	for _, store := range f.stores {
		for _, object := range store.List() {
			cached = append(cached, object.(runtime.Object))
			copies = append(copies, object.(runtime.Object).DeepCopyObject())
		}
	}
	f.processNextWorkItem(f.ctx)
	for i := range cached {
		if d := diff.Diff(copies[i], cached[i]); d != "" {
			t.Errorf("an object of a cache was changed:\n%s", d)
		}
	}
	settle()
}

// syncAll works until the queue is empty. Time doesn't pass.
func (f *fixture) syncAll(t *testing.T) {
	t.Helper()
	for range 100 {
		if f.queue.Len() == 0 {
			return
		}
		f.sync(t)
	}
	t.Fatal("the queue isn't empty after 100 keys: the controller runs in a circle")
}

// run runs the workers for a second, and returns how to wait for their end. Their writes
// come back to them as events, late or early, so how many tries they need may differ from
// run to run, and what is there in the end may not.
func (f *fixture) run() (ended <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(f.ctx, 4)
	}()
	elapse(time.Second)
	return done
}

// errors returns what was logged as an error.
func (f *fixture) errors() []string {
	var lines []string
	for _, entry := range f.logs.Data() {
		if entry.Type == ktesting.LogError {
			lines = append(lines, fmt.Sprintf("%s: %v", entry.Message, entry.Err))
		}
	}
	return lines
}

// events returns the events recorded since it was last called.
func (f *fixture) events() []string {
	lines := []string{}
	for {
		select {
		case event := <-f.recorder.Events:
			lines = append(lines, event)
		default:
			return lines
		}
	}
}

// expect compares lines.
func expect(t *testing.T, what string, got, want []string) {
	t.Helper()
	if d := diff.Diff(strings.Join(want, "\n"), strings.Join(got, "\n")); d != "" {
		t.Errorf("%s\n got:\n  %s\nwant:\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func keyNamed(name string) cache.ObjectName { return cache.NewObjectName("ci", name) }
