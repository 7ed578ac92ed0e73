package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/klog/v2"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/freshness"
	"warmpool.dev/controller/pkg/pool"
)

// This file carries pool.Actions out; what is written for claims is in claims.go. Every
// write is conditional on what it was decided on, so that a decision on an old cache is
// refused by the API server:
//
//	hand-out       JSON patch that tests the Pod's uid, owner, readiness
//	claim status   update with the claim's resourceVersion; status.pod is write-once
//	deletion       preconditions uid and resourceVersion, of Pods and of claims
//	creation       a name of our choice, the owner's uid
//	pool status    update with the pool's resourceVersion

// errConflict tells that a precondition was not met: the world has moved on, and
// the next plan will see it. It is normal, and no error to log.
var errConflict = errors.New("the object has changed since it was read")

// maxParallel is how many requests of one reconcile are under way at once.
const maxParallel = 16

// nameSuffixLength is the length of the random part of a Pod's name.
const nameSuffixLength = 8

// maxRefusedDeletions is how many deletions of one reconcile may be refused before the
// rest isn't tried. A policy that protects one Pod must not keep all others, and one that
// protects all must not cost a request for each.
const maxRefusedDeletions = 10

// results collects what the parallel writes of one reconcile brought about.
type results struct {
	mu      sync.Mutex
	outcome pool.Outcome
	errs    []error
	refused int // deletions
}

// mayBeRefused counts a deletion that was refused, and tells whether to go on.
func (r *results) mayBeRefused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused++
	return r.refused < maxRefusedDeletions
}

func (r *results) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

// conflict notes that a precondition of a write was not met.
func (r *results) conflict(write string, object klog.ObjectRef, err error) {
	conflicts.WithLabelValues(write).Inc()
	r.failed(fmt.Errorf("%s %s: %w: %w", write, object, errConflict, err))
}

func (r *results) record(change func(*pool.Outcome)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.outcome)
}

// err joins the errors. What is expected is reported only if nothing worse happened.
func (r *results) err() error {
	var real []error
	for _, err := range r.errs {
		if !expected(err) {
			real = append(real, err)
		}
	}
	if len(real) > 0 {
		return errors.Join(real...)
	}
	return errors.Join(r.errs...)
}

// carryOut does what was planned, all of it at once: a claim must not wait for the
// refill of those before it. None of the writes relies on another of the same plan.
func (c *Controller) carryOut(ctx context.Context, snapshot pool.Snapshot, actions pool.Actions, r *results) {
	steps := []func(){
		func() {
			inParallel(len(actions.HandOuts), func(i int) { c.handOut(ctx, snapshot, actions.HandOuts[i], r) })
		},
		func() {
			inParallel(len(actions.ClaimStatuses), func(i int) { c.updateClaimStatus(ctx, actions.ClaimStatuses[i], r) })
		},
		func() {
			inParallel(len(actions.ExpiredClaims), func(i int) { c.deleteExpiredClaim(ctx, actions.ExpiredClaims[i], r) })
		},
		func() {
			slowStart(len(actions.Deletions), func(i int) bool { return c.deletePod(ctx, snapshot, actions.Deletions[i], r) })
		},
		func() { c.createPods(ctx, snapshot.Pool, actions.Creations, r) },
	}
	inParallel(len(steps), func(i int) { steps[i]() })
	if r.outcome.Created > 0 {
		c.recorder.Eventf(snapshot.Pool, corev1.EventTypeNormal, "PodsCreated", "Created %d Pods", r.outcome.Created)
	}
}

