package freshness

// Backlog: keys that wait for their caches, and come back when those have caught up.
//
// Closes: polling, hot loops, and a backoff that is earned by lag. A stale key that is
// put back with a delay comes back too early, again and again, or much too late; and one
// that is put back as a failure waits ever longer, although nothing has failed.
//
// How: a stale key is parked by what it waits for, in a heap by version for each store.
// The very change of the store that brings the version releases it, be it an event or a
// bookmark, and its count of failures starts anew. Keys that wait for something else (an
// answer, a deletion) are looked at when their store moves and when the ledger learns
// something.
//
// Costs: a few microseconds for each time that a key is parked.

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
)

// BacklogConfig configures a Backlog. Ledger and Queue are required.
type BacklogConfig[K comparable] struct {
	Ledger *Ledger[K]
	Queue  *Queue[K]
	// Clock is for the times that keys are parked. Nil: the real one.
	Clock clock.PassiveClock
	// Metrics counts. Nil: nothing is counted.
	Metrics *Metrics
}

// Backlog holds the keys that are stale. It is safe for concurrent use. Make it with
// NewBacklog.
type Backlog[K comparable] struct {
	config BacklogConfig[K]

	// mu is taken before the locks of the ledger and of the queue.
	mu     sync.Mutex
	parked map[K]*parkedKey[K]
	// byVersion are the keys that wait for a version, by the store.
	byVersion map[*trackedStore]*versionHeap[K]
	// others are the keys that wait for something else.
	others map[K]*parkedKey[K]
	// replans counts how often in a row Confirm has sent a key back.
	replans map[K]int
}

// parkedKey is a key and what it waits for.
type parkedKey[K comparable] struct {
	key     K
	verdict Verdict
	// since is when it was parked, waits since when it waits for this.
	since, waits time.Time
	// placed tells that it is in a heap, or among the others, by its verdict.
	placed bool
}

// NewBacklog returns an empty backlog, which the ledger tells from now on when something
// has changed for a key.
func NewBacklog[K comparable](config BacklogConfig[K]) *Backlog[K] {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	b := &Backlog[K]{
		config:    config,
		parked:    map[K]*parkedKey[K]{},
		byVersion: map[*trackedStore]*versionHeap[K]{},
		others:    map[K]*parkedKey[K]{},
		replans:   map[K]int{},
	}
	config.Ledger.settled, config.Ledger.moved = b.Recheck, b.Progress
	return b
}

// Middleware lets only keys through whose caches are fresh, and parks the others. The
// writes of those it lets through are recorded under their key, and those that Confirm
// sends back are put into the queue anew.
func (b *Backlog[K]) Middleware(next Reconciler[K]) Reconciler[K] {
	return func(ctx context.Context, key K) (Result, error) {
		if !b.config.Ledger.Check(key).Fresh() && b.Park(key) {
			return Result{Parked: true}, nil
		}
		result, err := next(b.start(ctx, key), key)
		if errors.Is(err, ErrMoved) {
			b.config.Queue.AddWithClass(key, Released)
			return Result{}, nil
		}
		return result, err
	}
}

// Park puts a key aside until its caches have caught up. It returns false, and does
// nothing, if they have by now.
func (b *Backlog[K]) Park(key K) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	verdict := b.config.Ledger.check(key)
	p := b.parked[key]
	if verdict.Fresh() {
		if p != nil {
			b.remove(p)
		}
		return false
	}
	if p == nil {
		p = &parkedKey[K]{key: key, since: b.config.Clock.Now()}
		b.parked[key] = p
		b.config.Metrics.fired(GuardBacklog, "parked_"+string(verdict.Cause))
	}
	b.place(p, verdict)
	b.config.Metrics.setParked(len(b.parked))
	return true
}

// place notes what a parked key waits for.
func (b *Backlog[K]) place(p *parkedKey[K], verdict Verdict) {
	if p.placed && p.verdict == verdict {
		return
	}
	if p.verdict != verdict {
		p.waits = b.config.Clock.Now()
	}
	p.verdict, p.placed = verdict, true
	if verdict.Version == "" {
		b.others[p.key] = p
		return
	}
	delete(b.others, p.key)
	heap.Push(b.heapOf(b.config.Ledger.store(verdict.Resource)), waiter[K]{verdict.Version, p})
}

func (b *Backlog[K]) heapOf(s *trackedStore) *versionHeap[K] {
	if b.byVersion[s] == nil {
		b.byVersion[s] = &versionHeap[K]{}
	}
	return b.byVersion[s]
}

func (b *Backlog[K]) remove(p *parkedKey[K]) {
	delete(b.parked, p.key)
	delete(b.others, p.key)
	b.config.Metrics.released(p.verdict.Cause, b.config.Clock.Since(p.since))
	b.config.Metrics.setParked(len(b.parked))
}

