package freshness

// Diagnosis: why a cache isn't there, and what mends it.

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// diagnosisTimeout bounds the lists that find out why a cache is missing.
const diagnosisTimeout = 5 * time.Second

// probe asks for a list of one object.
func probe(ctx context.Context, lister cache.ListerWithContext) error {
	ctx, cancel := context.WithTimeout(ctx, diagnosisTimeout)
	defer cancel()
	_, err := lister.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	return err
}

// diagnose finds out why each of the caches that aren't synced is missing.
func diagnose(ctx context.Context, timeout time.Duration, required []*guardedCache) error {
	var wg sync.WaitGroup
	missing := make([]*MissingCache, len(required))
	for i, c := range required {
		if !c.synced() {
			wg.Go(func() { missing[i] = c.diagnose(ctx) })
		}
	}
	wg.Wait()
	result := &NotSyncedError{Timeout: timeout, Required: len(required)}
	for _, m := range missing {
		if m != nil {
			result.Missing = append(result.Missing, *m)
		}
	}
	return result
}

func (c *guardedCache) diagnose(ctx context.Context) *MissingCache {
	c.mu.Lock()
	err := c.lastErr
	c.mu.Unlock()
	reason := reasonOf(err)
	if c.Lister != nil {
		// What the reflector was told last may be old, or nothing at all.
		if probed := probe(ctx, c.Lister); probed != nil {
			err, reason = probed, reasonOf(probed)
		} else {
			reason = Slow
		}
	}
	if reason == Slow && cache.IsDone(c.Informer.HasSyncedChecker()) {
		reason = HandlersBehind
	}
	return &MissingCache{Resource: c.Resource, Reason: reason, Err: err, Mend: c.mend(reason)}
}

// mend says what to do about a cache that is missing for reason.
func (c *guardedCache) mend(reason Reason) string {
	name := c.Resource.String()
	switch reason {
	case NotInstalled:
		if c.InstallCommand != "" {
			return "install its definition: " + c.InstallCommand
		}
		return "install its definition, and look for it with: kubectl get crd " + name
	case Forbidden:
		if c.GrantCommand != "" {
			return "grant list and watch: " + c.GrantCommand
		}
		return fmt.Sprintf("grant list and watch: kubectl create clusterrole read-%[1]s --verb=list,watch --resource=%[2]s && "+
			"kubectl create clusterrolebinding read-%[1]s --clusterrole=read-%[1]s --user=USER (the user that the message names)",
			c.Resource.Resource, name)
	case Unauthorized:
		return "the API server doesn't accept these credentials, look at them with: kubectl auth whoami"
	case Unreachable:
		return "the API server can't be reached at the configured address, try: kubectl get --raw /readyz"
	case Failing:
		return "the API server answers with errors, see what it lacks with: kubectl get --raw '/readyz?verbose'"
	case HandlersBehind:
		return "the cache is filled but its handlers haven't seen all of it: a handler must do no work of its own; or allow more time"
	default:
		return "it can be listed now, so the list is large, or what was missing came late: start again, or allow more time"
	}
}

// NotSyncedError tells which caches were missing when the time was up.
type NotSyncedError struct {
	// Timeout is how long was waited.
	Timeout time.Duration
	// Required is how many caches were waited for.
	Required int
	// Missing are those that weren't complete.
	Missing []MissingCache
}

// MissingCache is a cache that wasn't complete in time.
type MissingCache struct {
	Resource schema.GroupResource
	Reason   Reason
	// Err is what the API server, or the way to it, answered. It may be nil.
	Err error
	// Mend says what to do, with a command.
	Mend string
}

// Error names each cache that is missing on a line of its own.
func (e *NotSyncedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d caches not synced within %s", len(e.Missing), e.Required, e.Timeout)
	for _, m := range e.Missing {
		fmt.Fprintf(&b, "\n  %s: %s", m.Resource, m.Reason)
		if m.Err != nil {
			fmt.Fprintf(&b, " (%v)", m.Err)
		}
		fmt.Fprintf(&b, "; %s", m.Mend)
	}
	return b.String()
}

// Unwrap returns the errors of the missing caches, for errors.Is and errors.As.
func (e *NotSyncedError) Unwrap() []error {
	var errs []error
	for _, m := range e.Missing {
		if m.Err != nil {
			errs = append(errs, m.Err)
		}
	}
	return errs
}
