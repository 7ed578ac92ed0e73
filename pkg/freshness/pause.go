package freshness

// Pause: how long a feed waits after a failure before it asks the API server again.

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

const (
	// firstPause is how long a feed waits at most after the first failure in a row.
	firstPause = 100 * time.Millisecond
	// longestPause is how long it waits at most after any. A request each few seconds is
	// nothing to an API server, and a cache that is old for a minute much to users.
	longestPause = 5 * time.Second
)

// pause counts failures in a row. The zero value is ready to use.
type pause struct{ failures int }

func (p *pause) reset() { p.failures = 0 }

// next returns how long to wait after another failure: up to twice as long as after
// the last, half of it at random, and as long as the API server asks for.
func (p *pause) next(failed error) time.Duration {
	d := min(firstPause<<min(p.failures, 10), longestPause)
	p.failures++
	d = d/2 + rand.N(d/2)
	if seconds, ok := apierrors.SuggestsClientDelay(failed); ok {
		d = max(d, time.Duration(seconds)*time.Second)
	}
	return min(d, longestPause)
}

// backOff returns a timer for the next try after a failure, and tells of it.
func (f *Feed) backOff(ctx context.Context, verb string, p *pause, failed error) *time.Timer {
	d := p.next(failed)
	logger := klog.FromContext(ctx)
	if p.failures == 1 {
		logger = logger.V(2) // it happens whenever an API server is restarted
	}
	logger.Info("Can't fill a cache, will try again", "verb", verb, "resource", f.config.Resource.GroupResource(), "failures", p.failures, "in", d, "err", failed)
	return time.NewTimer(d)
}

// isTransient tells whether an error is one that a client may wait out: nobody answered, or
// somebody who is too busy or too old to.
func isTransient(err error) bool {
	if errors.Is(err, errStalled) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := int(status.Status().Code)
	return code == http.StatusTooManyRequests || code == http.StatusGone || code > http.StatusInternalServerError
}
