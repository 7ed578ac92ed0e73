package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/freshness"
	clientset "warmpool.dev/controller/pkg/generated/clientset/versioned"
	listers "warmpool.dev/controller/pkg/generated/listers/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/pool"
)

// Controller keeps WarmPools filled and hands their Pods out to PodClaims. One
// worker at a time works on a key, and a key is a WarmPool: all that concerns a
// pool, its Pods and its claims is decided in one place, one after the other.
type Controller struct {
	kube     kubernetes.Interface
	warmpool clientset.Interface

	pools  listers.WarmPoolLister
	claims cache.Indexer
	pods   cache.Indexer
	// nodes is optional: what isn't in it may exist all the same.
	nodes cache.Store

	queue     *freshness.Queue[cache.ObjectName]
	reconcile freshness.Reconciler[cache.ObjectName]
	recorder  record.EventRecorder
	clock     clock.Clock
	pace      *pace
}

// NewController returns a controller whose handlers are registered with the
// informers of feeds, and whose reconcile function has the guards around it. Nothing
// runs until Run. kube and warmpool must be clients of guards.Writes().
func NewController(
	guards *freshness.Guards[cache.ObjectName],
	feeds feeds,
	kube kubernetes.Interface,
	warmpool clientset.Interface,
	recorder record.EventRecorder,
	clock clock.Clock,
) (*Controller, error) {
	c := &Controller{
		kube:     kube,
		warmpool: warmpool,
		pools:    listers.NewWarmPoolLister(feeds.pools.Informer().GetIndexer()),
		claims:   feeds.claims.Informer().GetIndexer(),
		pods:     feeds.pods.Informer().GetIndexer(),
		nodes:    feeds.nodes.Informer().GetStore(),
		queue:    guards.Queue,
		recorder: recorder,
		clock:    clock,
		pace:     newPace(),
	}
	c.reconcile = guards.Chain(c.syncHandler)
	for _, source := range []struct {
		feed    *freshness.Feed
		handler cache.ResourceEventHandler
	}{
		{feeds.pools, c.enqueue(keyOfPool)},
		{feeds.claims, c.enqueue(keyOfClaim)},
		{feeds.pods, c.enqueue(keyOfPod)},
		{feeds.nodes, c.enqueuePoolsOnNode()},
	} {
		if _, err := guards.Handle(source.feed, source.handler); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Run works on the queue until ctx has ended and the last worker has returned, so
// that nothing is written after it. The caches must be complete, and fenced, before.
//
// A reconcile that is under way when ctx ends is finished: a write that was cut off
// could still happen, in the time of the next leader.
func (c *Controller) Run(ctx context.Context, workers int) {
	defer utilruntime.HandleCrashWithContext(ctx)
	logger := klog.FromContext(ctx)
	logger.Info("Starting workers", "workers", workers)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() { wait.UntilWithContext(ctx, c.runWorker, time.Second) })
	}
	<-ctx.Done()
	logger.Info("Stopping workers")
	c.queue.ShutDown()
	running.Wait()
}

// enqueue returns a handler that adds the key of an object to the queue. A handler
// does no more than this: all handlers of an informer wait for it, and what waits
// piles up in memory.
func (c *Controller) enqueue(keyOf func(obj any) (cache.ObjectName, freshness.Class)) cache.ResourceEventHandler {
	add := func(obj any, atLeast freshness.Class) {
		if key, class := keyOf(obj); key != (cache.ObjectName{}) {
			c.queue.AddWithClass(key, max(class, atLeast))
		}
	}
	return handler(add, func(old, new any) {
		// An object that was deleted and made again while the watch was down comes
		// as an update from the one to the other; the old one's pool must hear of it
		// too.
		oldKey, _ := keyOf(old)
		if newKey, _ := keyOf(new); oldKey != newKey {
			add(old, freshness.Changed)
		}
		add(new, freshness.Changed)
	})
}

// handler returns a handler that adds what comes and what goes to the queue, by add, and
// leaves it to update what to do about a change.
func handler(add func(obj any, atLeast freshness.Class), update func(old, new any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if isInInitialList {
				add(obj, freshness.Routine)
			} else {
				add(obj, freshness.Changed)
			}
		},
		UpdateFunc: update,
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				// The watch missed the deletion; this is the last state that
				// the cache knew, or nil.
				obj = tombstone.Obj
			}
			add(obj, freshness.Changed)
		},
	}
}

func keyOfPool(obj any) (cache.ObjectName, freshness.Class) {
	if warmPool, ok := obj.(*v1alpha1.WarmPool); ok {
		return cache.MetaObjectToName(warmPool), freshness.Routine
	}
	return cache.ObjectName{}, freshness.Routine
}

// keyOfClaim is the key of the claim's pool. Somebody waits for a claim that has no
// Pod yet.
func keyOfClaim(obj any) (cache.ObjectName, freshness.Class) {
	claim, ok := obj.(*v1alpha1.PodClaim)
	if !ok {
		return cache.ObjectName{}, freshness.Routine
	}
	key := cache.NewObjectName(claim.Namespace, claim.Spec.PoolName)
	if pool.StateOfClaim(claim, nil) == pool.ClaimWaiting {
		return key, freshness.Waiting
	}
	return key, freshness.Routine
}

