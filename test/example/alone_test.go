package main

// Single guards, as docs/freshness.md shows them, each at work on the real API server.

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"warmpool.dev/controller/pkg/freshness"
	"warmpool.dev/controller/test/faultproxy"
)

// docs: gate

// started returns when the informer's cache is complete and its handler has been handed all
// of it. After patience it returns an error that names what is missing, why, and what mends it.
func started(ctx context.Context, informer cache.SharedIndexInformer, handler cache.ResourceEventHandler, patience time.Duration) error {
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return err
	}
	gate := freshness.Gate{Timeout: patience}
	err = gate.Require(freshness.Cache{
		Resource: corev1.Resource("configmaps"),
		Informer: informer,
		Handlers: []cache.ResourceEventHandlerRegistration{registration},
	})
	if err != nil {
		return err
	}
	go informer.RunWithContext(ctx)
	return gate.Wait(ctx)
}

// docs: end

// docs: feed

// feed makes a factory's informer of ConfigMaps one that never lists from an old cache.
func feed(factory informers.SharedInformerFactory, kube kubernetes.Interface) (*freshness.Feed, error) {
	feed, err := freshness.NewFeed(freshness.FeedConfig{
		Resource:      corev1.SchemeGroupVersion.WithResource("configmaps"),
		Object:        &corev1.ConfigMap{},
		ListerWatcher: cache.NewListWatchFromClient(kube.CoreV1().RESTClient(), "configmaps", metav1.NamespaceAll, fields.Everything()),
		Indexers:      cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
	})
	if err != nil {
		return nil, err
	}
	factory.InformerFor(&corev1.ConfigMap{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		return feed.Informer()
	})
	return feed, nil
}

// docs: end

// docs: ledger

// ledger lets a reconcile function see only caches that hold all it has written. What it
// writes with a client of config, under the context that it is given, is recorded. run is to
// run as long as the workers of queue do.
func ledger(config *rest.Config, feed *freshness.Feed, reconcile freshness.Reconciler[string]) (
	queue *freshness.Queue[string], guarded freshness.Reconciler[string], run func(context.Context) error, err error,
) {
	ledger := freshness.NewLedger[string](freshness.LedgerConfig{WriteTimeout: config.Timeout})
	ledger.Track(feed.Resource().GroupResource(), feed.Informer().GetStore())
	queue = freshness.NewQueue(freshness.QueueConfig[string]{})
	backlog := freshness.NewBacklog(freshness.BacklogConfig[string]{Ledger: ledger, Queue: queue})
	live, err := freshness.NewLive(config)
	if err != nil {
		return nil, nil, nil, err
	}
	transport := freshness.Transport[string]{Ledger: ledger}
	if err := transport.Wrap(config); err != nil {
		return nil, nil, nil, err
	}
	run = func(ctx context.Context) error {
		var running sync.WaitGroup
		defer running.Wait()
		running.Go(func() { backlog.Run(ctx, feed) })
		// Without it a write whose answer is lost could stay in doubt for ever.
		return freshness.NewValidator(freshness.ValidatorConfig[string]{
			Ledger: ledger, Backlog: backlog, Feeds: []*freshness.Feed{feed}, Live: live,
		}).Run(ctx)
	}
	return queue, freshness.Chain(reconcile, backlog.Middleware), run, nil
}

// docs: end

// docs: fence

// caughtUp returns when the feed's cache holds all that was at the API server when it was
// called: after leadership was acquired, and before the workers start.
func caughtUp(ctx context.Context, config *rest.Config, feed *freshness.Feed) error {
	live, err := freshness.NewLive(config)
	if err != nil {
		return err
	}
	fence := freshness.Fence{Feeds: []*freshness.Feed{feed}, Live: live}
	return fence.Wait(ctx)
}

// docs: end

// docs: term

// fenced keeps the clients of config, which are made afterwards, from writing when their
// leader's lease may be another's by the time the write lands. The lock that it returns is
// for the LeaderElectionConfig.
func fenced(lock resourcelock.Interface, config *rest.Config) (*freshness.Term, error) {
	term := freshness.NewTerm(lock, config.Timeout, nil)
	transport := freshness.Transport[string]{
		Ledger: freshness.NewLedger[string](freshness.LedgerConfig{}), // tracks nothing
		Permit: term.Permit,
	}
	return term, transport.Wrap(config)
}

// docs: end

// docs: watermark

// newsOnly tells handler of what is news, and of nothing that is older than what it was told.
func newsOnly(feed *freshness.Feed, handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return feed.Informer().AddEventHandler(freshness.NewWatermark(nil, feed.ForceRelist).Handler(handler))
}

