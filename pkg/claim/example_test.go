package claim_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/claim"
	"warmpool.dev/controller/pkg/generated/clientset/versioned"
)

// A program takes a runner, uses it, and gives it back.
func Example() {
	build := func(ctx context.Context, config *rest.Config) error {
		clientset, err := versioned.NewForConfig(config)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		runner, err := claim.New(clientset, "ci").Acquire(ctx, claim.Options{
			Pool:     "runners",
			Lifetime: time.Hour, // should this program die, the Pod goes all the same
			Labels:   map[string]string{"build": "17"},
		})
		if err != nil {
			return err
		}
		fmt.Println("build 17 runs in Pod", runner.Pod.Name, "at", runner.PodIPs[0])
		return runner.Release(context.WithoutCancel(ctx))
	}
	_ = build
}

// The work ends when the Pod does, and the error says why.
func ExampleClaim_Wait() {
	work := func(ctx context.Context, runner *claim.Claim, run func(context.Context) error) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		go func() { cancel(runner.Wait(ctx)) }()
		err := run(ctx)
		return cmp.Or(context.Cause(ctx), err)
	}
	_ = work
}

// A claim that has timed out is told apart from other errors.
func ExampleFinishedError() {
	var err error = &claim.FinishedError{Reason: v1alpha1.ReasonTimedOut, Message: "no Pod within 30 s"}
	fmt.Println(err)
	if errors.Is(err, &claim.FinishedError{Reason: v1alpha1.ReasonTimedOut}) {
		fmt.Println("the pool is busy")
	}
	// Output:
	// it is finished: TimedOut: no Pod within 30 s
	// the pool is busy
}
