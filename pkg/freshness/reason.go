package freshness

// Reason: why the API server, or the way to it, didn't do what was asked, in the few
// words that somebody who must mend it needs.

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// Reason is the kind of cause for which a cache isn't there.
type Reason string

// The reasons.
const (
	// NotInstalled: the API server doesn't know the resource.
	NotInstalled Reason = "the API server doesn't know this resource"
	// Forbidden: the user may not list or watch it.
	Forbidden Reason = "forbidden"
	// Unauthorized: the API server doesn't know the user.
	Unauthorized Reason = "unauthorized"
	// Unreachable: no answer from the API server.
	Unreachable Reason = "unreachable"
	// Failing: the API server answers with an error of its own.
	Failing Reason = "failing"
	// HandlersBehind: the store is filled, but not all handlers have seen it.
	HandlersBehind Reason = "handlers behind"
	// Slow: it can be listed, but isn't there yet.
	Slow Reason = "not yet complete"
)

// reasonOf tells the causes of an error apart.
func reasonOf(err error) Reason {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return Slow
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return NotInstalled
	case apierrors.IsForbidden(err):
		return Forbidden
	case apierrors.IsUnauthorized(err):
		return Unauthorized
	case errors.As(err, &status):
		return Failing
	default:
		// A connection that broke in the midst has many names, and an error
		// that isn't the API server's status came from the way to it.
		return Unreachable
	}
}
