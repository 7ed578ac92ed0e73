package freshness

// Confirm: the second check, between planning and the first write.
//
// Closes: the window between the check at the worker's entry and the first write. The
// snapshot was fresh when it was read; while it was collected and planned on, events
// went on arriving.
//
// How: the middleware notes the stores' versions before the snapshot is read. If none
// has moved by the time of Confirm, nothing can have arrived. If one has, the snapshot
// is read again and compared by UID and version: what has changed for other keys is no
// reason to plan anew, what has changed for this one is. A key on which events arrive
// faster than it can be planned is let through after a few attempts, since every write
// carries its own precondition.
//
// Costs: three comparisons if nothing has moved, another read of the snapshot if
// something has.

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ErrMoved tells that the snapshot that a reconcile has planned on is no longer what the
// caches hold. The reconcile is to return it as it is: the middleware puts the key back
// to the front of the queue, and it counts as no failure.
var ErrMoved = errors.New("the caches have moved on since the snapshot was read")

// maxReplans is how often in a row Confirm sends a key back.
const maxReplans = 3

// confirmKey is the key of a context under which its run is found.
type confirmKey struct{}

// run is one reconcile of one key.
type run[K comparable] struct {
	backlog *Backlog[K]
	key     K
	// versions are those of the stores before the snapshot was read.
	versions []string
}

// confirmer is a run, whatever its key.
type confirmer interface {
	confirm(snapshot []metav1.Object, again func() []metav1.Object) error
}

// Confirm is called by a reconcile function, with the context that it was given, between
// planning and its first write. snapshot are the objects that the plan was made on, in any
// order, and again reads them anew from the caches, without a request. It returns
// ErrMoved, possibly wrapped, if they differ, or if the cache holds one of them older than
// it was seen; the reconcile is to return it and to write nothing. Outside of a Backlog's middleware it
// returns nil.
func Confirm(ctx context.Context, snapshot []metav1.Object, again func() []metav1.Object) error {
	if r, ok := ctx.Value(confirmKey{}).(confirmer); ok {
		return r.confirm(snapshot, again)
	}
	return nil
}

// start returns the context of a run, with the stores' versions.
func (b *Backlog[K]) start(ctx context.Context, key K) context.Context {
	r := &run[K]{backlog: b, key: key, versions: b.config.Ledger.versions()}
	return context.WithValue(WithKey(ctx, key), confirmKey{}, r)
}

func (r *run[K]) confirm(snapshot []metav1.Object, again func() []metav1.Object) error {
	b := r.backlog
	if b.config.Ledger.noneOld(snapshot) && !b.config.Ledger.haveMoved(r.versions) {
		return r.letThrough()
	}
	current := again()
	if b.config.Ledger.markOld(current) {
		// Not the snapshot is old but the cache. The key is parked until that is
		// mended, and not let through after some attempts.
		b.config.Metrics.fired(GuardConfirm, "old_cache_noticed")
		return fmt.Errorf("an object in the cache was seen newer: %w", ErrMoved)
	}
	if sameObjects(snapshot, current) {
		return r.letThrough()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.replans[r.key] >= maxReplans {
		delete(b.replans, r.key)
		b.config.Metrics.fired(GuardConfirm, "let_through")
		return nil
	}
	b.replans[r.key]++
	b.config.Metrics.fired(GuardConfirm, "sent_back")
	return ErrMoved
}

func (r *run[K]) letThrough() error {
	r.backlog.mu.Lock()
	defer r.backlog.mu.Unlock()
	delete(r.backlog.replans, r.key)
	return nil
}

// sameObjects reports whether two snapshots hold the same objects at the same versions.
func sameObjects(a, b []metav1.Object) bool {
	if len(a) != len(b) {
		return false
	}
	versions := make(map[types.UID]string, len(a))
	for _, object := range a {
		versions[object.GetUID()] = object.GetResourceVersion()
	}
	for _, object := range b {
		if version, ok := versions[object.GetUID()]; !ok || version != object.GetResourceVersion() {
			return false
		}
	}
	return true
}

// versions returns the versions of the stores.
func (l *Ledger[K]) versions() []string {
	versions := make([]string, len(l.stores))
	for i, s := range l.stores {
		versions[i] = s.store.LastStoreSyncResourceVersion()
	}
	return versions
}

// haveMoved reports whether a store has another version by now.
func (l *Ledger[K]) haveMoved(versions []string) bool {
	for i, s := range l.stores {
		if s.store.LastStoreSyncResourceVersion() != versions[i] {
			return true
		}
	}
	return false
}

// noneOld reports whether none of the objects is older than it was seen.
func (l *Ledger[K]) noneOld(objects []metav1.Object) bool {
	none := true
	for _, object := range objects {
		for _, s := range l.stores {
			for _, watermark := range s.watermarks {
				none = none && !watermark.Below(object)
			}
		}
	}
	return none
}

// markOld makes the keys of a store stale that holds one of the objects older than it was
// seen, and reports whether there is such a store.
func (l *Ledger[K]) markOld(objects []metav1.Object) bool {
	found := false
	for _, object := range objects {
		for _, s := range l.stores {
			for _, watermark := range s.watermarks {
				if watermark.Below(object) {
					watermark.mark(object.GetUID())
					found = true
				}
			}
		}
	}
	return found
}
