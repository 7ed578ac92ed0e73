package freshness

// Fence: what a new leader must have in its caches before it acts.
//
// Closes: the standby with a warm but lagging cache. It takes over in an instant, sees a
// world in which its predecessor's last writes haven't happened, and does them again. Its
// ledger knows nothing of them: they are another process's.
//
// How: after leadership was acquired, one quorum read for each resource gives the version
// that its store must reach. The store of an idle collection would reach it only with its
// next bookmark, in up to a minute: the version is that of all of etcd. It is compared with
// the API server then, and passes if it holds the same objects at the same versions. One
// that differs is asked for a bookmark, and for a new list if that doesn't help. Then every
// object in the caches is handed to the handlers once: what a standby's queue dropped, or
// its predecessor left undone, is looked at again.
//
// Costs: a quorum read and mostly no waiting at each change of leaders; 0.25 s and a list
// of metadata where a collection is idle.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// DefaultFenceTimeout is how long a new leader waits for its caches.
	DefaultFenceTimeout = 30 * time.Second
	// fenceCompare is after how long a store is compared with the API server,
	// fenceNudge after how long more it is helped along if it differs, and fenceRelist
	// after how long more it is filled anew.
	fenceCompare = 250 * time.Millisecond
	fenceNudge   = 250 * time.Millisecond
	fenceRelist  = 5 * time.Second
	// fenceRetry is how long after a quorum read that failed it is tried again.
	fenceRetry = 500 * time.Millisecond
)

// Fence holds a new leader back until its caches have reached what the API server had
// when it became leader. Feeds and Live are required. It is safe for concurrent use.
type Fence struct {
	Feeds []*Feed
	Live  Live
	// Timeout is how long Wait waits. 0: DefaultFenceTimeout.
	Timeout time.Duration
	// Learned, if it isn't nil, is told of each version that was read, and when the
	// read began.
	Learned func(feed *Feed, version, highest string, asOf time.Time)
	// Highest, if it isn't nil, returns the newest version that a store had; it is
	// asked before the read that Learned is told of.
	Highest func(*Feed) string
	// Clock measures. Nil: the real one.
	Clock clock.Clock
	// Metrics counts. Nil: nothing is counted.
	Metrics *Metrics
}

// Wait returns nil when every feed's store has reached the version that the API server
// had at some time after Wait was called. It must be called after leadership was acquired.
// It returns an error that names the caches when the time is up; the process is to give
// leadership up then, for another may have better connections.
func (f *Fence) Wait(ctx context.Context) error {
	timeout := f.Timeout
	if timeout == 0 {
		timeout = DefaultFenceTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not within %s", timeout))
	defer cancel()
	errs := make([]error, len(f.Feeds))
	var wg sync.WaitGroup
	for i, feed := range f.Feeds {
		wg.Go(func() { errs[i] = f.pass(ctx, feed) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("pass the fence of a new leader: %w", err)
	}
	f.Metrics.fired(GuardFence, "passed")
	return nil
}

// pass waits for one feed.
func (f *Fence) pass(ctx context.Context, feed *Feed) error {
	version, err := f.version(ctx, feed)
	if err != nil {
		return err
	}
	if f.waitFor(ctx, feed, version, fenceCompare) == nil || f.equal(ctx, feed) {
		return nil
	}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "resource", feed.Resource().Resource, "version", version)
	for _, step := range []struct {
		patience time.Duration
		action   string
		help     func()
	}{
		{fenceNudge, "nudge", feed.Nudge},
		{fenceRelist, "relist", feed.ForceRelist},
	} {
		if f.waitFor(ctx, feed, version, step.patience) == nil {
			return nil
		}
		if ctx.Err() != nil {
			break
		}
		logger.V(2).Info("The cache of a new leader lags", "action", step.action)
		f.Metrics.fired(GuardFence, step.action)
		step.help()
	}
	return feed.WaitFor(ctx, version)
}

// equal reports whether a store holds what the API server had after leadership was
// acquired, object by object. Then it lacks nothing, whatever its version.
func (f *Fence) equal(ctx context.Context, feed *Feed) bool {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	objects, err := f.Live.Objects(ctx, feed)
	if err != nil || !feed.holds(objects) {
		return false
	}
	f.Metrics.fired(GuardFence, "found_equal")
	return true
}

func (f *Fence) waitFor(ctx context.Context, feed *Feed, version string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return feed.WaitFor(ctx, version)
}

// version asks the API server for the resource's version, until it answers.
func (f *Fence) version(ctx context.Context, feed *Feed) (string, error) {
	timer := f.clock()
	for {
		var highest string
		if f.Highest != nil {
			highest = f.Highest(feed)
		}
		asOf := timer.Now()
		version, err := f.Live.Version(ctx, feed)
		if err == nil {
			if f.Learned != nil {
				f.Learned(feed, version, highest, asOf)
			}
			return version, nil
		}
		klog.FromContext(ctx).V(2).Info("Can't read the version of a resource, trying again", "resource", feed.Resource().Resource, "err", err)
		select {
		case <-timer.After(fenceRetry):
		case <-ctx.Done():
			return "", fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
	}
}

func (f *Fence) clock() clock.Clock {
	if f.Clock == nil {
		return clock.RealClock{}
	}
	return f.Clock
}