// keyOfPod finds the pool of a Pod by its owner while it is idle, and by its label
// once a claim owns it.
func keyOfPod(obj any) (cache.ObjectName, freshness.Class) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return cache.ObjectName{}, freshness.Routine
	}
	if owner := pool.OwnerPool(pod); owner != nil {
		return cache.NewObjectName(pod.Namespace, owner.Name), freshness.Routine
	}
	if pool.OwnerClaim(pod) != nil {
		return cache.NewObjectName(pod.Namespace, pod.Labels[v1alpha1.LabelPool]), freshness.Routine
	}
	return cache.ObjectName{}, freshness.Routine
}

func (c *Controller) runWorker(ctx context.Context) {
	for ctx.Err() == nil && c.processNextWorkItem(context.WithoutCancel(ctx)) {
	}
}

// processNextWorkItem takes one key off the queue and reconciles it. It is the one
// place that decides what becomes of a key: Forget, try again later, or wait for a
// time. It returns false when the queue is shut down.
func (c *Controller) processNextWorkItem(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	// Done tells the queue that this worker has finished with the key; until
	// then no other worker is given it, and an event marks it to be done again.
	defer c.queue.Done(key)

	logger := klog.LoggerWithValues(klog.FromContext(ctx), "pool", key)
	ctx = klog.NewContext(ctx, logger)
	result, err := c.reconcile(ctx, key)
	switch {
	case err != nil && expected(err):
		// Somebody was faster, say: normal, and no news.
		logger.V(4).Info("Not done this time, trying again", "reason", err.Error())
		c.queue.AddRateLimited(key)
	case err != nil:
		utilruntime.HandleErrorWithContext(ctx, err, "Reconciling failed, trying again")
		c.queue.AddRateLimited(key)
	default:
		// Forget starts the backoff anew, so that the next failure is tried
		// again soon. A key that was parked comes here too: that its cache is
		// old is no failure, and the event that makes it fresh brings it back.
		c.queue.Forget(key)
	}
	// After a failure too: what is due at a certain time doesn't wait for a backoff that
	// may be longer.
	if result.RequeueAfter > 0 {
		c.queue.AddAfter(key, result.RequeueAfter)
	}
	return true
}

// syncHandler brings one pool nearer to what is asked for: it takes a snapshot from
// the caches, lets pool.Plan decide, and carries the decisions out. The guards call
// it, and only while the caches hold all that was written under this key.
func (c *Controller) syncHandler(ctx context.Context, key cache.ObjectName) (freshness.Result, error) {
	snapshot, err := c.snapshot(key)
	if err != nil {
		return freshness.Result{}, fmt.Errorf("read the caches for pool %s: %w", key, err)
	}
	actions := pool.Plan(snapshot, c.clock.Now())
	// The second check: has anything of this key arrived since the snapshot?
	err = freshness.Confirm(ctx, snapshot.Objects(), func() []metav1.Object {
		again, _ := c.snapshot(key)
		return again.Objects()
	})
	if err != nil {
		return freshness.Result{}, err
	}
	var r results
	c.carryOut(ctx, snapshot, actions, &r)
	result := freshness.Result{RequeueAfter: actions.RequeueAfter}
	if snapshot.Pool == nil {
		c.pace.forget(key)
	} else if putOff := c.updatePoolStatus(ctx, snapshot, actions, &r); putOff > 0 {
		result.RequeueAfter = earlier(result.RequeueAfter, putOff)
	}
	return result, r.err()
}

// earlier returns the shorter of two times to wait, of which 0 is for ever.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// snapshot collects what the caches hold of one pool. The objects are the caches'
// own: they are read and never changed.
func (c *Controller) snapshot(key cache.ObjectName) (pool.Snapshot, error) {
	var snapshot pool.Snapshot
	warmPool, err := c.pools.WarmPools(key.Namespace).Get(key.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return snapshot, err
	}
	pods := map[types.UID]*corev1.Pod{}
	if err == nil {
		snapshot.Pool = warmPool
		if err := c.collectPods(pods, podsByOwner, string(warmPool.UID)); err != nil {
			return snapshot, err
		}
	}
	claims, err := c.claims.ByIndex(claimsByPool, key.String())
	if err != nil {
		return snapshot, err
	}
	for _, obj := range claims {
		claim := obj.(*v1alpha1.PodClaim)
		snapshot.Claims = append(snapshot.Claims, claim)
		// By UID and not by a label or a name in a status: those can be edited.
		if err := c.collectPods(pods, podsByOwner, string(claim.UID)); err != nil {
			return snapshot, err
		}
	}
	// And the Pods of claims that are gone, until the garbage collector has them:
	// they use resources still.
	if err := c.collectPods(pods, podsByPool, key.String()); err != nil {
		return snapshot, err
	}
	snapshot.Pods = slices.Collect(maps.Values(pods))
	snapshot.Nodes = c.nodesOf(snapshot.Pods)
	return snapshot, nil
}

func (c *Controller) collectPods(into map[types.UID]*corev1.Pod, index, value string) error {
	objs, err := c.pods.ByIndex(index, value)
	for _, obj := range objs {
		pod := obj.(*corev1.Pod)
		into[pod.UID] = pod
	}
	return err
}
