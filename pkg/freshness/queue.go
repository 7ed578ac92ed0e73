package freshness

// Queue: the order of the work queue, plugged into client-go's own queue.
//
// Closes: the flood in front of a waiting user. After a restart every object's key
// is in the queue, and in order of arrival the one that somebody waits for is last.
//
// How: client-go's queue (deduplication, delays, rate limits, metrics) stays as it
// is, on a storage with four lanes. The highest lane that isn't empty is served,
// except that every eighth time it is the turn of the key that has waited longest,
// whatever its lane: n keys in front of a key of a low lane delay it by at most
// 8·(n+1) turns, so that no lane can starve another for good.
//
// Costs: one small allocation and two map operations each time a key is added.
// Without it: look at the time from creation to hand-out in the minute after a
// restart with many objects.

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Class says how urgent a key is. A higher class is served first.
type Class int

// The classes, from the least urgent to the most.
const (
	// Routine is for the initial list and for resyncs: nothing has happened.
	Routine Class = iota
	// Changed is for events. It is the class of a key that was added without one.
	Changed
	// Released is for keys that were parked until their caches caught up: they
	// have waited already.
	Released
	// Waiting is for keys that somebody waits for.
	Waiting

	classes = int(Waiting) + 1
)

// String returns the name of the class, as metrics and logs show it.
func (c Class) String() string {
	switch c {
	case Routine:
		return "routine"
	case Changed:
		return "changed"
	case Released:
		return "released"
	case Waiting:
		return "waiting"
	default:
		return fmt.Sprintf("class %d", int(c))
	}
}

// fairEvery is how often the key that has waited longest is served before more
// urgent ones.
const fairEvery = 8

// The bounds of the backoff of a key that fails, unless QueueConfig has a Limiter.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = 60 * time.Second
)

// QueueConfig configures a Queue. The zero value is useful.
type QueueConfig[K comparable] struct {
	// Name names the queue in client-go's workqueue metrics. Empty: none are kept.
	Name string
	// Limiter decides how long a key that fails waits. Nil: 5 ms, doubled with
	// each failure of that key, up to 60 s. There is no bucket that all keys
	// share: a key that fails must not slow the others.
	Limiter workqueue.TypedRateLimiter[K]
	// MetricsProvider is for client-go's workqueue metrics. Nil: the global one.
	MetricsProvider workqueue.MetricsProvider
	// Clock is for delays. Nil: the real one.
	Clock clock.WithTicker
	// Logger is for the queue itself. Nil: klog's background logger.
	Logger *klog.Logger
	// Metrics counts, and measures how long keys were ready. Nil: nothing is kept.
	Metrics *Metrics
}

// Queue is client-go's rate limited work queue with an order of its own. It is safe
// for concurrent use. Make it with NewQueue; ShutDown ends its goroutines.
//
// Add, AddAfter and AddRateLimited add a key with class Changed, AddWithClass with
// another one. A key is in the queue once; added again, it keeps the higher class.
type Queue[K comparable] struct {
	workqueue.TypedRateLimitingInterface[K]
	order *order[K]
}

// NewQueue returns an empty queue.
func NewQueue[K comparable](config QueueConfig[K]) *Queue[K] {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	if config.Limiter == nil {
		config.Limiter = workqueue.NewTypedItemExponentialFailureRateLimiter[K](minBackoff, maxBackoff)
	}
	order := newOrder[K](config.Clock, config.Metrics)
	ready := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{
		Name:            config.Name,
		MetricsProvider: config.MetricsProvider,
		Clock:           config.Clock,
		Queue:           order,
	})
	delayed := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{
		Logger:          config.Logger,
		Name:            config.Name,
		MetricsProvider: config.MetricsProvider,
		Clock:           config.Clock,
		Queue:           ready,
	})
	return &Queue[K]{
		TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(config.Limiter,
			workqueue.TypedRateLimitingQueueConfig[K]{DelayingQueue: delayed}),
		order: order,
	}
}

// Add adds key with class Changed.
func (q *Queue[K]) Add(key K) { q.AddWithClass(key, Changed) }

// AddWithClass adds key, or raises it to class if it is in the queue already. A key
// that a worker has at the moment is added, with this class, when the worker is done.
func (q *Queue[K]) AddWithClass(key K, class Class) {
	q.order.announce(key, class)
	q.TypedRateLimitingInterface.Add(key)
}

// Depth returns how many keys of class are ready in the queue.
func (q *Queue[K]) Depth(class Class) int { return q.order.depth(class) }

