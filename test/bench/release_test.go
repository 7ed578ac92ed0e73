package bench

// How soon a key is worked on again once the cache has what it wrote.
//
// In each round every key writes its object while the watch is held, so that the cache is
// old, and each of three workers is asked to work on every key:
//
//	parked             the backlog: the store's own progress releases the key
//	requeued           AddRateLimited while the cache is old, 5 ms and twice as long each
//	                   time: what the controllers of kube-controller-manager do that use
//	                   KEP-5647's consistency store (an error of EnsureReady is a failure
//	                   of the key; pkg/controller/daemon/daemon_controller.go, v1.37.2)
//	requeued+handler   the same, in a controller whose handler adds the key when its
//	                   object's event comes
//
// Then the watch is let go. What is measured is the time from the arrival of a write's
// event in the informer to the moment at which a worker may work on its key. All wait for
// the same events, in the same process, at the same time.

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"warmpool.dev/controller/pkg/freshness"
	"warmpool.dev/controller/test/faultproxy"
)

// keys is how many wait at a time.
const keys = 50

// deadline is many times what a step needs.
const deadline = time.Minute

// arrivals are when the events came, by version, and who was let through to them when.
type arrivals struct {
	mu      sync.Mutex
	at      map[string]time.Time // by resourceVersion
	awaited map[string]string    // by key: the version that this round waits for
	// through has for each contender the times of the keys that it was let through to.
	through map[string]map[string]time.Time
	changed chan struct{}
}

func newArrivals() *arrivals {
	return &arrivals{at: map[string]time.Time{}, awaited: map[string]string{}, through: map[string]map[string]time.Time{}, changed: make(chan struct{}, 1)}
}

// arrived is a feed's transform: it is called when an event comes, before the store has it.
func (a *arrivals) arrived(obj any) (any, error) {
	if object, ok := obj.(metav1.Object); ok {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.at[object.GetResourceVersion()] = time.Now()
	}
	return obj, nil
}

// letThrough notes that a contender may work on a key, the first time in a round.
func (a *arrivals) letThrough(contender, key string) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.through[contender] == nil {
		a.through[contender] = map[string]time.Time{}
	}
	if _, before := a.through[contender][key]; before || a.awaited[key] == "" {
		return
	}
	a.through[contender][key] = now
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// begin forgets the round before.
func (a *arrivals) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.at)
	clear(a.awaited)
	clear(a.through)
}

// await says which version a key waits for.
func (a *arrivals) await(key, version string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.awaited[key] = version
}

// wait waits until all keys were let through by all contenders, and returns how long after
// the arrival of its event each was.
func (a *arrivals) wait(ctx context.Context, contenders []string) (map[string][]time.Duration, error) {
	for {
		if took, err := a.took(contenders); took != nil || err != nil {
			return took, err
		}
		select {
		case <-a.changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %d keys to be let through: %w", keys, ctx.Err())
		}
	}
}

// took returns nil while a contender waits for a key.
func (a *arrivals) took(contenders []string) (map[string][]time.Duration, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	took := map[string][]time.Duration{}
	for _, contender := range contenders {
		if len(a.through[contender]) < keys {
			return nil, nil
		}
		for key, at := range a.through[contender] {
			arrived, ok := a.at[a.awaited[key]]
			if !ok || at.Before(arrived) {
				return nil, fmt.Errorf("%s: %s was let through before its event had come", contender, key)
			}
			took[contender] = append(took[contender], at.Sub(arrived))
		}
	}
	return took, nil
}

// requeuer works as the users of KEP-5647's consistency store do.
type requeuer struct {
	name   string
	ledger *freshness.Ledger[string]
	queue  workqueue.TypedRateLimitingInterface[string]
	// requeues counts the times that the cache was old.
	requeues atomic.Int64
}

func newRequeuer(name string, feed *freshness.Feed) *requeuer {
	r := &requeuer{
		name:   name,
		ledger: freshness.NewLedger[string](freshness.LedgerConfig{}),
		// As client-go's default, without the bucket that all keys share, which
		// would make it slower.
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, 1000*time.Second)),
	}
	r.ledger.Track(feed.Resource().GroupResource(), feed.Informer().GetStore())
	return r
}

// wrote records a write, as WroteAt does.
func (r *requeuer) wrote(key string, object *corev1.ConfigMap) error {
	entry, err := r.ledger.Begin(key, freshness.Intent{
		Verb: "update", Resource: corev1.Resource("configmaps"), Namespace: object.Namespace, Name: object.Name,
	})
	if err == nil {
		r.ledger.Settle(entry, object.ResourceVersion)
	}
	return err
}

func (r *requeuer) work(a *arrivals) {
	for {
		key, shutdown := r.queue.Get()
		if shutdown {
			return
		}
		if r.ledger.Check(key).Fresh() {
			a.letThrough(r.name, key)
			r.queue.Forget(key)
		} else {
			r.requeues.Add(1)
			r.queue.AddRateLimited(key)
		}
		r.queue.Done(key)
	}
}

// The contenders.
const (
	parked          = "parked"
	requeued        = "requeued"
	requeuedHandler = "requeued+handler"
)

var contenders = []string{parked, requeued, requeuedHandler}

// rig is what the contenders have in common.
type rig struct {
	proxy     *faultproxy.Proxy
	feed      *freshness.Feed
	guards    *freshness.Guards[string]
	requeuers []*requeuer
	*arrivals
	writes  kubernetes.Interface
	objects map[string]*corev1.ConfigMap
}

