package freshness

// Feed: where an informer gets its objects from, and the sign that it got them.
//
// Closes four gaps of an informer on its own:
//
//   - Stale first lists. When the streamed list fails, client-go falls back to a list
//     with resourceVersion "0", which any API server may answer from its watch cache
//     as of any time; one that is cut off from etcd fails the first and answers the
//     second (kubernetes/kubernetes#59848). Here every list, first or later, asked for
//     by whatever means, is a quorum read.
//   - Silent watches. The timeout of a watch is kept by the server alone, and a watch
//     on an API server that lags is accepted and stays silent. Here it is bounded on
//     the client's side too, the time of the last sign of life is known, and it can be
//     told from outside to watch again, to list again, or to fetch a bookmark.
//   - Slow recovery. After failures in a row client-go waits up to a minute before it
//     asks again, also if the API server is well by then. Here it is 5 s at most; see
//     tap.go.
//   - No progress signal. Events tell of objects, but nothing tells that the store's
//     version has moved: client-go has no hook for bookmarks. It has a metric, though,
//     which it sets under the store's lock on every change of version, bookmarks
//     included. It is used as a signal only; the version is read from the store.
//
// Costs: a goroutine for each watch and one more hand-over of each event; a list
// that is a quorum read costs the API server a little more than one from its cache.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/utils/clock"
)

const (
	// DefaultWatchTimeout is after how long at most a watch is started anew.
	DefaultWatchTimeout = 2 * time.Minute
	// listTimeout is how long a list that is streamed, and the watch that it goes on
	// as, may last at least: as long as client-go gives it.
	listTimeout = 5 * time.Minute
	// watchGrace is how long after its timeout a watch is ended from here, if the
	// API server hasn't done it.
	watchGrace = 10 * time.Second
	// nudgeTimeout is short enough for the API server to send a bookmark at once:
	// it sends one 2 s before a watch's timeout, give or take a second
	// (k8s.io/apiserver, cacheWatcher.nextBookmarkTime).
	nudgeTimeout = 3 * time.Second
	// relistPause is how long after a forced list no other is forced.
	relistPause = 5 * time.Second
	// attemptTimeout is how long a list that isn't streamed may take: somewhat longer
	// than an API server allows itself.
	attemptTimeout = 65 * time.Second
)

// FeedConfig configures a Feed. Resource, Object and ListerWatcher are required.
type FeedConfig struct {
	Resource schema.GroupVersionResource
	// Object is an empty object of the type that the informer holds.
	Object runtime.Object
	// ListerWatcher lists and watches the resource.
	ListerWatcher cache.ListerWatcher
	// Namespace, LabelSelector and FieldSelector are what the ListerWatcher is
	// restricted to. They are for comparing the store with the API server.
	Namespace, LabelSelector, FieldSelector string
	Indexers                                cache.Indexers
	// Transform, if it isn't nil, changes objects before they are stored. It must
	// not fail, since the object would be missing and the store's version say
	// that it isn't, and must leave the resourceVersion alone.
	Transform cache.TransformFunc
	// InstallCommand and GrantCommand are what mends a cache that is missing because
	// the API server doesn't know the resource, or forbids it; see Cache.
	InstallCommand, GrantCommand string
	// Optional is for Guards: the cache may come later, or never, nothing waits for
	// it, and no key is stale because of it.
	Optional bool
	// WatchTimeout is after how long at most a watch is started anew; the real
	// time is random, from half of it. 0: DefaultWatchTimeout.
	WatchTimeout time.Duration
	// Clock is for the time of the last sign of life. Nil: the real one.
	Clock clock.PassiveClock
	// Metrics counts what the feed does. Nil: nothing is counted.
	Metrics *Metrics
}

// Feed feeds one informer. It is safe for concurrent use. Make it with NewFeed.
type Feed struct {
	config   FeedConfig
	source   cache.ListerWatcherWithContext
	informer cache.SharedIndexInformer
	// followers are told when the store's version changes. The slice is replaced,
	// never changed.
	followers atomic.Pointer[[]chan struct{}]
	// woken receives when a list that failed is to be tried again at once.
	woken chan struct{}
	// moved is when the store's version last changed, in nanoseconds since 1970.
	moved atomic.Int64

	mu        sync.Mutex
	lastHeard time.Time
	relisted  time.Time
	current   *tap
	nudged    bool
}

