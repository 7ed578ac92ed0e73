package freshness

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTheFirstMiddlewareOfAChainIsTheOutermost(t *testing.T) {
	var calls []string
	named := func(name string) Middleware[string] {
		return func(next Reconciler[string]) Reconciler[string] {
			return func(ctx context.Context, key string) (Result, error) {
				calls = append(calls, name+" before "+key)
				result, err := next(ctx, key)
				calls = append(calls, name+" after "+key)
				return result, err
			}
		}
	}
	reconcile := Chain(func(_ context.Context, key string) (Result, error) {
		calls = append(calls, "reconcile "+key)
		return Result{RequeueAfter: time.Minute}, nil
	}, named("a"), named("b"))

	result, err := reconcile(t.Context(), "ns/x")
	if err != nil || result.RequeueAfter != time.Minute {
		t.Errorf("got %+v, %v; want RequeueAfter 1m0s and no error", result, err)
	}
	want := []string{"a before ns/x", "b before ns/x", "reconcile ns/x", "b after ns/x", "a after ns/x"}
	if !slices.Equal(calls, want) {
		t.Errorf("got calls %q, want %q", calls, want)
	}
}

func TestAMiddlewareCanKeepAKeyFromBeingReconciled(t *testing.T) {
	refuse := func(Reconciler[string]) Reconciler[string] {
		return func(context.Context, string) (Result, error) { return Result{Parked: true}, nil }
	}
	reconcile := Chain(func(context.Context, string) (Result, error) {
		t.Error("reconciled, although the middleware refused")
		return Result{}, nil
	}, refuse)
	if result, err := reconcile(t.Context(), "ns/x"); err != nil || !result.Parked {
		t.Errorf("got %+v, %v; want a parked key and no error", result, err)
	}
}

func TestAPanicBecomesAnErrorOfItsOwnKeyWithTheStack(t *testing.T) {
	reconcile := Chain(func(context.Context, string) (Result, error) {
		panic("broken object")
	}, Recover[string])
	_, err := reconcile(t.Context(), "ns/x")
	if err == nil {
		t.Fatal("got no error from a reconcile that panicked")
	}
	for _, want := range []string{"reconciling ns/x panicked: broken object", "middleware_test.go"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error doesn't contain %q:\n%v", want, err)
		}
	}
}

func TestRecoverPassesResultsAndErrorsOn(t *testing.T) {
	failure := errors.New("refused")
	reconcile := Chain(func(context.Context, string) (Result, error) {
		return Result{RequeueAfter: time.Second}, failure
	}, Recover[string])
	result, err := reconcile(t.Context(), "ns/x")
	if !errors.Is(err, failure) || result.RequeueAfter != time.Second {
		t.Errorf("got %+v, %v; want RequeueAfter 1s and the error itself", result, err)
	}
}
