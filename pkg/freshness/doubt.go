package freshness

// Doubt: writes of which it isn't known whether, or at which version, they happened.
//
// Closes: the lost answer. A connection is cut, a deadline passes, a proxy says 504:
// the write may have happened, may never happen, or may happen in a moment. A controller
// that takes it for failed does it again.
//
// How: three ways out, from the fastest to the surest. The cache shows the write's
// effect, or that it can't happen any more because its precondition is gone; that is
// looked at whenever the store moves. Or, once the write can't land any more, one
// quorum read for all writes in doubt of a resource gives the version that the store
// must reach to have them all, whichever of them happened. Or, if versions can't be
// compared, the store is compared with the API server, object by object (validator.go).
//
// Costs: nothing while answers come.

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Entry is a write in a Ledger. Its fields are guarded by the ledger's lock.
type Entry[K comparable] struct {
	key    K
	intent Intent
	store  *trackedStore
	// state is InFlight, InDoubt, Unconfirmed or Outdated.
	state  Cause
	sentAt time.Time
	// doubted tells that an attempt at this write got no answer.
	doubted bool
	// landsUntil is when a write in doubt can't happen any more.
	landsUntil time.Time
	// What the cache held of the object when the write was sent.
	beforeUID     types.UID
	beforeVersion string
	beforeEnding  bool
}

// before notes what the cache holds of the object.
func (e *Entry[K]) before() {
	if object := e.cached(); object != nil {
		e.beforeUID = object.GetUID()
		e.beforeVersion = object.GetResourceVersion()
		e.beforeEnding = object.GetDeletionTimestamp() != nil
	}
}

// resume notes that the same write is sent once more.
func (e *Entry[K]) resume(now time.Time) {
	e.state, e.sentAt = InFlight, now
}

// cached returns what the cache holds of the object, or nil.
func (e *Entry[K]) cached() metav1.Object {
	if e.intent.Name == "" {
		return nil
	}
	name := e.intent.Name
	if e.intent.Namespace != "" {
		name = e.intent.Namespace + "/" + name
	}
	cached, ok, err := e.store.store.GetByKey(name)
	if err != nil || !ok {
		return nil
	}
	object, err := meta.Accessor(cached)
	if err != nil {
		return nil
	}
	return object
}

// shown reports whether the cache shows that the write has happened, or that it can't
// happen any more.
func (e *Entry[K]) shown() bool {
	if e.intent.Name == "" {
		return false
	}
	object := e.cached()
	if e.state == Outdated {
		return e.caughtUp(object)
	}
	switch e.intent.Verb {
	case "create":
		// The name is taken, by this write or for it.
		return object != nil && object.GetUID() != e.beforeUID
	case "delete":
		return e.deletionShown(object)
	default:
		return e.changeShown(object)
	}
}

func (e *Entry[K]) deletionShown(object metav1.Object) bool {
	uid := e.intent.UID
	if uid == "" {
		uid = e.beforeUID
	}
	switch {
	case uid == "":
		return false // what was deleted isn't known
	case object == nil || object.GetUID() != uid:
		return true
	default:
		return object.GetDeletionTimestamp() != nil && !e.beforeEnding
	}
}

func (e *Entry[K]) changeShown(object metav1.Object) bool {
	if object != nil && e.intent.Shows != nil && e.intent.Shows(object) {
		return true
	}
	if e.intent.ResourceVersion == "" || e.beforeUID == "" {
		return false // it could happen on whatever is there by now
	}
	if object == nil || object.GetUID() != e.beforeUID {
		return true
	}
	// A write with this precondition makes the version after it, or none: a newer
	// object is that one, or comes from it, or shows that it was too late.
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), e.intent.ResourceVersion)
	return err == nil && order > 0
}

// outdatedCache reports whether a refusal means that the cache is behind, and not that
// the write was decided on something older than the cache.
func (e *Entry[K]) outdatedCache() bool {
	switch {
	case e.intent.Name == "":
		return false
	case e.intent.Verb == "create":
		return e.beforeUID == ""
	case e.beforeUID == "", e.intent.UID != "" && e.intent.UID != e.beforeUID:
		return false
	case e.intent.ResourceVersion == "":
		return true
	default:
		return e.intent.ResourceVersion == e.beforeVersion
	}
}

