package freshness

// Guards: all guards, put together for a controller.
//
//	guards, err := freshness.New[cache.ObjectName](config, freshness.Options[cache.ObjectName]{})
//	feed, err := guards.Feed(freshness.FeedConfig{…})  // for each resource, with a client of guards.Reads()
//	_, err = guards.Handle(feed, handler)              // the handler adds keys to guards.Queue
//	reconcile := guards.Chain(reconcile)               // which writes with clients of guards.Writes(), and its own ctx
//	err = guards.Run(ctx)                              // and beside it guards.Work(ctx, workers, reconcile)
//
// Each guard can also be had alone.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Options configures Guards. The zero value is useful.
type Options[K comparable] struct {
	// Name names the queue in client-go's workqueue metrics. Empty: none are kept.
	Name string
	// WriteTimeout is how long a write may take; the API server is told. Less than
	// LeaseDuration − RenewDeadline of the leader election, and what a deposed leader
	// has sent is over before its successor starts. 0: DefaultWriteTimeout.
	WriteTimeout time.Duration
	// SyncTimeout is how long Run waits for the caches. 0: DefaultSyncTimeout.
	SyncTimeout time.Duration
	// Permit, if it isn't nil, is asked before each write; see Term.
	Permit func() error
	// Limiter decides how long a key that fails waits. Nil: see QueueConfig.
	Limiter workqueue.TypedRateLimiter[K]
	// Live reads from the API server. Nil: by a client of the configuration.
	Live Live
	// Logger is for the queue and the handlers. Nil: klog's background logger.
	Logger *klog.Logger
	// Clock measures. Nil: the real one.
	Clock clock.WithTicker
	// Metrics counts. Nil: new ones are made; they are in Guards.Metrics.
	Metrics *Metrics
}

// Guards are the guards of one controller. It is safe for concurrent use once Run was
// called; make it with New.
type Guards[K comparable] struct {
	// Queue is the controller's work queue.
	Queue *Queue[K]
	// Metrics are to be registered where the process's metrics are served.
	Metrics *Metrics
	// Gate opens when the caches are complete. Run waits for it.
	Gate *Gate
	// Ledger and Backlog know what is written and who waits.
	Ledger  *Ledger[K]
	Backlog *Backlog[K]

	options       Options[K]
	reads, writes *rest.Config
	reconnect     func()
	live          Live
	feeds         []*guardedFeed
	synced        chan struct{}
	mu            sync.Mutex
	validator     *Validator[K]
}

// guardedFeed is a feed and its handlers.
type guardedFeed struct {
	*Feed
	handlers      []cache.ResourceEventHandler
	registrations []cache.ResourceEventHandlerRegistration
}

// New returns guards for the clients of config, which is copied.
func New[K comparable](config *rest.Config, options Options[K]) (*Guards[K], error) {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Metrics == nil {
		options.Metrics = NewMetrics()
	}
	if options.WriteTimeout == 0 {
		options.WriteTimeout = DefaultWriteTimeout
	}
	g := &Guards[K]{
		Metrics: options.Metrics,
		Gate:    &Gate{Timeout: options.SyncTimeout, Clock: options.Clock, Metrics: options.Metrics},
		Ledger:  NewLedger[K](LedgerConfig{WriteTimeout: options.WriteTimeout, Clock: options.Clock, Metrics: options.Metrics}),
		options: options,
		live:    options.Live,
		synced:  make(chan struct{}),
	}
	g.reads, g.writes, g.reconnect = split(config, options.WriteTimeout)
	if g.live == nil {
		live, err := NewLive(g.writes)
		if err != nil {
			return nil, err
		}
		g.live = live
	}
	transport := &Transport[K]{Ledger: g.Ledger, Permit: options.Permit, Metrics: options.Metrics}
	if err := transport.Wrap(g.writes); err != nil {
		return nil, err
	}
	g.Queue = NewQueue(QueueConfig[K]{Name: options.Name, Limiter: options.Limiter, Logger: options.Logger, Clock: options.Clock, Metrics: options.Metrics})
	g.Backlog = NewBacklog(BacklogConfig[K]{Ledger: g.Ledger, Queue: g.Queue, Clock: options.Clock, Metrics: options.Metrics})
	return g, nil
}