// feedNumber makes the names of informers unique in the process, as client-go
// demands it.
var feedNumber atomic.Int64

// NewFeed returns a feed and makes its informer, which is not running yet. It returns
// an error if client-go's feature AtomicFIFO is off: without it a store doesn't tell
// its version, and no guard that needs it would work.
func NewFeed(config FeedConfig) (*Feed, error) {
	if !features.FeatureGates().Enabled(features.AtomicFIFO) {
		return nil, fmt.Errorf("client-go's feature AtomicFIFO is off, so the cache of %s can't tell how fresh it is: remove KUBE_FEATURE_AtomicFIFO=false from the environment", config.Resource.Resource)
	}
	if config.WatchTimeout == 0 {
		config.WatchTimeout = DefaultWatchTimeout
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	f := &Feed{config: config, source: cache.ToListerWatcherWithContext(config.ListerWatcher), woken: make(chan struct{}, 1)}
	f.followers.Store(&[]chan struct{}{})
	name, err := cache.NewInformerName(fmt.Sprintf("freshness-%d", feedNumber.Add(1)))
	if err != nil {
		return nil, fmt.Errorf("name the informer of %s: %w", config.Resource.Resource, err)
	}
	f.informer = cache.NewSharedIndexInformerWithOptions(&feedListerWatcher{f}, config.Object, cache.SharedIndexInformerOptions{
		Indexers:                config.Indexers,
		Identifier:              name.WithResource(config.Resource),
		InformerMetricsProvider: progressSignal{f},
	})
	if config.Transform != nil {
		if err := f.informer.SetTransform(config.Transform); err != nil {
			return nil, fmt.Errorf("set the transform of the informer of %s: %w", config.Resource.Resource, err)
		}
	}
	return f, nil
}

// Informer returns the informer. A generated factory takes it by InformerFor, so
// that generated listers use it.
func (f *Feed) Informer() cache.SharedIndexInformer { return f.informer }

// Resource returns what is fed.
func (f *Feed) Resource() schema.GroupVersionResource { return f.config.Resource }

// Cache returns what a Gate needs to wait for the informer and these handlers.
func (f *Feed) Cache(handlers ...cache.ResourceEventHandlerRegistration) Cache {
	return Cache{
		Resource:       f.config.Resource.GroupResource(),
		Informer:       f.informer,
		Handlers:       handlers,
		Lister:         f.source,
		InstallCommand: f.config.InstallCommand,
		GrantCommand:   f.config.GrantCommand,
	}
}

// Version returns the version that the store has reached, "" before the first list.
// Objects read from the store afterwards are at least that new.
func (f *Feed) Version() string { return f.informer.GetStore().LastStoreSyncResourceVersion() }

// Follow returns a channel that receives when the store's version has changed, and a
// function that ends this. Several changes may give one signal; none is lost.
func (f *Feed) Follow() (progress <-chan struct{}, stop func()) {
	signal := make(chan struct{}, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	followers := append(slices.Clone(*f.followers.Load()), signal)
	f.followers.Store(&followers)
	return signal, func() { f.unfollow(signal) }
}

func (f *Feed) unfollow(signal chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	followers := slices.DeleteFunc(slices.Clone(*f.followers.Load()), func(other chan struct{}) bool { return other == signal })
	f.followers.Store(&followers)
}

// WaitFor waits until the store has reached version. It returns ctx's cause when ctx
// ends before, and an error if version can't be compared with others.
func (f *Feed) WaitFor(ctx context.Context, version string) error {
	if !ordered(version) {
		return fmt.Errorf("wait for the cache of %s: version %q can't be compared", f.config.Resource.Resource, version)
	}
	progress, stop := f.Follow()
	defer stop()
	for {
		if order, err := resourceversion.CompareResourceVersion(f.Version(), version); err == nil && order >= 0 {
			return nil
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return fmt.Errorf("wait for the cache of %s to get from version %s to %s: %w",
				f.config.Resource.Resource, f.Version(), version, context.Cause(ctx))
		}
	}
}

// LastHeard returns when the API server last gave a sign of life: an event, a
// bookmark, the answer to a list. It is the zero time before the first.
func (f *Feed) LastHeard() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lastHeard
}

// Bounce ends the current watch and starts another from where it was. Where a list or a
// watch has failed and the next try isn't due, it is made at once.
func (f *Feed) Bounce() { f.tell(watchAgain, false) }

// Nudge is a Bounce after which the API server sends a bookmark within about 2 s, so
// that the store of a collection in which nothing happens catches up, too. How far depends
// on the API server's own cache, which a quorum read of the resource brings up to date.
func (f *Feed) Nudge() { f.tell(watchAgain, true) }

// ForceRelist makes the informer list everything anew, by a quorum read, after
// client-go's backoff of about a second, and of twice that for each further one within two
// minutes. It does nothing within 5 s of the last time: the list that was asked for then
// may be on its way.
func (f *Feed) ForceRelist() {
	now := f.config.Clock.Now()
	f.mu.Lock()
	soon := now.Sub(f.relisted) < relistPause
	if !soon {
		f.relisted = now
	}
	f.mu.Unlock()
	if !soon {
		f.tell(listAgain, false)
	}
}

func (f *Feed) tell(what command, nudge bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nudged = f.nudged || nudge
	if f.current == nil {
		select {
		case f.woken <- struct{}{}:
		default:
		}
		return
	}
	select {
	case f.current.commands <- what:
	default: // it has been told something
	}
}

func (f *Feed) heard() {
	now := f.config.Clock.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastHeard = now
}

// timeout returns how long the next watch may last.
func (f *Feed) timeout() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.nudged {
		f.nudged = false
		return nudgeTimeout
	}
	half := f.config.WatchTimeout / 2
	return (half + rand.N(half+1)).Round(time.Second)
}