// order is the storage of a Queue: client-go's queue decides which keys are in it,
// order which of them is next. Client-go calls Touch, Push, Len and Pop under its
// own lock, which is always taken before order's.
type order[K comparable] struct {
	clock   clock.PassiveClock
	metrics *Metrics

	mu sync.Mutex
	// lanes are first in, first out. A ticket whose key has another ticket by
	// now, because it was raised, is passed over.
	lanes   [classes][]*ticket[K]
	tickets map[K]*ticket[K]
	depths  [classes]int
	// announced holds the classes of keys that are about to be pushed. Push has
	// no argument for it.
	announced map[K]Class
	issued    uint64
	popped    uint64
}

// ticket is a key's place in a lane.
type ticket[K comparable] struct {
	key   K
	class Class
	// number orders tickets by age across the lanes.
	number uint64
	since  time.Time
}

var _ workqueue.Queue[string] = &order[string]{}

func newOrder[K comparable](clock clock.PassiveClock, metrics *Metrics) *order[K] {
	return &order[K]{
		clock:     clock,
		metrics:   metrics,
		tickets:   map[K]*ticket[K]{},
		announced: map[K]Class{},
	}
}

// announce says the class of a key that is about to be added.
func (o *order[K]) announce(key K, class Class) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if known, ok := o.announced[key]; !ok || known < class {
		o.announced[key] = min(max(class, Routine), Waiting)
	}
}

// classOf takes the class that was announced for key. Delays announce none.
func (o *order[K]) classOf(key K) Class {
	class, ok := o.announced[key]
	if !ok {
		return Changed
	}
	delete(o.announced, key)
	return class
}

// Push implements workqueue.Queue: key is not in the queue yet.
func (o *order[K]) Push(key K) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.issued++
	o.put(&ticket[K]{key: key, class: o.classOf(key), number: o.issued, since: o.clock.Now()})
}

// Touch implements workqueue.Queue: key is in the queue, and is added again.
func (o *order[K]) Touch(key K) {
	o.mu.Lock()
	defer o.mu.Unlock()
	class := o.classOf(key)
	old := o.tickets[key]
	if old == nil || class <= old.class {
		return
	}
	o.depths[old.class]--
	// It keeps its age: it has waited as long as it has.
	o.put(&ticket[K]{key: key, class: class, number: old.number, since: old.since})
}

func (o *order[K]) put(t *ticket[K]) {
	o.tickets[t.key] = t
	o.lanes[t.class] = append(o.lanes[t.class], t)
	o.depths[t.class]++
}

// Len implements workqueue.Queue.
func (o *order[K]) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.tickets)
}

// Pop implements workqueue.Queue. It is not called when Len is 0.
func (o *order[K]) Pop() K {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.popped++
	oldest := o.popped%fairEvery == 0
	t := o.next(oldest)
	lane := o.lanes[t.class]
	lane[0] = nil
	o.lanes[t.class] = lane[1:]
	delete(o.tickets, t.key)
	o.depths[t.class]--
	switch first := o.next(true); {
	case oldest && o.highest() > t.class:
		o.metrics.fired(GuardQueue, "fair_turn")
	case first != nil && first.number < t.number:
		o.metrics.fired(GuardQueue, "urgent_first")
	}
	o.metrics.waited(t.class, o.clock.Since(t.since))
	return t.key
}

// highest returns the highest class that has a key, or -1.
func (o *order[K]) highest() Class {
	if t := o.next(false); t != nil {
		return t.class
	}
	return -1
}

// next returns the first ticket of the highest lane, or, if oldest is true, the
// oldest of the lanes' first tickets.
func (o *order[K]) next(oldest bool) *ticket[K] {
	var next *ticket[K]
	for class := Waiting; class >= Routine; class-- {
		head := o.head(class)
		switch {
		case head == nil:
		case !oldest:
			return head
		case next == nil || head.number < next.number:
			next = head
		}
	}
	return next
}

// head drops the tickets that are void from the front of a lane, and returns the
// first one that is not, or nil.
func (o *order[K]) head(class Class) *ticket[K] {
	lane := o.lanes[class]
	for len(lane) > 0 && o.tickets[lane[0].key] != lane[0] {
		lane[0] = nil
		lane = lane[1:]
	}
	o.lanes[class] = lane
	if len(lane) == 0 {
		return nil
	}
	return lane[0]
}

func (o *order[K]) depth(class Class) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.depths[class]
}