// deletePod deletes one Pod that nobody has claimed. Both preconditions are needed:
// the uid for a Pod that was made again under the same name, the resourceVersion for
// one that was handed out a moment ago.
func (c *Controller) deletePod(ctx context.Context, snapshot pool.Snapshot, d pool.Deletion, r *results) (accepted bool) {
	err := c.kube.CoreV1().Pods(d.Pod.Namespace).Delete(ctx, d.Pod.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &d.Pod.UID, ResourceVersion: &d.Pod.ResourceVersion},
	})
	switch {
	case err == nil:
		podsDeleted.Inc()
		klog.FromContext(ctx).V(2).Info("Deleted", "pod", klog.KObj(d.Pod), "reason", d.Reason)
		if snapshot.Pool != nil {
			c.recorder.Eventf(snapshot.Pool, corev1.EventTypeNormal, "PodDeleted", "Deleted Pod %s: %s", d.Pod.Name, d.Reason)
		}
	case apierrors.IsNotFound(err):
		// Somebody else deleted it, which is as good.
	case apierrors.IsConflict(err):
		r.conflict("delete pod", klog.KObj(d.Pod), err)
		return true // says nothing of the next one
	default:
		r.failed(fmt.Errorf("delete pod %s: %w", klog.KObj(d.Pod), err))
		return isRefusal(err) && r.mayBeRefused()
	}
	r.record(func(o *pool.Outcome) { o.Deleted = append(o.Deleted, d.Pod.UID) })
	return true
}

// createPods creates the Pods that a pool lacks. Before, it asks the API server whether
// the pool is still the one in the cache. Two watches are never in step, and no guard can
// tell that one lags if the write was somebody else's: when a pool is deleted, the
// garbage collector deletes its Pods, and these events may be here before the pool's.
func (c *Controller) createPods(ctx context.Context, warmPool *v1alpha1.WarmPool, n int, r *results) {
	if n == 0 {
		return
	}
	live, err := c.warmpool.WarmpoolV1alpha1().WarmPools(warmPool.Namespace).Get(ctx, warmPool.Name, metav1.GetOptions{})
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		r.failed(fmt.Errorf("look at pool %s before creating pods: %w", klog.KObj(warmPool), err))
	case err != nil || live.UID != warmPool.UID || live.DeletionTimestamp != nil || live.Generation != warmPool.Generation:
		r.conflict("create pods of pool", klog.KObj(warmPool), errors.New("the pool is not what the cache holds"))
	default:
		slowStart(n, func(int) bool { return c.createPod(ctx, warmPool, r) })
	}
}

// createPod creates one Pod of a pool, under a name of our choice.
func (c *Controller) createPod(ctx context.Context, warmPool *v1alpha1.WarmPool, r *results) (accepted bool) {
	name := pool.PodName(warmPool.Name, utilrand.String(nameSuffixLength))
	pod, err := c.kube.CoreV1().Pods(warmPool.Namespace).Create(ctx, pool.NewPod(warmPool, name), metav1.CreateOptions{})
	switch {
	case err == nil:
		podsCreated.Inc()
		klog.FromContext(ctx).V(2).Info("Created", "pod", klog.KObj(pod))
		r.record(func(o *pool.Outcome) {
			o.Pods = append(o.Pods, pod)
			o.Created++
		})
		return true
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false // all that is in it goes, the pool too
	case apierrors.IsAlreadyExists(err):
		// Not ours to touch, whoever's it is; the next name is another one.
		r.conflict("create pod", klog.KRef(warmPool.Namespace, name), err)
		return true
	default:
		r.failed(fmt.Errorf("create pod %s/%s: %w", warmPool.Namespace, name, err))
		r.record(func(o *pool.Outcome) {
			if o.CreateError == nil && (isRefusal(err) || isWebhookDown(err)) {
				o.CreateError, o.CreateName = err, name
			}
		})
		return false
	}
}

