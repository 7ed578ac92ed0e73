package freshness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

var configMaps = schema.GroupResource{Resource: "configmaps"}

// gated is a gate in front of one informer, running in a synctest bubble.
type gated struct {
	*Gate
	source   *source
	informer cache.SharedIndexInformer
	stop     func()
}

// newGated returns a gate that requires the cache of ConfigMaps. adjust may change
// the Cache before it is added, handle is the handler that the gate waits for too.
func newGated(t *testing.T, handle func(obj any), adjust func(*Cache)) *gated {
	t.Helper()
	src := newSource(t)
	informer := cache.NewSharedIndexInformer(src, &corev1.ConfigMap{}, 0, cache.Indexers{})
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: handle})
	if err != nil {
		t.Fatal(err)
	}
	required := Cache{
		Resource: configMaps,
		Informer: informer,
		Handlers: []cache.ResourceEventHandlerRegistration{registration},
		Lister:   src,
	}
	if adjust != nil {
		adjust(&required)
	}
	gate := &Gate{}
	if err := gate.Require(required); err != nil {
		t.Fatal(err)
	}
	return &gated{Gate: gate, source: src, informer: informer}
}

// run starts the informer, and stops it when the test ends.
func (g *gated) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.informer.RunWithContext(ctx)
	}()
	g.stop = func() {
		cancel()
		<-done
	}
}

func TestTheGateOpensWhenTheCacheAndItsHandlersHaveSeenTheInitialList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := 0
		g := newGated(t, func(any) {
			elapse(100 * time.Millisecond) // a slow handler
			seen++
		}, nil)
		for i := range 20 {
			g.source.put(fmt.Sprint("cm-", i))
		}
		g.run(t.Context())
		defer g.stop()
		synctest.Wait()
		if !g.informer.HasSynced() {
			t.Fatal("the store isn't filled, so this test shows nothing")
		}
		if g.Open() || g.Synced(configMaps) {
			t.Error("the gate is open although the handler hasn't seen the list")
		}
		if err := g.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if seen != 20 {
			t.Errorf("the gate opened when the handler had seen %d of 20 objects", seen)
		}
		if !g.Open() || !g.Synced(configMaps) {
			t.Error("the gate isn't open although Wait has returned")
		}
	})
}

func TestTheGateSaysWhyACacheIsMissingAndWhatMendsIt(t *testing.T) {
	forbidden := apierrors.NewForbidden(configMaps, "", errors.New(`User "sa" cannot list resource "configmaps"`))
	for _, test := range []struct {
		name   string
		fault  error
		adjust func(*Cache)
		reason Reason
		want   []string
	}{{
		name:   "the definition isn't installed",
		fault:  &apierrors.StatusError{ErrStatus: apierrors.NewGenericServerResponse(404, "list", configMaps, "", "", 0, true).ErrStatus},
		adjust: func(c *Cache) { c.InstallCommand = "kubectl apply -f crds" },
		reason: NotInstalled,
		want:   []string{"1 of 1 caches not synced within 15s", "configmaps: the API server doesn't know this resource", "install its definition: kubectl apply -f crds"},
	}, {
		name:   "the definition isn't installed, and nobody said how to",
		fault:  &apierrors.StatusError{ErrStatus: apierrors.NewGenericServerResponse(404, "list", configMaps, "", "", 0, true).ErrStatus},
		reason: NotInstalled,
		want:   []string{"kubectl get crd configmaps"},
	}, {
		name:   "list and watch are forbidden",
		fault:  forbidden,
		reason: Forbidden,
		want: []string{`configmaps: forbidden`, `User "sa" cannot list resource`,
			"kubectl create clusterrole read-configmaps --verb=list,watch --resource=configmaps"},
	}, {
		name:   "list and watch are forbidden, and somebody said how to grant them",
		fault:  forbidden,
		adjust: func(c *Cache) { c.GrantCommand = "kubectl apply -f rbac.yaml" },
		reason: Forbidden,
		want:   []string{"grant list and watch: kubectl apply -f rbac.yaml"},
	}, {
		// client-go retries a refused connection without telling anybody: only
		// the diagnosing list finds it.
		name:   "the API server can't be reached",
		fault:  fmt.Errorf("dial tcp 127.0.0.1:6443: connect: %w", syscall.ECONNREFUSED),
		reason: Unreachable,
		want:   []string{"configmaps: unreachable", "connection refused", "kubectl get --raw /readyz"},
	}, {
		name:   "the credentials aren't valid",
		fault:  apierrors.NewUnauthorized("token expired"),
		reason: Unauthorized,
		want:   []string{"configmaps: unauthorized (", "token expired", "kubectl auth whoami"},
	}, {
		name:   "the API server fails",
		fault:  apierrors.NewInternalError(errors.New("etcdserver: no leader")),
		reason: Failing,
		want:   []string{"configmaps: failing", "etcdserver: no leader", "/readyz?verbose"},
	}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGated(t, func(any) {}, test.adjust)
				g.source.failWith(test.fault)
				g.run(t.Context())
				defer g.stop()
				start := time.Now()
				err := g.Wait(t.Context())
				if elapsed := time.Since(start); elapsed != 15*time.Second {
					t.Errorf("Wait took %v, want 15s", elapsed)
				}
				var notSynced *NotSyncedError
				if !errors.As(err, &notSynced) {
					t.Fatalf("got error %v, want a NotSyncedError", err)
				}
				if got := notSynced.Missing[0].Reason; got != test.reason {
					t.Errorf("got reason %q, want %q", got, test.reason)
				}
				for _, want := range test.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("message doesn't contain %q:\n%v", want, err)
					}
				}
				if g.Open() {
					t.Error("the gate is open although Wait has failed")
				}
			})
		})
	}
}