// docs: end

// proxied returns a proxy with the configuration that leads to it, and a client past it.
func proxied(t *testing.T) (*faultproxy.Proxy, *rest.Config, kubernetes.Interface) {
	t.Helper()
	target := administrator(t)
	proxy, err := faultproxy.Start(faultproxy.Options{Target: target})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	kube, err := kubernetes.NewForConfig(target)
	if err != nil {
		t.Fatal(err)
	}
	return proxy, proxy.Config(target), kube
}

func clientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return kube
}

// newFeed returns the feed of all ConfigMaps through a configuration.
func newFeed(t *testing.T, config *rest.Config) (*freshness.Feed, informers.SharedInformerFactory) {
	t.Helper()
	kube := clientOf(t, config)
	factory := informers.NewSharedInformerFactory(kube, 0)
	feed, err := feed(factory, kube)
	if err != nil {
		t.Fatal(err)
	}
	return feed, factory
}

// startFactory runs a factory's informers until the test ends, and waits until they are full.
func startFactory(t *testing.T, factory informers.SharedInformerFactory) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	factory.StartWithContext(ctx)
	if err := factory.WaitForCacheSyncWithContext(within(t, deadline)).AsError(); err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, kube kubernetes.Interface, namespace, name string) *corev1.ConfigMap {
	t.Helper()
	created, err := kube.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// next receives from a channel, within a deadline.
func next(t *testing.T, received <-chan string) string {
	t.Helper()
	select {
	case s := <-received:
		return s
	case <-within(t, deadline).Done():
		t.Fatal("nothing came in time")
		return ""
	}
}

func TestTheGateAloneSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	proxy, config, kube := proxied(t)
	namespace := newNamespace(t, kube)
	create(t, kube, namespace, "there")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	newInformer := func() cache.SharedIndexInformer {
		return informers.NewSharedInformerFactory(clientOf(t, config), 0).Core().V1().ConfigMaps().Informer()
	}
	var handed atomic.Int64
	handler := cache.ResourceEventHandlerFuncs{AddFunc: func(any) { handed.Add(1) }}
	if err := started(ctx, newInformer(), handler, deadline); err != nil {
		t.Fatal(err)
	}
	if handed.Load() == 0 {
		t.Error("it was open before the handler was handed anything")
	}

	proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Verb: faultproxy.Reads, Resource: "configmaps"}, Do: faultproxy.Refuse(faultproxy.Forbidden())})
	err := started(ctx, newInformer(), handler, 2*time.Second)
	for _, want := range []string{"1 of 1 caches not synced within 2s", "configmaps: forbidden", "kubectl create clusterrole"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want it to say %q", err, want)
		}
	}
}

