package freshness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// filler is a small controller: for its only key it creates ConfigMaps under names of its
// own choice until the cache shows as many as are wanted. Nothing in it guards against a
// cache that is old.
type filler struct {
	store  cache.Store
	client kubernetes.Interface
	named  atomic.Int64
}

const wanted = 5

func (f *filler) reconcile(ctx context.Context, _ string) (Result, error) {
	var errs []error
	for range wanted - len(f.store.ListKeys()) {
		_, err := f.client.CoreV1().ConfigMaps("ns").Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("cm-", f.named.Add(1))},
		}, metav1.CreateOptions{})
		errs = append(errs, err)
	}
	return Result{}, errors.Join(errs...)
}

// shop is a filler with all guards around it, running against a source behind HTTP.
type shop struct {
	*Guards[string]
	source *source
	filler *filler
	feed   *Feed
	work   Reconciler[string]
}

// openShop starts everything, with two workers. guarded false leaves the
// backlog's middleware out, to show what it is for.
func openShop(t *testing.T, guarded bool, faults func(http.ResponseWriter, *http.Request) bool) *shop {
	t.Helper()
	src := newSource(t)
	s := &shop{source: src}
	guards, err := New(serve(t, src, faults), Options[string]{WriteTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s.Guards = guards
	s.filler = &filler{client: kubernetes.NewForConfigOrDie(guards.Writes())}
	reads := kubernetes.NewForConfigOrDie(guards.Reads())
	s.feed, err = guards.Feed(FeedConfig{
		Resource:      configMapsV1,
		Object:        &corev1.ConfigMap{},
		ListerWatcher: cache.NewListWatchFromClient(reads.CoreV1().RESTClient(), "configmaps", "", fields.Everything()),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.filler.store = s.feed.Informer().GetStore()
	add := func(any) { guards.Queue.Add("key") }
	_, err = guards.Handle(s.feed, cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, new any) { add(new) }, DeleteFunc: add})
	if err != nil {
		t.Fatal(err)
	}
	s.work = guards.Chain(s.filler.reconcile)
	if !guarded {
		s.work = s.filler.reconcile
	}
	s.start(t)
	return s
}

func (s *shop) start(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ran, worked := make(chan error, 1), make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	go func() { worked <- s.Work(ctx, 2, s.work) }()
	until(t, "the caches are complete", func() bool { return s.Ready() == nil })
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ran, <-worked); err != nil {
			t.Errorf("Run and Work returned %v", err)
		}
	})
}

// count returns how many objects the API server has.
func (s *shop) count() int {
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	return len(s.source.objects)
}

// until waits for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func TestAStaleCacheMakesNobodyCreateTwice(t *testing.T) {
	s := openShop(t, true, nil)
	s.source.hold() // the cache sees nothing of what is created
	s.Queue.Add("key")
	until(t, "the first batch is created", func() bool { return s.count() == wanted })
	for i := range 50 {
		s.Queue.Add("key") // as unrelated events would do
		until(t, fmt.Sprintf("attempt %d is turned away", i), func() bool { return s.Queue.Len() == 0 && len(s.Backlog.Parked()) == 1 })
	}
	if got := s.count(); got != wanted {
		t.Errorf("%d objects were created while the cache was old, want %d", got, wanted)
	}
	s.source.release()
	until(t, "the key is released", func() bool { return len(s.Backlog.Parked()) == 0 })
	until(t, "the key has been worked on", func() bool { return s.Queue.Len() == 0 && s.Ledger.Len() == 0 })
	if got := s.count(); got != wanted {
		t.Errorf("%d objects were created in the end, want %d", got, wanted)
	}
	if err := s.Ready(); err != nil {
		t.Errorf("got %v, want ready", err)
	}
}

// The same without the guard: it shows that the story above is a real one.
func TestWithoutTheLedgerAStaleCacheMakesTheControllerCreateTwice(t *testing.T) {
	s := openShop(t, false, nil)
	s.source.hold()
	s.Queue.Add("key")
	until(t, "the first batch is created", func() bool { return s.count() >= wanted })
	s.Queue.Add("key")
	until(t, "the second batch is created", func() bool { return s.count() == 2*wanted })
	s.source.release()
}

func TestALostAnswerMakesNobodyCreateTwice(t *testing.T) {
	var s *shop
	var lost atomic.Bool
	s = openShop(t, true, func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || lost.Swap(true) {
			return false
		}
		// It commits, and its answer never arrives.
		s.source.put("cm-1")
		panic(http.ErrAbortHandler)
	})
	s.Queue.Add("key")
	until(t, "all is created", func() bool { return s.count() >= wanted })
	until(t, "nothing is left to do", func() bool { return s.Queue.Len() == 0 && s.Ledger.Len() == 0 })
	if got := s.count(); got != wanted {
		t.Errorf("%d objects were created, want %d", got, wanted)
	}
	if got := counterValue(t, s.Metrics.writes.WithLabelValues("configmaps", "create", "in_doubt")); got != 1 {
		t.Errorf("%v writes were in doubt, want 1", got)
	}
}