// caughtUp reports whether the cache has moved on from what a write that was refused
// was decided on.
func (e *Entry[K]) caughtUp(object metav1.Object) bool {
	if object == nil {
		return e.beforeUID != ""
	}
	return object.GetUID() != e.beforeUID || object.GetResourceVersion() != e.beforeVersion
}

func (i Intent) sameObject(other Intent) bool {
	return i.Resource == other.Resource && i.Namespace == other.Namespace && i.Name == other.Name && i.Name != ""
}

// Unresolved returns the resources with writes whose outcome a quorum read that starts
// now would tell.
func (l *Ledger[K]) Unresolved() []schema.GroupResource {
	now := l.config.Clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	found := make([]bool, len(l.stores))
	for _, a := range l.accounts {
		for _, e := range a.open {
			if e.settledBy(now) {
				found[e.store.number] = true
			}
		}
	}
	var resources []schema.GroupResource
	for i, s := range l.stores {
		if found[i] {
			resources = append(resources, s.resource)
		}
	}
	return resources
}

// settledBy reports whether a quorum read that started at asOf tells the outcome.
func (e *Entry[K]) settledBy(asOf time.Time) bool {
	return e.state != InFlight && !e.landsUntil.After(asOf)
}

// Learn takes in the version that a quorum read of resource gave. The read must have
// started at asOf or later. Writes that can't land after asOf have happened by that
// version or never will: their keys wait for it. highest is what Highest returned
// before the read: if the API server's version is older, the API server itself has gone
// back, after a restore say, and versions from before mean nothing any more.
func (l *Ledger[K]) Learn(resource schema.GroupResource, version, highest string, asOf time.Time) {
	s := l.store(resource)
	if s == nil || !ordered(version) {
		return
	}
	order, err := resourceversion.CompareResourceVersion(version, highest)
	restored := err == nil && order < 0 && s.restored(highest, version)
	if restored {
		l.config.Metrics.fired(GuardLedger, "restored_server_noticed")
	}
	l.revise(func(a *account[K]) bool {
		changed := a.resolve(s, mark{version, asOf}, asOf)
		if restored && a.marks[s.number].version != "" {
			a.marks[s.number] = mark{version, asOf}
			changed = true
		}
		return changed
	})
}

// resolve closes the entries of a store that a read at asOf settles.
func (a *account[K]) resolve(s *trackedStore, m mark, asOf time.Time) bool {
	left := a.open[:0]
	for _, e := range a.open {
		if e.store == s && e.settledBy(asOf) {
			a.raise(s.number, m)
			continue
		}
		left = append(left, e)
	}
	changed := len(left) < len(a.open)
	a.open = left
	return changed
}

// Vouch takes in that the store of resource, at version, was found equal to what the
// API server had, by a read that started at asOf. It settles what versions that can't
// be compared leave open.
func (l *Ledger[K]) Vouch(resource schema.GroupResource, version string, asOf time.Time) {
	s := l.store(resource)
	if s == nil {
		return
	}
	s.vouch(version)
	l.revise(func(a *account[K]) bool {
		changed := false
		left := a.open[:0]
		for _, e := range a.open {
			if e.store == s && e.settledBy(asOf) {
				changed = true
				continue
			}
			left = append(left, e)
		}
		a.open = left
		if m := a.marks[s.number]; m.version != "" && !m.at.After(asOf) {
			a.marks[s.number] = mark{}
			changed = true
		}
		return changed
	})
}

// Highest returns the newest version that the store of resource was seen to have.
func (l *Ledger[K]) Highest(resource schema.GroupResource) string {
	if s := l.store(resource); s != nil {
		return s.mostRecent()
	}
	return ""
}

// revise changes the accounts, and tells of the keys whose account has changed.
func (l *Ledger[K]) revise(change func(*account[K]) bool) {
	var changed []K
	l.mu.Lock()
	for key, a := range l.accounts {
		if change(a) {
			changed = append(changed, key)
		}
	}
	l.mu.Unlock()
	for _, key := range changed {
		l.settled(key)
	}
}