func TestTheFeedAloneNeverListsFromAnOldCache(t *testing.T) {
	t.Parallel()
	for name, guarded := range map[string]bool{"the factory's own informer": false, "a feed": true} {
		proxy, config, kube := proxied(t)
		created := create(t, kube, newNamespace(t, kube), "there")
		// This is what makes client-go fall back to a list from any cache.
		proxy.Add(faultproxy.Rule{
			Match: faultproxy.Match{Verb: "watch", Where: func(r *faultproxy.Request) bool { return r.Query.Get("sendInitialEvents") == "true" }},
			Do:    faultproxy.Refuse(faultproxy.InternalError()),
		})
		factory := informers.NewSharedInformerFactory(clientOf(t, config), 0)
		if guarded {
			_, factory = newFeed(t, config)
		}
		lister := factory.Core().V1().ConfigMaps().Lister()
		startFactory(t, factory)
		if _, err := lister.ConfigMaps(created.Namespace).Get("there"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		fromCache := len(proxy.Log().Select(faultproxy.Match{Verb: "list", Resource: "configmaps", Where: faultproxy.FromCache}))
		if (fromCache == 0) != guarded {
			t.Errorf("%s listed %d times with resourceVersion=0", name, fromCache)
		}
	}
}

func TestTheLedgerAloneParksAKeyUntilItsWriteIsInTheCache(t *testing.T) {
	t.Parallel()
	proxy, config, kube := proxied(t)
	config.Timeout = 5 * time.Second
	namespace := newNamespace(t, kube)
	feed, factory := newFeed(t, proxy.Config(administrator(t)))
	calls := 0
	queue, reconcile, run, err := ledger(config, feed, func(ctx context.Context, name string) (freshness.Result, error) {
		calls++
		if calls == 1 {
			_, err := clientOf(t, config).CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return freshness.Result{}, err
		}
		_, err := factory.Core().V1().ConfigMaps().Lister().ConfigMaps(namespace).Get(name)
		return freshness.Result{}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer queue.ShutDown()
	startFactory(t, factory)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	held := proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Verb: "watch", Resource: "configmaps"}, Do: faultproxy.HoldStream()})
	if _, err := reconcile(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if result, err := reconcile(ctx, "a"); !result.Parked || err != nil || calls != 1 {
		t.Fatalf("got %+v, %v after %d calls, want the key parked after one", result, err, calls)
	}
	held.Release()
	eventually(t, "the key to be released", func() error {
		if queue.Len() == 0 {
			return errors.New("the queue is empty")
		}
		return nil
	})
	key, _ := queue.Get()
	queue.Done(key)
	if result, err := reconcile(ctx, key); result.Parked || err != nil || calls != 2 {
		t.Fatalf("got %+v, %v after %d calls, want the ConfigMap found by the second", result, err, calls)
	}
}

func TestTheFenceAloneWaitsForWhatTheAPIServerHas(t *testing.T) {
	t.Parallel()
	proxy, config, kube := proxied(t)
	feed, factory := newFeed(t, config)
	startFactory(t, factory)
	proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Verb: "watch", Resource: "configmaps"}, Times: 1, Do: faultproxy.HoldStream()})
	created := create(t, kube, newNamespace(t, kube), "by-the-predecessor")
	if err := caughtUp(within(t, deadline), administrator(t), feed); err != nil {
		t.Fatal(err)
	}
	if _, err := factory.Core().V1().ConfigMaps().Lister().ConfigMaps(created.Namespace).Get(created.Name); err != nil {
		t.Errorf("what was there when the fence was asked isn't in the cache: %v", err)
	}
}

func TestTheTermAloneStopsWritesOfALeaderThatIsNone(t *testing.T) {
	t.Parallel()
	config := administrator(t)
	config.Timeout = time.Second
	namespace := newNamespace(t, clientOf(t, administrator(t)))
	election := clientOf(t, administrator(t))
	term, err := fenced(&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: "example"},
		Client:     election.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: "a"},
	}, config)
	if err != nil {
		t.Fatal(err)
	}
	kube := clientOf(t, config)
	write := func(name string) error {
		_, err := kube.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	if err := write("before"); !errors.Is(err, freshness.ErrTermEnded) {
		t.Errorf("got %v for a write before the lease was taken, want ErrTermEnded", err)
	}
	if err := term.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "a", LeaseDurationSeconds: 60}); err != nil {
		t.Fatal(err)
	}
	if err := write("during"); err != nil {
		t.Errorf("a write of the leader: %v", err)
	}
	if err := term.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "b", LeaseDurationSeconds: 60}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := term.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := write("after"); !errors.Is(err, freshness.ErrTermEnded) {
		t.Errorf("got %v for a write after another took the lease, want ErrTermEnded", err)
	}
}

func TestTheWatermarkAloneDropsOldEvents(t *testing.T) {
	t.Parallel()
	proxy, config, kube := proxied(t)
	feed, factory := newFeed(t, config)
	namespace := newNamespace(t, kube)
	seen := make(chan string, 100)
	_, err := newsOnly(feed, cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if c := obj.(*corev1.ConfigMap); c.Namespace == namespace {
				seen <- c.ResourceVersion
			}
		},
		UpdateFunc: func(_, obj any) {
			if c := obj.(*corev1.ConfigMap); c.Namespace == namespace {
				seen <- c.ResourceVersion
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	startFactory(t, factory)
	// The first change overtakes the creation, as no API server would have it.
	late := proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Namespace: namespace, Event: "ADDED"}, Times: 1, Do: faultproxy.HoldEvents()})
	created := create(t, kube, namespace, "a")
	if err := late.WaitFired(within(t, deadline), 1); err != nil {
		t.Fatal(err)
	}
	created.Data = map[string]string{"changed": "true"}
	changed, err := kube.CoreV1().ConfigMaps(namespace).Update(t.Context(), created, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := next(t, seen); got != changed.ResourceVersion {
		t.Fatalf("got version %s first, want the change's, %s", got, changed.ResourceVersion)
	}
	late.Release()
	last := create(t, kube, namespace, "b")
	if got := next(t, seen); got != last.ResourceVersion {
		t.Errorf("got version %s next, want the next object's, %s, and nothing of the creation's, %s", got, last.ResourceVersion, created.ResourceVersion)
	}
}