// newRig makes the objects and starts the contenders; they end with the test.
func newRig(t testing.TB) *rig {
	t.Helper()
	target := administrator(t)
	proxy, err := faultproxy.Start(faultproxy.Options{Target: target})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	r := &rig{proxy: proxy, arrivals: newArrivals(), objects: map[string]*corev1.ConfigMap{}}
	r.guards, err = freshness.New(proxy.Config(target), freshness.Options[string]{})
	if err != nil {
		t.Fatal(err)
	}
	reads, err := kubernetes.NewForConfig(r.guards.Reads())
	if err != nil {
		t.Fatal(err)
	}
	if r.writes, err = kubernetes.NewForConfig(r.guards.Writes()); err != nil {
		t.Fatal(err)
	}
	namespace := newNamespace(t, target)
	r.feed, err = r.guards.Feed(freshness.FeedConfig{
		Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Object: &corev1.ConfigMap{},
		Namespace: namespace, Transform: r.arrived,
		ListerWatcher: cache.NewFilteredListWatchFromClient(reads.CoreV1().RESTClient(), "configmaps", namespace, func(*metav1.ListOptions) {}),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.requeuers = []*requeuer{newRequeuer(requeued, r.feed), newRequeuer(requeuedHandler, r.feed)}
	r.start(t)
	for i := range keys {
		key := fmt.Sprint("key-", i)
		r.objects[key], err = r.writes.CoreV1().ConfigMaps(namespace).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: key}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// start starts the workers. Only the last requeuer has a handler.
func (r *rig) start(t testing.TB) {
	t.Helper()
	handler := r.requeuers[len(r.requeuers)-1]
	_, err := r.guards.Handle(r.feed, cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, obj any) { handler.queue.Add(obj.(*corev1.ConfigMap).Name) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		for _, requeuer := range r.requeuers {
			requeuer.queue.ShutDown()
		}
		running.Wait()
	})
	running.Go(func() {
		if err := r.guards.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	reconcile := r.guards.Chain(func(_ context.Context, key string) (freshness.Result, error) {
		r.letThrough(parked, key)
		return freshness.Result{}, nil
	})
	ready := make(chan error, 1)
	running.Go(func() {
		if err := r.guards.TakeOver(ctx); err != nil {
			ready <- err
			return
		}
		running.Go(func() {
			<-ctx.Done()
			r.guards.Queue.ShutDown()
		})
		ready <- nil
		r.work(ctx, reconcile)
	})
	for _, requeuer := range r.requeuers {
		running.Go(func() { requeuer.work(r.arrivals) })
	}
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
}

// work is the one worker of the queue whose keys are parked.
func (r *rig) work(ctx context.Context, reconcile freshness.Reconciler[string]) {
	queue := r.guards.Queue
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		if _, err := reconcile(ctx, key); err == nil {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

// round has each key write, keeps the cache old for lag after the last of the writes, and
// returns how long each contender took.
func (r *rig) round(ctx context.Context, lag time.Duration) (map[string][]time.Duration, error) {
	r.begin()
	held := r.proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Verb: "watch", Resource: "configmaps"}, Do: faultproxy.HoldStream()})
	defer held.Release()
	for key, object := range r.objects {
		object.Data = map[string]string{"written": time.Now().String()}
		written, err := r.writes.CoreV1().ConfigMaps(object.Namespace).Update(freshness.WithKey(ctx, key), object, metav1.UpdateOptions{})
		if err != nil {
			return nil, err
		}
		r.objects[key] = written
		for _, requeuer := range r.requeuers {
			if err := requeuer.wrote(key, written); err != nil {
				return nil, err
			}
		}
		// Not before all have it in their ledgers: one may be at work on the key
		// still, from the round before.
		r.await(key, written.ResourceVersion)
		for _, requeuer := range r.requeuers {
			requeuer.queue.Add(key)
		}
		r.guards.Queue.Add(key)
	}
	select {
	case <-time.After(lag):
	case <-ctx.Done():
	}
	held.Release()
	return r.wait(ctx, contenders)
}

// quantile returns the q-th part of durations, in milliseconds.
func quantile(durations []time.Duration, q float64) float64 {
	sorted := slices.Sorted(slices.Values(durations))
	return float64(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]) / float64(time.Millisecond)
}

// BenchmarkRelease reports the 50th and the 99th percentile of each contender, in
// milliseconds, and how many times as long the requeued keys took as the parked ones.
func BenchmarkRelease(b *testing.B) {
	for _, lag := range []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, time.Second} {
		b.Run("lag="+lag.String(), func(b *testing.B) {
			r := newRig(b)
			took, rounds := map[string][]time.Duration{}, 0
			for b.Loop() {
				rounds++
				ctx, cancel := context.WithTimeout(b.Context(), deadline)
				round, err := r.round(ctx, lag)
				cancel()
				if err != nil {
					b.Fatal(err)
				}
				for contender, durations := range round {
					took[contender] = append(took[contender], durations...)
				}
			}
			b.ReportMetric(0, "ns/op") // a round is as long as the lag
			for _, contender := range contenders {
				b.ReportMetric(quantile(took[contender], .50), contender+"-p50-ms")
				b.ReportMetric(quantile(took[contender], .99), contender+"-p99-ms")
			}
			b.ReportMetric(quantile(took[requeued], .50)/quantile(took[parked], .50), "requeued/parked-p50")
			b.ReportMetric(quantile(took[requeued], .99)/quantile(took[parked], .99), "requeued/parked-p99")
			b.ReportMetric(float64(r.requeuers[0].requeues.Load())/float64(rounds*keys), "requeues/key")
		})
	}
}

func TestAKeyIsLetThroughOnceItsEventHasComeAndNotBefore(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	for range 2 {
		took, err := r.round(ctx, 20*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		for _, contender := range contenders {
			if got := len(took[contender]); got != keys {
				t.Errorf("%s: %d keys were let through, want %d", contender, got, keys)
			}
		}
	}
}
