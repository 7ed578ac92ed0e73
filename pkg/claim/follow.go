package claim

// Waiting by watch. A claim is read again only when its watch has ended: after some
// minutes, or because of a fault.

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

// watchTimeout is how long one watch lasts. A watch that has gone silent, at an API
// server that is cut off from etcd, holds nobody up for longer.
const watchTimeout = 5 * time.Minute

// newDelay returns how long to wait before the next try: 0.1 s at first, up to 10 s, and
// 0.1 s again once a minute is over.
func newDelay() wait.DelayFunc {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 10 * time.Second}.
		DelayWithReset(clock.RealClock{}, time.Minute)
}

// follow watches a claim until done says that it is as wanted, and returns it so. With
// an error it returns the claim as it was seen last; a *FinishedError tells that done
// can't come true any more.
func (c *Client) follow(ctx context.Context, claim *v1alpha1.PodClaim, done func(*v1alpha1.PodClaim) bool) (*v1alpha1.PodClaim, error) {
	for delay := newDelay(); ; {
		if err := over(claim); err != nil || done(claim) {
			return claim, err
		}
		seen, err := c.watch(ctx, claim, done)
		if claim = seen; err == nil {
			continue // what has come of it is looked at above
		}
		if passes(err) && pause(ctx, delay()) {
			var read *v1alpha1.PodClaim
			if read, err = c.read(ctx, claim); err == nil {
				claim = read
				continue
			}
		}
		switch {
		case ctx.Err() != nil:
			return claim, stopped(ctx, err)
		case !passes(err):
			return claim, err
		}
	}
}

// watch watches a claim from the version given on, and returns it as soon as it is over
// or done. The error says how the watch ended before that.
func (c *Client) watch(ctx context.Context, claim *v1alpha1.PodClaim, done func(*v1alpha1.PodClaim) bool) (*v1alpha1.PodClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout+requestTimeout)
	defer cancel()
	watcher, err := c.claims.Watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, claim.Name).String(),
		ResourceVersion: claim.ResourceVersion,
		TimeoutSeconds:  ptr.To(int64(watchTimeout / time.Second)),
	})
	if err != nil {
		return claim, fmt.Errorf("watch it: %w", err)
	}
	defer watcher.Stop()
	for {
		select {
		case <-ctx.Done():
			return claim, ctx.Err()
		case event, open := <-watcher.ResultChan():
			if err := ctx.Err(); err != nil {
				return claim, err // and the watch ends because of it
			}
			if !open {
				return claim, errWatchEnded
			}
			changed, isClaim := event.Object.(*v1alpha1.PodClaim)
			switch {
			case event.Type == watch.Error:
				return claim, fmt.Errorf("watch it: %w", apierrors.FromObject(event.Object))
			case !isClaim:
				return claim, fmt.Errorf("watch it: an event of type %s with a %T", event.Type, event.Object)
			case changed.UID != claim.UID:
				return claim, gone(claim)
			case event.Type == watch.Deleted:
				return claim, gone(changed)
			}
			if claim = changed; over(claim) != nil || done(claim) {
				return claim, nil
			}
		}
	}
}

// read reads the claim anew, past every cache.
func (c *Client) read(ctx context.Context, claim *v1alpha1.PodClaim) (*v1alpha1.PodClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	read, err := c.claims.Get(ctx, claim.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, gone(claim)
	case err != nil:
		return nil, fmt.Errorf("read it: %w", err)
	case read.UID != claim.UID:
		return nil, gone(claim)
	default:
		return read, nil
	}
}

// over says why nothing more comes of a claim, or is nil.
func over(claim *v1alpha1.PodClaim) error {
	finished := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimFinished)
	switch {
	case finished != nil && finished.Status == metav1.ConditionTrue:
		return &FinishedError{Reason: finished.Reason, Message: finished.Message}
	case claim.DeletionTimestamp != nil:
		return &FinishedError{Reason: ReasonDeleted, Message: "somebody deleted it"}
	default:
		return nil
	}
}

// gone says why a claim isn't there any more, as far as its last state tells.
func gone(last *v1alpha1.PodClaim) error {
	if err := over(last); err != nil {
		return err
	}
	return &FinishedError{Reason: ReasonDeleted, Message: "somebody deleted it"}
}

// pause waits, and tells whether ctx still lasts.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
