package freshness

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// lease is a lock that several candidates share, in memory.
type lease struct {
	mu     sync.Mutex
	record *resourcelock.LeaderElectionRecord
}

// candidate is one candidate's way to the lease.
type candidate struct {
	lease    *lease
	identity string
	// cut makes every request fail after delay.
	cut bool
}

func (c *candidate) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	c.lease.mu.Lock()
	defer c.lease.mu.Unlock()
	switch {
	case c.cut:
		return nil, nil, errors.New("cut off")
	case c.lease.record == nil:
		return nil, nil, apierrors.NewNotFound(leases, "lease")
	}
	record := *c.lease.record
	raw, err := json.Marshal(record)
	return &record, raw, err
}

func (c *candidate) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return c.Update(ctx, record)
}

func (c *candidate) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	c.lease.mu.Lock()
	defer c.lease.mu.Unlock()
	if c.cut {
		return errors.New("cut off")
	}
	c.lease.record = &record
	return nil
}

func (c *candidate) RecordEvent(string) {}
func (c *candidate) Identity() string   { return c.identity }
func (c *candidate) Describe() string   { return "lease" }

func record(holder string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 15}
}

func TestALeaderMayWriteWhileItsWritesLandWithinItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := &candidate{lease: &lease{}, identity: "a"}
		term := NewTerm(own, 5*time.Second, nil)
		if err := term.Permit(); !errors.Is(err, ErrTermEnded) {
			t.Errorf("got %v before any term, want ErrTermEnded", err)
		}
		if err := term.Create(t.Context(), record("a")); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			after time.Duration
			want  error
		}{{0, nil}, {9 * time.Second, nil}, {time.Millisecond, ErrTermEnded}} {
			elapse(step.after)
			if err := term.Permit(); !errors.Is(err, step.want) {
				t.Errorf("got %v, want %v", err, step.want)
			}
		}
		if err := term.Update(t.Context(), record("a")); err != nil {
			t.Fatal(err)
		}
		if err := term.Permit(); err != nil {
			t.Errorf("got %v after a renewal, want none", err)
		}
		own.cut = true
		if err := term.Update(t.Context(), record("a")); err == nil {
			t.Fatal("the renewal succeeded")
		}
		elapse(10 * time.Second)
		if err := term.Permit(); !errors.Is(err, ErrTermEnded) {
			t.Errorf("got %v 10s after the last renewal, want ErrTermEnded", err)
		}
	})
}

// slow is a lock whose answers take a while.
type slow struct {
	*candidate
	took time.Duration
}

func (s *slow) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	elapse(s.took)
	return s.candidate.Update(ctx, record)
}

func TestATermIsCountedFromBeforeItsRenewalWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term := NewTerm(&slow{&candidate{lease: &lease{}, identity: "a"}, 8 * time.Second}, 5*time.Second, nil)
		if err := term.Update(t.Context(), record("a")); err != nil {
			t.Fatal(err)
		}
		if err := term.Permit(); err != nil {
			t.Errorf("got %v 8s after the renewal was sent, want none", err)
		}
		elapse(1001 * time.Millisecond)
		if err := term.Permit(); !errors.Is(err, ErrTermEnded) {
			t.Errorf("got %v 9s after the renewal was sent, want ErrTermEnded", err)
		}
	})
}

func TestATermEndsWhenAnotherHoldsTheLockOrItIsReleased(t *testing.T) {
	shared := &lease{}
	term := NewTerm(&candidate{lease: shared, identity: "a"}, 5*time.Second, nil)
	for _, end := range []func() error{
		func() error {
			_, _, err := term.Get(t.Context())
			return err
		},
		func() error { return term.Update(t.Context(), record("")) },
	} {
		if err := term.Update(t.Context(), record("a")); err != nil {
			t.Fatal(err)
		}
		if err := term.Permit(); err != nil {
			t.Errorf("got %v within the term, want none", err)
		}
		b := record("b")
		shared.record = &b
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if err := term.Permit(); !errors.Is(err, ErrTermEnded) {
			t.Errorf("got %v, want ErrTermEnded", err)
		}
	}
}

// A leader that was cut off while another took over releases what is no longer its own.
func TestALeaderDoesNotReleaseAnothersLease(t *testing.T) {
	for _, guarded := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			shared := &lease{}
			own := &candidate{lease: shared, identity: "a"}
			var lock resourcelock.Interface = own
			if guarded {
				lock = NewTerm(own, 5*time.Second, nil)
			}
			elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
				Lock:          lock,
				LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 3 * time.Second,
				ReleaseOnCancel: true,
				Callbacks: leaderelection.LeaderCallbacks{
					OnStartedLeading: func(ctx context.Context) { <-ctx.Done() },
					OnStoppedLeading: func() {},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				elector.Run(t.Context())
			}()
			elapse(5 * time.Second)
			shared.mu.Lock()
			own.cut = true
			shared.mu.Unlock()
			elapse(10500 * time.Millisecond)
			// The connection is mended after the last try to renew, and just
			// before the release; the lease is another's by now.
			b := record("b")
			shared.mu.Lock()
			own.cut, shared.record = false, &b
			shared.mu.Unlock()
			<-done
			if got := shared.record.HolderIdentity; (got == "b") != guarded {
				t.Errorf("guarded %t: the lease is held by %q; unguarded it is wiped, guarded it stays b's", guarded, got)
			}
		})
	}
}

func TestARefusedReleaseNamesTheHolder(t *testing.T) {
	shared := &lease{}
	b := record("b")
	shared.record = &b
	term := NewTerm(&candidate{lease: shared, identity: "a"}, time.Second, nil)
	if _, _, err := term.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := term.Update(t.Context(), record("")); err == nil || !strings.Contains(err.Error(), `lease not released: "b" holds it`) {
		t.Errorf("got %v, want an error that names the holder", err)
	}
}