// updatePoolStatus writes the pool's status if it says anything new. It returns for how
// long that is put off, or 0: new counts may be too soon after the last write, and those
// that follow are written with them.
func (c *Controller) updatePoolStatus(ctx context.Context, snapshot pool.Snapshot, actions pool.Actions, r *results) (putOff time.Duration) {
	now := c.clock.Now()
	status, change := pool.Status(snapshot, actions, r.outcome, now)
	if change == pool.Unchanged {
		return 0
	}
	if putOff := c.pace.putOff(snapshot.Pool, now); putOff > 0 && change == pool.CountsChanged {
		return putOff
	}
	warmPool := snapshot.Pool.DeepCopy()
	warmPool.Status = status
	_, err := c.warmpool.WarmpoolV1alpha1().WarmPools(warmPool.Namespace).UpdateStatus(ctx, warmPool, metav1.UpdateOptions{})
	switch {
	case err == nil:
		c.pace.wrote(warmPool, now)
		c.report(snapshot.Pool, status)
	case apierrors.IsNotFound(err):
		// The pool is gone.
	case apierrors.IsConflict(err):
		r.conflict("update pool status", klog.KObj(warmPool), err)
	default:
		r.failed(fmt.Errorf("update the status of pool %s: %w", klog.KObj(warmPool), err))
	}
	return 0
}

// report makes an event of what is wrong with a pool, if its last status didn't tell of
// it. A message stays the same for as long as its cause does, so there is one event for
// each cause, and none for each try. That a pool doesn't get on since its creations are
// refused is no cause of its own.
func (c *Controller) report(before *v1alpha1.WarmPool, status v1alpha1.WarmPoolStatus) {
	wrong := meta.FindStatusCondition(status.Conditions, v1alpha1.PoolReplicaFailure)
	if wrong == nil || wrong.Status != metav1.ConditionTrue {
		wrong = meta.FindStatusCondition(status.Conditions, v1alpha1.PoolProgressing)
		if wrong == nil || wrong.Status != metav1.ConditionFalse {
			return
		}
	}
	told := meta.FindStatusCondition(before.Status.Conditions, wrong.Type)
	if told == nil || told.Status != wrong.Status || told.Message != wrong.Message {
		c.recorder.Event(before, corev1.EventTypeWarning, wrong.Reason, wrong.Message)
	}
}

// expected tells whether an error is a part of normal life: a precondition that wasn't
// met, a write that waits until it is known what became of an earlier one, the end of
// this leader's term.
func expected(err error) bool {
	var inDoubt *freshness.InDoubtError
	return errors.Is(err, errConflict) || errors.As(err, &inDoubt) || errors.Is(err, freshness.ErrTermEnded)
}

// isTestFailed tells whether a JSON patch was refused because a test of its own
// failed. The API server answers 422 Invalid then, with details that are empty.
// Validation and admission policies answer 422 as well, and name the object and the
// causes; a webhook that does gives no details at all.
func isTestFailed(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name == "" && len(details.Causes) == 0
}

// isRefusal tells whether the API server has refused a request for what it asks,
// rather than failed to serve it.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
}

// isWebhookDown tells whether a request failed because an admission webhook couldn't be
// asked. That is answered as an internal error, but it is the operator's to mend, and may
// last.
func isWebhookDown(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
}

// inParallel calls do for 0 to n-1, maxParallel at a time, and waits for all. If one
// panics, so does inParallel in the end: on a goroutine of its own a panic would pass by
// freshness.Recover, and end the process.
func inParallel(n int, do func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxParallel)
	panics := make(chan string, n)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() {
				if cause := recover(); cause != nil {
					panics <- fmt.Sprintf("%v\n%s", cause, debug.Stack())
				}
				<-slots
			}()
			do(i)
		})
	}
	wg.Wait()
	select {
	case cause := <-panics:
		panic(cause)
	default:
	}
}

// slowStart calls do for 0 to n-1 in batches of 1, 2, 4, ..., and no further once
// one of a batch was not accepted: a quota or a broken template costs one request,
// and not a thousand. The idea is the ReplicaSet controller's (slowStartBatch).
func slowStart(n int, do func(i int) (accepted bool)) {
	for done, batch := 0, 1; done < n; batch *= 2 {
		size := min(batch, n-done)
		accepted := make([]bool, size)
		inParallel(size, func(i int) { accepted[i] = do(done + i) })
		if slices.Contains(accepted, false) {
			return
		}
		done += size
	}
}
