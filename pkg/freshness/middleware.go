package freshness

// Middleware: how guards are put around a reconcile function without touching it.
//
// Closes: guards that only a framework's authors can add, and guards that a call
// site can forget. A middleware stands in the path of every key.
//
// Costs: a function call.

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// Reconciler brings what a key stands for nearer to what is asked for. It may be
// called for several keys at once, and never twice at a time for one key.
//
// An error means: try again later, after a backoff that grows.
type Reconciler[K comparable] func(ctx context.Context, key K) (Result, error)

// Result says when a key whose reconcile has succeeded wants to be seen again.
// The zero value says: when something changes.
type Result struct {
	// RequeueAfter, if it is above 0, is the time after which the key is to be
	// reconciled again even if nothing changes.
	RequeueAfter time.Duration
	// Parked tells that the key was not worked on, because its caches are stale.
	// It needs nothing from the worker: the guard that parked it adds it to the
	// queue when the caches have caught up. Being stale is no failure, so the
	// worker forgets the key as after a success.
	Parked bool
}

// Middleware puts something around a Reconciler: it may act before and after next,
// or not call it at all.
type Middleware[K comparable] func(next Reconciler[K]) Reconciler[K]

// Chain returns reconcile with the middlewares around it. The first is the
// outermost: it sees the key first and the result last.
func Chain[K comparable](reconcile Reconciler[K], middlewares ...Middleware[K]) Reconciler[K] {
	for i := len(middlewares) - 1; i >= 0; i-- {
		reconcile = middlewares[i](reconcile)
	}
	return reconcile
}

// Recover is a middleware that turns a panic into an error, so that one broken
// object costs its own key a backoff, and not all keys their process. The error
// holds the stack.
func Recover[K comparable](next Reconciler[K]) Reconciler[K] {
	return func(ctx context.Context, key K) (result Result, err error) {
		defer func() {
			if cause := recover(); cause != nil {
				result, err = Result{}, fmt.Errorf("reconciling %v panicked: %v\n%s", key, cause, debug.Stack())
			}
		}()
		return next(ctx, key)
	}
}
