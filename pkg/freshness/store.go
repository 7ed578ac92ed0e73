package freshness

// Tracked store: an informer's store, and the newest version that it ever had.
//
// Closes: a cache that goes back. Neither the reflector nor the store compares
// versions: a list from an API server that lags, or that was restored from a backup,
// replaces newer state by older, and a guard that only asks "has it reached X" has said
// yes before. Once a store is older than it was, every key is stale, until it has
// caught up or a quorum read shows that the API server itself has gone back.
//
// Costs: a comparison of two strings of digits.

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// maxExpected bounds the memory of what is only measured.
const maxExpected = 1024

// trackedStore is safe for concurrent use.
type trackedStore struct {
	number   int
	resource schema.GroupResource
	store    cache.Store
	// watermarks tell whether the store holds objects that were seen newer.
	watermarks []*Watermark

	mu sync.Mutex
	// highest is the newest version that the store was seen to have.
	highest string
	// vouched is a version that can't be compared, at which the store was found
	// equal to what the API server has.
	vouched *string
	// expected are versions of writes that aren't in the store yet.
	expected []mark
}

// look reads the store's version, and tells whether keys may be worked on as far as
// this store goes.
func (s *trackedStore) look() (string, Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	version := s.store.LastStoreSyncResourceVersion()
	for _, watermark := range s.watermarks {
		if watermark.behind.Load() > 0 {
			return version, Verdict{Cause: WentBack, Resource: s.resource}
		}
	}
	if version == s.highest && version != "" {
		return version, Verdict{}
	}
	if !ordered(version) {
		if s.vouched != nil && *s.vouched == version {
			return version, Verdict{}
		}
		return version, Verdict{Cause: Unordered, Resource: s.resource}
	}
	if order, err := resourceversion.CompareResourceVersion(version, s.highest); err == nil && order < 0 {
		return version, Verdict{Cause: WentBack, Resource: s.resource, Version: s.highest}
	}
	s.highest = version
	return version, Verdict{}
}

// mostRecent returns the newest version that the store was seen to have.
func (s *trackedStore) mostRecent() string {
	s.look()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.highest
}

// restored records that the API server itself has gone back to version, unless the
// store has gone on from highest meanwhile. It reports whether it did so.
func (s *trackedStore) restored(highest, version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.highest != highest {
		return false
	}
	s.highest = version
	for _, watermark := range s.watermarks {
		watermark.Reset()
	}
	return true
}

// vouch records that the store, at version, was found equal to what the API server has.
// So it is as new as it can be, whatever versions it had before.
func (s *trackedStore) vouch(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ordered(version) {
		s.vouched = &version
		return
	}
	s.highest = version
	for _, watermark := range s.watermarks {
		if watermark.behind.Load() > 0 {
			watermark.Reset()
		}
	}
}

// expect remembers when a write was answered, to measure how long it takes until the
// store has it.
func (s *trackedStore) expect(version string, at time.Time, metrics *Metrics) {
	if metrics == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.expected) < maxExpected {
		s.expected = append(s.expected, mark{version, at})
	}
}

// reached measures the writes that the store has by now.
func (s *trackedStore) reached(now time.Time, metrics *Metrics) {
	if metrics == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.expected) == 0 {
		return
	}
	version := s.store.LastStoreSyncResourceVersion()
	left := s.expected[:0]
	for _, m := range s.expected {
		if order, err := resourceversion.CompareResourceVersion(version, m.version); err == nil && order >= 0 {
			metrics.becameVisible(s.resource, now.Sub(m.at))
			continue
		}
		left = append(left, m)
	}
	s.expected = left
}