// Reads returns the configuration for the clients that list and watch. They have a
// connection of their own and no timeout.
func (g *Guards[K]) Reads() *rest.Config { return rest.CopyConfig(g.reads) }

// Writes returns the configuration for the clients that write, and that read what they
// write on. Their writes are recorded and have a timeout.
func (g *Guards[K]) Writes() *rest.Config { return rest.CopyConfig(g.writes) }

// Feed makes the feed of a resource, and with it its informer. Run runs the informer;
// nobody else must. All feeds must be made before Run.
func (g *Guards[K]) Feed(config FeedConfig) (*Feed, error) {
	if config.Clock == nil {
		config.Clock = g.options.Clock
	}
	if config.Metrics == nil {
		config.Metrics = g.Metrics
	}
	feed, err := NewFeed(config)
	if err != nil {
		return nil, err
	}
	if !config.Optional {
		g.Ledger.Track(config.Resource.GroupResource(), feed.Informer().GetStore())
	}
	g.feeds = append(g.feeds, &guardedFeed{Feed: feed})
	return feed, nil
}

// Handle makes handler be told of the feed's objects, of what is news alone. The gate
// waits until it has been handed the initial list, and TakeOver hands it every object
// once. All handlers must be added before Run.
func (g *Guards[K]) Handle(feed *Feed, handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	watermark := NewWatermark(g.Metrics, feed.ForceRelist)
	registration, err := feed.Informer().AddEventHandlerWithOptions(watermark.Handler(handler), cache.HandlerOptions{Logger: g.options.Logger})
	if err != nil {
		return nil, fmt.Errorf("add a handler to the informer of %s: %w", feed.Resource().Resource, err)
	}
	g.Ledger.Guard(feed.Resource().GroupResource(), watermark)
	for _, f := range g.feeds {
		if f.Feed == feed {
			f.handlers = append(f.handlers, handler)
			f.registrations = append(f.registrations, registration)
		}
	}
	return registration, nil
}

// Chain puts the guards around a reconcile function, and inside of them the middlewares:
// it is protected from panics, measured, and called only while its key's caches are fresh.
func (g *Guards[K]) Chain(reconcile Reconciler[K], middlewares ...Middleware[K]) Reconciler[K] {
	guarded := []Middleware[K]{Recover[K], Measure[K](g.Metrics, g.options.Clock), g.Backlog.Middleware}
	return Chain(reconcile, append(guarded, middlewares...)...)
}

// stopGrace is how long Run waits for the informers to stop. A reflector that backs off
// after failures sleeps up to a minute and heeds no context meanwhile (client-go 0.37,
// reflector.go); a process that is to end must not wait for it. It does nothing more when
// it wakes.
const stopGrace = 2 * time.Second

// Run runs the informers and the guards until ctx ends and all of it has stopped, or two
// seconds have passed since; then it returns nil. It returns an error if the caches aren't
// complete in time, or if one of them can't be healed; the process is to end then. It must
// be called once.
func (g *Guards[K]) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer func() {
		cancel()
		stopped := make(chan struct{})
		go func() {
			wg.Wait()
			close(stopped)
		}()
		select {
		case <-stopped:
		case <-g.options.Clock.After(stopGrace):
		}
	}()
	required := g.required()
	for _, f := range g.feeds {
		if err := g.admit(f); err != nil {
			return err
		}
		if !f.config.Optional {
			wg.Go(func() { f.Informer().RunWithContext(ctx) })
		}
	}
	wg.Go(func() { g.Backlog.Run(ctx, required...) })
	wg.Go(func() { g.Gate.RunOptional(ctx) })
	if err := g.Gate.Wait(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	for _, feed := range required {
		if feed.Version() == "" {
			return fmt.Errorf("the cache of %s is filled but doesn't tell its version: is client-go's feature AtomicFIFO off?", feed.Resource().Resource)
		}
	}
	validator := NewValidator(ValidatorConfig[K]{
		Ledger: g.Ledger, Backlog: g.Backlog, Feeds: required, Live: g.live,
		Reconnect: g.reconnect, Clock: g.options.Clock, Metrics: g.Metrics,
	})
	g.mu.Lock()
	g.validator = validator
	g.mu.Unlock()
	close(g.synced)
	return validator.Run(ctx)
}

