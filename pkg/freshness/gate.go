package freshness

// Gate: no worker starts before the caches are complete.
//
// Closes: work on an empty or half-filled cache. A controller that starts on one
// takes what it doesn't see yet for missing, and creates it again, or deletes what
// seems to be surplus.
//
// How: it waits for the handlers' registrations, not for the informers alone. An
// informer is synced when its store is full; what the handlers build may be half
// there still (kubernetes/kubernetes#113763). The wait is bounded: client-go itself
// retries a list that is forbidden, or whose resource doesn't exist, for ever and
// without a word, and a controller that hangs so looks healthy. Past the bound, Wait
// returns an error that names each cache that is missing, why, and what mends it.
//
// Costs: nothing after the start.

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// The bounds that a Gate uses where it is given none.
const (
	// DefaultSyncTimeout is how long Wait waits for the caches.
	DefaultSyncTimeout = 15 * time.Second
	// DefaultProbeInterval is how often an optional cache is asked for.
	DefaultProbeInterval = 30 * time.Second
)

// Cache is an informer that a Gate waits for, with what is needed to say why it
// isn't there.
type Cache struct {
	// Resource is what the informer watches. It is how messages name the cache.
	Resource schema.GroupResource
	// Informer must not have been started yet.
	Informer cache.SharedInformer
	// Handlers are the registrations of the handlers that must have been handed
	// the initial list.
	Handlers []cache.ResourceEventHandlerRegistration
	// Lister, if it isn't nil, is asked for a list of one object when the time is
	// up, to find out why: some errors, a refused connection for one, client-go
	// keeps to itself. An optional cache needs it.
	Lister cache.ListerWithContext
	// InstallCommand is what installs the resource's definition. It is shown when
	// the API server doesn't know the resource. Empty: how to look for it is shown.
	InstallCommand string
	// GrantCommand is what grants list and watch. It is shown when the API server
	// forbids them. Empty: the kubectl commands for a cluster role are shown.
	GrantCommand string
}

// Gate keeps workers from starting before the caches are complete. It is safe for
// concurrent use. The zero value waits for nothing; add caches with Require and
// AddOptional before the informers are started.
type Gate struct {
	// Timeout is how long Wait waits. 0: DefaultSyncTimeout.
	Timeout time.Duration
	// ProbeInterval is how often RunOptional asks for the optional caches that
	// aren't there yet. 0: DefaultProbeInterval.
	ProbeInterval time.Duration
	// Clock measures both. Nil: the real one.
	Clock clock.WithTicker
	// Metrics counts. Nil: nothing is counted.
	Metrics *Metrics

	mu       sync.Mutex
	required []*guardedCache
	optional []*guardedCache
	open     bool
}

// guardedCache is a Cache and the last error that its reflector reported.
type guardedCache struct {
	Cache
	mu      sync.Mutex
	lastErr error
}

// Require adds a cache without which no worker may start. It is an error if the
// informer was started already.
func (g *Gate) Require(c Cache) error {
	guarded := &guardedCache{Cache: c}
	if err := c.Informer.SetWatchErrorHandlerWithContext(guarded.handleWatchError); err != nil {
		return fmt.Errorf("collect the watch errors of the informer of %s: %w", c.Resource, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.required = append(g.required, guarded)
	return nil
}

// AddOptional adds a cache that may come later, or never. Its informer must not be
// started by anybody else: RunOptional starts it, once a list of the resource
// succeeds, so that a resource which isn't there costs a probe now and then, and not
// an endless row of errors.
func (g *Gate) AddOptional(c Cache) error {
	if c.Lister == nil {
		return fmt.Errorf("optional cache of %s: no Lister to probe the resource with", c.Resource)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.optional = append(g.optional, &guardedCache{Cache: c})
	return nil
}

// Wait returns nil as soon as every required cache and its handlers have seen the
// initial list. It returns a *NotSyncedError when Timeout has passed before, and
// ctx's cause when ctx has ended before.
func (g *Gate) Wait(ctx context.Context) error {
	g.mu.Lock()
	required, timeout := g.required, g.Timeout
	g.mu.Unlock()
	if timeout == 0 {
		timeout = DefaultSyncTimeout
	}
	timer := g.clock().NewTimer(timeout)
	defer timer.Stop()
	for _, c := range required {
		if !c.synced() {
			g.Metrics.fired(GuardGate, "made_workers_wait")
			break
		}
	}
	for _, c := range required {
		for _, checker := range c.checkers() {
			select {
			case <-checker.Done():
			case <-timer.C():
				g.Metrics.fired(GuardGate, "kept_shut")
				return diagnose(ctx, timeout, required)
			case <-ctx.Done():
				return fmt.Errorf("wait for the cache of %s: %w", c.Resource, context.Cause(ctx))
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = true
	return nil
}

// Open reports whether Wait has found every required cache complete. It is what a
// readiness probe asks.
func (g *Gate) Open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

// Synced reports whether the cache of resource, required or optional, has seen the
// initial list, and its handlers too.
func (g *Gate) Synced(resource schema.GroupResource) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, caches := range [][]*guardedCache{g.required, g.optional} {
		for _, c := range caches {
			if c.Resource == resource {
				return c.synced()
			}
		}
	}
	return false
}

// RunOptional asks for each optional cache until a list of it succeeds, then runs
// its informer. It returns when ctx has ended and the informers have stopped.
func (g *Gate) RunOptional(ctx context.Context) {
	g.mu.Lock()
	optional := g.optional
	g.mu.Unlock()
	var wg sync.WaitGroup
	for _, c := range optional {
		wg.Go(func() { g.runOptional(ctx, c) })
	}
	wg.Wait()
}

func (g *Gate) runOptional(ctx context.Context, c *guardedCache) {
	logger := klog.FromContext(ctx)
	interval := g.ProbeInterval
	if interval == 0 {
		interval = DefaultProbeInterval
	}
	ticker := g.clock().NewTicker(interval)
	defer ticker.Stop()
	var told Reason
	for {
		err := probe(ctx, c.Lister)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		// An operator wants to know it, and once is enough: it may stay so for good.
		news := logger
		if reason := reasonOf(err); reason == told {
			news = logger.V(4)
		} else {
			told = reason
		}
		news.Info("Optional cache is not there, going on without it", "resource", c.Resource, "reason", told, "err", err, "mend", c.mend(told))
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
	if told == "" {
		logger = logger.V(2) // nobody has missed it
	}
	logger.Info("Optional cache is there, starting its informer", "resource", c.Resource)
	c.Informer.RunWithContext(ctx)
}

func (g *Gate) clock() clock.WithTicker {
	if g.Clock == nil {
		return clock.RealClock{}
	}
	return g.Clock
}

func (c *guardedCache) handleWatchError(ctx context.Context, r *cache.Reflector, err error) {
	cache.DefaultWatchErrorHandler(ctx, r, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastErr = err
}

func (c *guardedCache) checkers() []cache.DoneChecker {
	checkers := []cache.DoneChecker{c.Informer.HasSyncedChecker()}
	for _, handler := range c.Handlers {
		checkers = append(checkers, handler.HasSyncedChecker())
	}
	return checkers
}

func (c *guardedCache) synced() bool {
	for _, checker := range c.checkers() {
		if !cache.IsDone(checker) {
			return false
		}
	}
	return true
}
