package main

// Waiting for what a watch tells.

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// follow hands each object that the watch tells of to see until that answers true,
// and stops the watch. A watch that was opened without a resourceVersion begins with
// what is there already. client-go's informers would hide the moment at which an
// event arrives, and its RetryWatcher is for longer than the minutes of a demo.
func follow[T runtime.Object](ctx context.Context, events watch.Interface, see func(T) (done bool)) error {
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case event, open := <-events.ResultChan():
			if !open {
				return errors.New("the API server ended the watch")
			}
			object, ok := event.Object.(T)
			if !ok {
				return fmt.Errorf("the watch failed: %w", apierrors.FromObject(event.Object))
			}
			if see(object) {
				return nil
			}
		}
	}
}