// admit tells the gate of a feed.
func (g *Guards[K]) admit(f *guardedFeed) error {
	c := f.Cache(f.registrations...)
	if f.config.Optional {
		return g.Gate.AddOptional(c)
	}
	return g.Gate.Require(c)
}

func (g *Guards[K]) required() []*Feed {
	var required []*Feed
	for _, f := range g.feeds {
		if !f.config.Optional {
			required = append(required, f.Feed)
		}
	}
	return required
}

// TakeOver is called when leadership was acquired, and before the workers start; without
// leader election once, too. It waits until the caches are complete and have reached what
// the API server had when TakeOver was called, and hands every object to the handlers once.
// If it returns an error no worker must start.
func (g *Guards[K]) TakeOver(ctx context.Context) error {
	select {
	case <-g.synced:
	case <-ctx.Done():
		return fmt.Errorf("wait for the caches before taking over: %w", context.Cause(ctx))
	}
	fence := &Fence{
		Feeds:   g.required(),
		Live:    g.live,
		Highest: func(f *Feed) string { return g.Ledger.Highest(f.Resource().GroupResource()) },
		Learned: func(f *Feed, version, highest string, asOf time.Time) {
			g.Ledger.Learn(f.Resource().GroupResource(), version, highest, asOf)
		},
		Clock:   g.options.Clock,
		Metrics: g.Metrics,
	}
	if err := fence.Wait(ctx); err != nil {
		return err
	}
	for _, f := range g.feeds {
		objects := f.Informer().GetStore().List()
		for _, handler := range f.handlers {
			for _, object := range objects {
				handler.OnAdd(object, true)
			}
		}
	}
	return nil
}

// Work takes over and runs the workers of the queue until ctx ends and the last of them has
// returned, so that nothing is written after it. It then returns nil; it returns an error if
// TakeOver does. A controller with a worker loop of its own calls TakeOver instead.
func (g *Guards[K]) Work(ctx context.Context, workers int, reconcile Reconciler[K]) error {
	defer g.Queue.ShutDown()
	if err := g.TakeOver(ctx); err != nil {
		return err
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for g.workOnNext(ctx, reconcile) {
			}
		})
	}
	<-ctx.Done()
	g.Queue.ShutDown()
	wg.Wait()
	return nil
}

// workOnNext reconciles the next key, and decides what becomes of it. It returns false
// when the queue is shut down, or the work is over.
func (g *Guards[K]) workOnNext(ctx context.Context, reconcile Reconciler[K]) bool {
	key, shutdown := g.Queue.Get()
	if shutdown {
		return false
	}
	defer g.Queue.Done(key)
	if ctx.Err() != nil {
		return false
	}
	// One that is under way when ctx ends is finished: a write that was cut off could
	// still happen, after Work has returned.
	result, err := reconcile(context.WithoutCancel(ctx), key)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Reconciling failed, trying again", "key", key)
		g.Queue.AddRateLimited(key)
		return true
	}
	g.Queue.Forget(key)
	if result.RequeueAfter > 0 {
		g.Queue.AddAfter(key, result.RequeueAfter)
	}
	return true
}

// Ready returns nil if the caches are complete and healthy, and otherwise an error that
// says which aren't. It is what a readiness probe asks.
func (g *Guards[K]) Ready() error {
	if !g.Gate.Open() {
		return errors.New("the caches haven't seen the initial lists yet")
	}
	g.mu.Lock()
	validator := g.validator
	g.mu.Unlock()
	if validator == nil {
		return errors.New("the guards aren't running yet")
	}
	return validator.Healthy()
}
