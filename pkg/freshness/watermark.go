package freshness

// Watermark: per object, the newest version that was seen.
//
// Closes: old state over new. A watch that was resumed on an API server that lags, a
// relist from one, a replayed event: client-go's store takes whatever comes and compares
// nothing, and the handlers are told of it as of any news. The version of the whole store
// shows this only until the next event raises it again; the one object stays old.
//
// How: versions are kept by UID, since the same name with another UID is another object
// with a history of its own. An event that is not newer than what was seen is dropped. An
// object that the cache holds older than it was seen makes the store's keys stale, and
// the feed is told to list again. Objects that are gone are forgotten but for the last few
// thousand, of which it is kept when they went: an event from before is old. They may come
// back, since to a watch with a selector an object that no longer matches is gone.
//
// Costs: a map entry for each object in the cache, about 150 bytes, and a lookup for each
// event.

import (
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// goneKept is of how many objects that are gone it is kept when they went.
const goneKept = 4096

// Watermark keeps the newest versions of the objects of one informer, as one handler is
// told of them: each handler needs its own. It is safe for concurrent use. The zero value
// is not useful; make it with NewWatermark.
type Watermark struct {
	metrics *Metrics
	// relist is called when the cache holds an object that is older than it was seen.
	relist func()
	// caughtUp is called when the last such object is no longer old.
	caughtUp func()
	// version returns the version of the store.
	version func() string
	// behind is how many objects the cache holds older than they were seen.
	behind atomic.Int64

	mu      sync.Mutex
	seen    map[types.UID]string
	regress map[types.UID]bool
	// gone are the versions at which the last objects went, goneRing their UIDs.
	gone     map[types.UID]string
	goneRing []types.UID
	goneNext int
}

// NewWatermark returns a watermark that has seen nothing. relist, if it isn't nil, is
// called when the cache holds an object that is older than it was seen; it must not block.
func NewWatermark(metrics *Metrics, relist func()) *Watermark {
	if relist == nil {
		relist = func() {}
	}
	return &Watermark{
		metrics:  metrics,
		relist:   relist,
		caughtUp: func() {},
		version:  func() string { return "" },
		seen:     map[types.UID]string{},
		regress:  map[types.UID]bool{},
		gone:     map[types.UID]string{},
	}
}

// Handler returns a handler that passes to next what is news: additions and updates that
// are newer than what was seen of the object, and all deletions. What can't be compared
// is passed on, since it may be news.
func (w *Watermark) Handler(next cache.ResourceEventHandler) cache.ResourceEventHandler {
	return &watermarkHandler{w, next}
}

// Below reports whether an object is older than what was seen of it.
func (w *Watermark) Below(object metav1.Object) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	uid, version := object.GetUID(), object.GetResourceVersion()
	return older(version, w.seen[uid]) || w.wasGone(uid, version)
}

// wasGone reports whether a version of an object is from before it went. It is called with
// mu held.
func (w *Watermark) wasGone(uid types.UID, version string) bool {
	gone, ok := w.gone[uid]
	return ok && !older(gone, version)
}

// Reset forgets everything. It is for when the API server itself has gone back: versions
// from before mean nothing then.
func (w *Watermark) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.seen)
	clear(w.regress)
	clear(w.gone)
	w.goneRing, w.goneNext = nil, 0
	w.behind.Store(0)
}

// Len returns of how many objects a version is kept.
func (w *Watermark) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.seen)
}

// advance takes in that the cache holds object now, and reports whether that is news.
func (w *Watermark) advance(object metav1.Object) bool {
	uid, version := object.GetUID(), object.GetResourceVersion()
	w.mu.Lock()
	seen := w.seen[uid]
	order, err := resourceversion.CompareResourceVersion(version, seen)
	gone := w.wasGone(uid, version)
	if !gone && (seen == "" || err != nil) {
		if ordered(version) {
			w.seen[uid] = version
		}
		w.mu.Unlock()
		return true
	}
	if gone || order < 0 {
		w.mu.Unlock()
		w.metrics.fired(GuardWatermark, "old_event_dropped")
		w.mark(uid)
		return false
	}
	w.seen[uid] = version
	w.mu.Unlock()
	w.clear(uid)
	if order == 0 {
		w.metrics.fired(GuardWatermark, "repeated_event_dropped")
	}
	return order > 0
}

