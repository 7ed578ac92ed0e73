package environment

// Waiting for a condition, with a deadline.

import (
	"context"
	"errors"
	"testing"
	"time"
)

const (
	// Timeout is how long a condition may take to come true. It is many times
	// what an unloaded machine needs, and only a test that fails waits for it.
	Timeout = 90 * time.Second
	// pollInterval is how often it is looked for.
	pollInterval = 50 * time.Millisecond
)

// Eventually calls check until it returns nil, and ends the test if it doesn't
// within Timeout. what says what is waited for.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("waited %s for %s: %v", time.Since(begun).Round(time.Second), what, err)
		}
	}
}

// For calls check again and again while d lasts, and ends the test when it returns
// an error. It is for what must not happen; a fault may be missed, but a correct
// controller never fails it.
func For(t testing.TB, d time.Duration, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		if err := check(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Fatalf("%s: %v", what, ctx.Err())
			}
			return
		}
	}
}