// Recheck releases a parked key if its caches have caught up.
func (b *Backlog[K]) Recheck(key K) {
	b.mu.Lock()
	p := b.parked[key]
	released := p != nil && b.recheck(p)
	b.mu.Unlock()
	if released {
		b.enqueue(p)
	}
}

// RecheckAll looks at every parked key, whatever it waits for, and returns how many were
// released. Events should have released them: what is found here was missed.
func (b *Backlog[K]) RecheckAll() int {
	var released []*parkedKey[K]
	b.mu.Lock()
	for _, p := range b.parked {
		if b.recheck(p) {
			released = append(released, p)
		}
	}
	b.mu.Unlock()
	b.enqueue(released...)
	return len(released)
}

// Progress releases the keys that the store of resource satisfies by now. It is to be
// called when the store's version has changed.
func (b *Backlog[K]) Progress(resource schema.GroupResource) {
	b.progress(resource)
}

func (b *Backlog[K]) progress(resource schema.GroupResource) (released int) {
	s := b.config.Ledger.store(resource)
	if s == nil {
		return 0
	}
	s.reached(b.config.Clock.Now(), b.config.Metrics)
	version, _ := s.look()
	var keys []*parkedKey[K]
	b.mu.Lock()
	for _, p := range b.due(s, version) {
		if b.recheck(p) {
			keys = append(keys, p)
		}
	}
	b.mu.Unlock()
	b.enqueue(keys...)
	return len(keys)
}

// due returns the parked keys that a store at version may satisfy.
func (b *Backlog[K]) due(s *trackedStore, version string) []*parkedKey[K] {
	var due []*parkedKey[K]
	waiting := b.heapOf(s)
	for waiting.Len() > 0 {
		first := (*waiting)[0]
		if order, err := resourceversion.CompareResourceVersion(first.version, version); err != nil || order > 0 {
			break
		}
		heap.Pop(waiting)
		// Not if it waits for something else by now, or not at all.
		if p := first.parked; b.parked[p.key] == p && p.verdict.Version == first.version {
			p.placed = false
			due = append(due, p)
		}
	}
	for _, p := range b.others {
		if p.verdict.Resource == s.resource {
			due = append(due, p)
		}
	}
	return due
}

// recheck removes a parked key if its caches have caught up, and otherwise notes what it
// waits for now. It is called with mu held.
func (b *Backlog[K]) recheck(p *parkedKey[K]) bool {
	verdict := b.config.Ledger.check(p.key)
	if !verdict.Fresh() {
		b.place(p, verdict)
		return false
	}
	b.remove(p)
	return true
}

// enqueue gives released keys back to the queue.
func (b *Backlog[K]) enqueue(keys ...*parkedKey[K]) {
	for _, p := range keys {
		// Waiting for the cache was no failure, and whatever failed before was
		// decided on an older one.
		b.config.Queue.Forget(p.key)
		b.config.Queue.AddWithClass(p.key, Released)
		b.config.Metrics.fired(GuardBacklog, "released")
	}
}

// Run releases keys as the feeds' stores move, until ctx ends.
func (b *Backlog[K]) Run(ctx context.Context, feeds ...*Feed) {
	var wg sync.WaitGroup
	for _, feed := range feeds {
		wg.Go(func() { b.follow(ctx, feed) })
	}
	wg.Wait()
}

func (b *Backlog[K]) follow(ctx context.Context, feed *Feed) {
	progress, stop := feed.Follow()
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-progress:
			moved := feed.moved.Load()
			if b.progress(feed.Resource().GroupResource()) > 0 {
				b.config.Metrics.releaseTook(b.config.Clock.Since(time.Unix(0, moved)))
			}
		}
	}
}

// Parked is a key in a Backlog.
type Parked[K comparable] struct {
	Key K
	// Verdict says what it waits for.
	Verdict Verdict
	// Since is when it was parked, WaitsSince since when it waits for this.
	Since, WaitsSince time.Time
}

// Parked returns the keys that wait, and what for, in no order.
func (b *Backlog[K]) Parked() []Parked[K] {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []Parked[K]
	for _, p := range b.parked {
		all = append(all, Parked[K]{p.key, p.verdict, p.since, p.waits})
	}
	return all
}

// waiter is a parked key and a version that it waits, or waited, for.
type waiter[K comparable] struct {
	version string
	parked  *parkedKey[K]
}

// versionHeap has the oldest version first. All versions in it can be compared.
type versionHeap[K comparable] []waiter[K]

// Len implements heap.Interface.
func (h versionHeap[K]) Len() int { return len(h) }

// Less implements heap.Interface.
func (h versionHeap[K]) Less(i, j int) bool {
	order, err := resourceversion.CompareResourceVersion(h[i].version, h[j].version)
	return err == nil && order < 0
}

// Swap implements heap.Interface.
func (h versionHeap[K]) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *versionHeap[K]) Push(x any) { *h = append(*h, x.(waiter[K])) }

// Pop implements heap.Interface.
func (h *versionHeap[K]) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = waiter[K]{}
	*h = (*h)[:len(*h)-1]
	return last
}