// feedListerWatcher is what the informer's reflector sees of a Feed.
type feedListerWatcher struct{ *Feed }

var (
	_ cache.ListerWatcher            = &feedListerWatcher{}
	_ cache.ListerWatcherWithContext = &feedListerWatcher{}
)

// IsWatchListSemanticsUnSupported passes on that the source, a fake clientset for
// one, can't stream lists.
func (f *feedListerWatcher) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(f.config.ListerWatcher)
}

// List implements cache.Lister.
func (f *feedListerWatcher) List(options metav1.ListOptions) (runtime.Object, error) {
	return f.ListWithContext(context.Background(), options)
}

// ListWithContext lists by a quorum read, and all at once: pages would come from etcd. It
// tries until it has a list, or ctx ends: the reflector would wait longer and longer.
func (f *feedListerWatcher) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.ResourceVersion == "0" {
		f.config.Metrics.fired(GuardFeed, "stale_list_prevented")
	}
	options.ResourceVersion, options.ResourceVersionMatch, options.Limit = "", "", 0
	var pause pause
	for {
		list, err := f.list(ctx, options)
		if err == nil || ctx.Err() != nil {
			return list, err
		}
		due := f.backOff(ctx, "list", &pause, err)
		select {
		case <-due.C:
		case <-f.woken:
		case <-ctx.Done():
		}
		due.Stop()
	}
}

// list makes one attempt.
func (f *Feed) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	list, err := f.source.ListWithContext(ctx, options)
	if err == nil {
		f.heard()
	}
	return list, err
}

// Watch implements cache.Watcher.
func (f *feedListerWatcher) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return f.WatchWithContext(context.Background(), options)
}

// WatchWithContext returns a watch that goes on until only a new list can help; see tap.
func (f *feedListerWatcher) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	t := newTap(ctx, f.Feed, options)
	f.mu.Lock()
	f.current = t
	f.mu.Unlock()
	if err := t.start(); err != nil {
		t.end()
		return nil, err
	}
	go t.run()
	return t, nil
}