func TestTheGateTellsASlowHandlerFromASlowList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, func(any) { elapse(time.Minute) }, nil)
		g.source.put("cm")
		g.run(t.Context())
		defer g.stop()
		var notSynced *NotSyncedError
		if err := g.Wait(t.Context()); !errors.As(err, &notSynced) || notSynced.Missing[0].Reason != HandlersBehind {
			t.Errorf("got error %v, want one that blames the handler", err)
		}
	})
}

func TestTheGateDoesNotBlameAnErrorThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, func(any) {}, nil)
		g.source.failWith(apierrors.NewForbidden(configMaps, "", nil))
		g.run(t.Context())
		defer g.stop()
		go func() {
			elapse(15*time.Second - 1)
			g.source.failWith(nil) // too late for client-go's next try
		}()
		var notSynced *NotSyncedError
		err := g.Wait(t.Context())
		if !errors.As(err, &notSynced) || notSynced.Missing[0].Reason != Slow {
			t.Fatalf("got %v, want an error that says that the list works by now", err)
		}
		if !strings.Contains(err.Error(), "what was missing came late") || !apierrors.IsForbidden(err) {
			t.Errorf("message doesn't tell of the error that is over: %v", err)
		}
	})
}

func TestTheGateOpensIfWhatIsMissingComesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, func(any) {}, nil)
		g.source.failWith(apierrors.NewForbidden(configMaps, "", nil))
		g.run(t.Context())
		defer g.stop()
		go func() {
			elapse(time.Second)
			g.source.failWith(nil)
		}()
		if err := g.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	g := newGated(t, func(any) {}, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("told to stop"))
	if err := g.Wait(ctx); err == nil || !strings.Contains(err.Error(), "wait for the cache of configmaps: told to stop") {
		t.Errorf("got %v, want an error with the context's cause", err)
	}
}

func TestAnInformerThatWasStartedCannotBeRequired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, func(any) {}, nil)
		g.run(t.Context())
		defer g.stop()
		synctest.Wait()
		if err := g.Require(Cache{Resource: configMaps, Informer: g.informer}); err == nil {
			t.Error("got no error for an informer that was started")
		}
	})
}

func TestAnOptionalCacheIsStartedOnceItsResourceCanBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t)
		src.failWith(apierrors.NewForbidden(configMaps, "", nil))
		src.put("cm")
		informer := cache.NewSharedIndexInformer(src, &corev1.ConfigMap{}, 0, cache.Indexers{})
		gate := &Gate{}
		if err := gate.AddOptional(Cache{Resource: configMaps, Informer: informer, Lister: src}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			gate.RunOptional(ctx)
		}()
		defer func() {
			cancel()
			<-done
		}()
		if err := gate.Wait(ctx); err != nil {
			t.Errorf("a gate with nothing but an optional cache must open at once, got %v", err)
		}
		elapse(10 * time.Minute)
		synctest.Wait()
		if got := len(src.asked()); got != 21 {
			t.Errorf("got %d requests in 10 minutes, want 21 probes", got)
		}
		src.failWith(nil)
		elapse(DefaultProbeInterval)
		synctest.Wait()
		if !gate.Synced(configMaps) {
			t.Error("the optional cache wasn't filled although its resource can be listed")
		}
		if got := len(informer.GetStore().ListKeys()); got != 1 {
			t.Errorf("got %d objects in the store, want 1", got)
		}
	})
}

// An operator is told once what is missing and what mends it, and not with each probe.
func TestAnOptionalCacheThatIsMissingIsToldOfOncePerReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t)
		src.failWith(apierrors.NewForbidden(configMaps, "", errors.New(`User "sa" cannot list resource "configmaps"`)))
		gate := &Gate{}
		if err := gate.AddOptional(Cache{
			Resource: configMaps, Lister: src, GrantCommand: "kubectl apply -f rbac.yaml",
			Informer: cache.NewSharedIndexInformer(src, &corev1.ConfigMap{}, 0, cache.Indexers{}),
		}); err != nil {
			t.Fatal(err)
		}
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		done := make(chan struct{})
		go func() {
			defer close(done)
			gate.RunOptional(ctx)
		}()
		defer func() {
			cancel()
			<-done
		}()
		expect := func(when string, n int, last string) {
			t.Helper()
			synctest.Wait()
			lines := strings.Split(strings.TrimSpace(logger.GetSink().(ktesting.Underlier).GetBuffer().String()), "\n")
			if len(lines) != n || !strings.Contains(lines[len(lines)-1], last) {
				t.Errorf("%s the log has the lines\n%s\nwant %d, with %q in the last", when, strings.Join(lines, "\n"), n, last)
			}
		}
		elapse(10 * time.Minute)
		expect("forbidden for 10 minutes,", 1, `grant list and watch: kubectl apply -f rbac.yaml`)
		src.failWith(apierrors.NewInternalError(errors.New("etcdserver: no leader")))
		elapse(10 * time.Minute)
		expect("failing for 10 minutes,", 2, "etcdserver: no leader")
		src.failWith(nil)
		elapse(DefaultProbeInterval)
		expect("there in the end,", 3, "Optional cache is there")
	})
}

func TestAnOptionalCacheNeedsALister(t *testing.T) {
	gate := &Gate{}
	if err := gate.AddOptional(Cache{Resource: configMaps}); err == nil {
		t.Error("got no error for an optional cache that can't be probed")
	}
	if gate.Synced(configMaps) {
		t.Error("a cache that was never added can't be synced")
	}
}