func TestAWriteThatIsLostBeforeItCommitsIsMadeUpFor(t *testing.T) {
	var lost atomic.Bool
	s := openShop(t, true, func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || lost.Swap(true) {
			return false
		}
		panic(http.ErrAbortHandler)
	})
	s.Queue.Add("key")
	until(t, "all is created", func() bool { return s.count() >= wanted })
	until(t, "nothing is left to do", func() bool { return s.Queue.Len() == 0 && s.Ledger.Len() == 0 })
	if got := s.count(); got != wanted {
		t.Errorf("%d objects were created, want %d", got, wanted)
	}
}

func TestADeletionOutsideIsMadeUpForOnce(t *testing.T) {
	s := openShop(t, true, nil)
	s.Queue.Add("key")
	until(t, "all is created", func() bool { return s.count() == wanted && s.Ledger.Len() == 0 })
	if err := s.filler.client.CoreV1().ConfigMaps("ns").Delete(t.Context(), "cm-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "another is created", func() bool { return s.filler.named.Load() == wanted+1 && s.count() == wanted && s.Ledger.Len() == 0 })
}

func TestReadsAndWritesHaveConnectionsOfTheirOwn(t *testing.T) {
	var mu sync.Mutex
	remotes := map[string]string{}
	s := openShop(t, true, func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		remotes["write"] = r.RemoteAddr
		remotes["timeout"] = r.URL.Query().Get("timeout")
		return false
	})
	if got := s.Reads().Timeout; got != 0 {
		t.Errorf("reads have a timeout of %v, which would end watches", got)
	}
	s.Queue.Add("key")
	until(t, "all is created", func() bool { return s.count() == wanted })
	mu.Lock()
	if got := remotes["timeout"]; got != "1s" {
		t.Errorf("the API server was told a write timeout of %q, want 1s", got)
	}
	mu.Unlock()
	// Closing the reads' connections leaves the writes' alone, and the watch comes
	// back on a new one.
	before := len(s.source.asked())
	s.reconnect()
	until(t, "the feed watches again", func() bool { return len(s.source.asked()) > before })
	s.source.put("other")
	until(t, "the cache hears of new objects", func() bool { return s.feed.Version() == fmt.Sprint(100+wanted+1) })
}

func TestGuardsThatCannotSyncEndWithTheCause(t *testing.T) {
	src := newSource(t)
	config := serve(t, src, nil)
	guards, err := New(config, Options[string]{SyncTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer guards.Queue.ShutDown()
	src.failWith(errors.New("gone"))
	reads := kubernetes.NewForConfigOrDie(guards.Reads())
	_, err = guards.Feed(FeedConfig{
		Resource:      configMapsV1,
		Object:        &corev1.ConfigMap{},
		ListerWatcher: cache.NewListWatchFromClient(reads.CoreV1().RESTClient(), "configmaps", "", fields.Everything()),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := guards.Ready(); err == nil {
		t.Error("the guards are ready before they run")
	}
	var notSynced *NotSyncedError
	if err := guards.Run(t.Context()); !errors.As(err, &notSynced) || !strings.Contains(err.Error(), "configmaps: unreachable") {
		t.Errorf("got %v, want an error that says why the cache is missing", err)
	}
}

// A reflector that sleeps in its backoff heeds no context: the process ended half a minute
// after it had given up.
func TestRunDoesNotWaitForAReflectorThatSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 2 * time.Minute
		guards, err := New(&rest.Config{Host: "http://127.0.0.1"}, Options[string]{SyncTimeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		defer guards.Queue.ShutDown()
		_, err = guards.Feed(FeedConfig{
			Resource: configMapsV1,
			Object:   &corev1.ConfigMap{},
			ListerWatcher: &cache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					return nil, apierrors.NewTooManyRequestsError("throttled")
				},
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
					return nil, apierrors.NewTooManyRequestsError("throttled")
				},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		var notSynced *NotSyncedError
		if err := guards.Run(t.Context()); !errors.As(err, &notSynced) {
			t.Errorf("got %v, want a *NotSyncedError", err)
		}
		if took := time.Since(begun); took > timeout+stopGrace {
			t.Errorf("Run returned after %s, %s after it had given up, want %s at most", took, took-timeout, stopGrace)
		}
		elapse(5 * time.Minute) // until the reflector has woken, and ended
	})
}