// mark takes in that the cache holds an object older than it was seen.
func (w *Watermark) mark(uid types.UID) {
	w.mu.Lock()
	w.regress[uid] = true
	w.behind.Store(int64(len(w.regress)))
	w.mu.Unlock()
	w.relist()
}

// clear takes in that the cache doesn't hold an object older than it was seen.
func (w *Watermark) clear(uid types.UID) {
	w.mu.Lock()
	_, was := w.regress[uid]
	delete(w.regress, uid)
	left := len(w.regress)
	w.behind.Store(int64(left))
	w.mu.Unlock()
	if was && left == 0 {
		w.caughtUp()
	}
}

// forget takes in that the cache no longer holds an object, which went at version.
func (w *Watermark) forget(uid types.UID, version string) {
	w.mu.Lock()
	delete(w.seen, uid)
	if ordered(version) {
		w.bury(uid, version)
	}
	w.mu.Unlock()
	w.clear(uid)
}

// miss takes in that an object is missing from a list. It was gone by then if the list is
// newer than what was seen of it; an older list doesn't have it yet.
func (w *Watermark) miss(uid types.UID) {
	version := w.version()
	w.mu.Lock()
	seen := w.seen[uid]
	w.mu.Unlock()
	if !older(seen, version) {
		seen = ""
	}
	w.forget(uid, seen)
}

// bury keeps when an object went, in place of the one that has been gone longest.
func (w *Watermark) bury(uid types.UID, version string) {
	_, known := w.gone[uid]
	w.gone[uid] = version
	switch {
	case known:
	case len(w.goneRing) < goneKept:
		w.goneRing = append(w.goneRing, uid)
	default:
		delete(w.gone, w.goneRing[w.goneNext])
		w.goneRing[w.goneNext] = uid
		w.goneNext = (w.goneNext + 1) % goneKept
	}
}

// older reports whether version is below seen, as far as that can be told.
func older(version, seen string) bool {
	order, err := resourceversion.CompareResourceVersion(version, seen)
	return err == nil && order < 0
}

type watermarkHandler struct {
	watermark *Watermark
	next      cache.ResourceEventHandler
}

var _ cache.ResourceEventHandler = &watermarkHandler{}

// OnAdd implements cache.ResourceEventHandler.
func (h *watermarkHandler) OnAdd(obj any, isInInitialList bool) {
	object, err := meta.Accessor(obj)
	if err != nil || h.watermark.advance(object) {
		h.next.OnAdd(obj, isInInitialList)
	}
}

// OnUpdate implements cache.ResourceEventHandler. An object that was deleted and made
// again while the watch was down comes as an update from the one to the other.
func (h *watermarkHandler) OnUpdate(old, new any) {
	object, err := meta.Accessor(new)
	if err != nil {
		h.next.OnUpdate(old, new)
		return
	}
	if before, err := meta.Accessor(old); err == nil && before.GetUID() != object.GetUID() {
		h.watermark.miss(before.GetUID())
	}
	if h.watermark.advance(object) {
		h.next.OnUpdate(old, new)
	}
}

// OnDelete implements cache.ResourceEventHandler.
func (h *watermarkHandler) OnDelete(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		if object, err := meta.Accessor(tombstone.Obj); err == nil {
			h.watermark.miss(object.GetUID())
		}
	} else if object, err := meta.Accessor(obj); err == nil {
		h.watermark.forget(object.GetUID(), object.GetResourceVersion())
	}
	h.next.OnDelete(obj)
}
