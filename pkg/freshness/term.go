package freshness

// Term: how long a leader may write.
//
// Closes: the deposed leader that writes on. client-go's leader election doesn't fence
// (its own package comment says so): a leader that was stopped, or cut off, or is slow,
// finds out late that it leads no longer, and what it sends until then arrives in its
// successor's time.
//
// How: it wraps the lock. A term is as long as the lease that was renewed last, counted
// from before the renewal was sent, since the lease's own time began no earlier. A write
// is permitted only while it can still land within the term. The wrapper also refuses to
// release a lease that another holds by now: in client-go 0.37 a leader whose renewal has
// failed reads the lease anew before it releases it, and can wipe its successor's
// (leaderelection.go, tryRelease).
//
// Costs: a comparison of two times for each write.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// ErrTermEnded is returned for a write that could land after the term of this leader.
var ErrTermEnded = errors.New("the term of this leader has ended, or is about to")

// Term is a resourcelock.Interface, for a LeaderElectionConfig, that knows until when the
// lock is held. It is safe for concurrent use. Make it with NewTerm.
type Term struct {
	lock   resourcelock.Interface
	margin time.Duration
	clock  clock.PassiveClock

	mu sync.Mutex
	// holder is whose the lock was when it was last read.
	holder string
	until  time.Time
}

var _ resourcelock.Interface = &Term{}

// NewTerm wraps a lock. writeTimeout is how long a write may take: none is permitted that
// much, and a second for what is in etcd's hands, before the term ends. A nil clock is the
// real one.
func NewTerm(lock resourcelock.Interface, writeTimeout time.Duration, c clock.PassiveClock) *Term {
	if c == nil {
		c = clock.RealClock{}
	}
	return &Term{lock: lock, margin: writeTimeout + landingSlack, clock: c}
}

// Permit returns nil if a write that is sent now lands within the term, and otherwise an
// error that is ErrTermEnded. It is for Options.Permit.
func (t *Term) Permit() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if left := t.until.Sub(t.clock.Now()); left < t.margin {
		return fmt.Errorf("%s: %w", t.lock.Describe(), ErrTermEnded)
	}
	return nil
}

// Get implements resourcelock.Interface.
func (t *Term) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := t.lock.Get(ctx)
	if err == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.holder = record.HolderIdentity
		if t.holder != t.lock.Identity() {
			t.until = time.Time{}
		}
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (t *Term) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.write(ctx, record, t.lock.Create)
}

// Update implements resourcelock.Interface. It returns an error for a release of a lock
// that is another's.
func (t *Term) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		t.mu.Lock()
		holder := t.holder
		// The release may succeed even if its answer is lost.
		t.until = time.Time{}
		t.mu.Unlock()
		if holder != t.lock.Identity() {
			return fmt.Errorf("%s not released: %q holds it", t.lock.Describe(), holder)
		}
	}
	return t.write(ctx, record, t.lock.Update)
}

func (t *Term) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	sent := t.clock.Now()
	if err := write(ctx, record); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holder = record.HolderIdentity
	if t.holder == t.lock.Identity() {
		t.until = sent.Add(time.Duration(record.LeaseDurationSeconds) * time.Second)
	}
	return nil
}

// RecordEvent implements resourcelock.Interface.
func (t *Term) RecordEvent(message string) { t.lock.RecordEvent(message) }

// Identity implements resourcelock.Interface.
func (t *Term) Identity() string { return t.lock.Identity() }

// Describe implements resourcelock.Interface.
func (t *Term) Describe() string { return t.lock.Describe() }
