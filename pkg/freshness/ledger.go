package freshness

// Ledger: what each key has written and must see in the cache before it acts again.
//
// Closes: acting twice because one's own write isn't in the cache yet. It also closes
// what is left open where such a ledger exists elsewhere (kube-controller-manager's
// consistency store, KEP-5647): deletions, writes whose answer was lost, versions that
// can't be compared, and a cache that goes back.
//
// How: a write is entered before it is sent. Its answer settles it at a version, which
// the store of its resource must reach; or drops it; or leaves it in doubt (doubt.go).
// Check compares with the versions that the stores have reached. It reads them, so
// that what is read from the listers afterwards is at least as new. What can't be told
// is not fresh: "" and versions that can't be compared never count as reached.
//
// Costs: well under a microsecond and no allocation for a key that waits for nothing
// (BenchmarkCheck), about a microsecond more for each write. Only keys with something
// outstanding take memory.

import (
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Intent is a write that is about to be sent.
type Intent struct {
	// Verb is create, update, patch, delete or deletecollection.
	Verb     string
	Resource schema.GroupResource
	// Namespace and Name are of the object. Name is empty if it isn't known.
	Namespace, Name string
	// UID and ResourceVersion are the preconditions that the write carries.
	UID             types.UID
	ResourceVersion string
	// Tests tells that it is a JSON patch with tests: it is refused with 422 when
	// one of them fails.
	Tests bool
	// Fingerprint is the same for the very same request, and only for that.
	Fingerprint uint64
	// Shows, if it isn't nil, tells whether an object shows the write's effect.
	// It lets the cache settle a write whose answer was lost.
	Shows func(metav1.Object) bool
}

// InDoubtError is returned for a write on an object for which the answer to an earlier
// write was lost: a second one is not sent before it is known whether the first
// happened. It is no failure of the key, which is parked until then.
type InDoubtError struct {
	Earlier, Refused Intent
}

// Error implements error.
func (e *InDoubtError) Error() string {
	return fmt.Sprintf("%s %s %s/%s not sent: the answer to an earlier %s of it was lost, and whether it happened isn't known yet",
		e.Refused.Verb, e.Refused.Resource, e.Refused.Namespace, e.Refused.Name, e.Earlier.Verb)
}

// LedgerConfig configures a Ledger.
type LedgerConfig struct {
	// WriteTimeout is after how long the API server gives up a write at the
	// latest. A write without an answer can't happen any more after it, and a
	// little more for what is in etcd's hands. 0: DefaultWriteTimeout.
	WriteTimeout time.Duration
	// Clock is for the times of writes. Nil: the real one.
	Clock clock.PassiveClock
	// Metrics counts. Nil: nothing is counted.
	Metrics *Metrics
}

const (
	// DefaultWriteTimeout is how long a write may take.
	DefaultWriteTimeout = 5 * time.Second
	// landingSlack is how long after its timeout a write may land still, because
	// it was handed to etcd in time.
	landingSlack = time.Second
)

// Ledger records writes by key. It is safe for concurrent use. Make it with NewLedger,
// and Track every resource before it is used.
type Ledger[K comparable] struct {
	config LedgerConfig
	stores []*trackedStore
	// settled is told of keys for which something has changed, and moved of
	// resources for whose keys something may have.
	settled func(K)
	moved   func(schema.GroupResource)

	mu       sync.Mutex
	accounts map[K]*account[K]
}

// account is what one key has outstanding.
type account[K comparable] struct {
	// marks are the versions that the stores must reach, by the stores' numbers.
	marks []mark
	open  []*Entry[K]
}

// mark is a version that a store must reach, and when it was learned.
type mark struct {
	version string
	at      time.Time
}

// NewLedger returns an empty ledger.
func NewLedger[K comparable](config LedgerConfig) *Ledger[K] {
	if config.WriteTimeout == 0 {
		config.WriteTimeout = DefaultWriteTimeout
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	return &Ledger[K]{
		config:   config,
		settled:  func(K) {},
		moved:    func(schema.GroupResource) {},
		accounts: map[K]*account[K]{},
	}
}

// Track makes the ledger record writes of resource, and compare them with store, which
// must be an informer's. Check calls every key stale until the store has its first
// version. Track must not be called concurrently with anything else.
func (l *Ledger[K]) Track(resource schema.GroupResource, store cache.Store) {
	l.stores = append(l.stores, &trackedStore{number: len(l.stores), resource: resource, store: store})
}

// Guard makes keys stale while the store of resource holds an object that watermark has
// seen newer. Like Track it must not be called concurrently with anything else.
func (l *Ledger[K]) Guard(resource schema.GroupResource, watermark *Watermark) {
	if s := l.store(resource); s != nil {
		s.watermarks = append(s.watermarks, watermark)
		watermark.caughtUp = func() { l.moved(resource) }
		watermark.version = s.store.LastStoreSyncResourceVersion
	}
}

// Check tells whether everything that was written under key is in the caches, and
// whether the caches are no older than they were. What is read from them afterwards is
// at least that new.
func (l *Ledger[K]) Check(key K) Verdict {
	verdict := l.check(key)
	l.config.Metrics.checked(verdict.Fresh())
	return verdict
}

func (l *Ledger[K]) check(key K) Verdict {
	for _, s := range l.stores {
		if _, verdict := s.look(); !verdict.Fresh() {
			return verdict
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[key]
	if a == nil {
		return Verdict{}
	}
	if verdict := l.examine(a); !verdict.Fresh() {
		return verdict
	}
	delete(l.accounts, key)
	return Verdict{}
}

// examine strikes out what the stores have reached, and returns the first thing that
// is left. It is called with mu held.
func (l *Ledger[K]) examine(a *account[K]) Verdict {
	for i, want := range a.marks {
		if want.version == "" {
			continue
		}
		s := l.stores[i]
		version, verdict := s.look()
		if !verdict.Fresh() {
			return verdict
		}
		if order, err := resourceversion.CompareResourceVersion(version, want.version); err != nil {
			return Verdict{Cause: Unordered, Resource: s.resource}
		} else if order < 0 {
			return Verdict{Cause: Behind, Resource: s.resource, Version: want.version}
		}
		a.marks[i] = mark{}
	}
	for len(a.open) > 0 {
		e := a.open[0]
		if e.state == InFlight || !e.shown() {
			return Verdict{Cause: e.state, Resource: e.intent.Resource}
		}
		l.config.Metrics.fired(GuardLedger, "settled_by_cache")
		a.open = a.open[1:]
	}
	return Verdict{}
}

// Begin enters a write that is about to be sent under key. It returns nil without an
// error if the resource isn't tracked, and an *InDoubtError if the write must not be
// sent. Otherwise exactly one of Settle, Refuse, Unsent and Doubt must be called with
// the entry when the write has ended.
func (l *Ledger[K]) Begin(key K, intent Intent) (*Entry[K], error) {
	s := l.store(intent.Resource)
	if s == nil {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[key]
	if a == nil {
		a = &account[K]{marks: make([]mark, len(l.stores))}
		l.accounts[key] = a
	}
	for _, e := range a.open {
		switch {
		case e.state != InDoubt || !e.intent.sameObject(intent):
		case e.intent.Fingerprint == intent.Fingerprint:
			// The very same request: client-go retries it silently. It is
			// as safe to send twice as its preconditions make it.
			l.config.Metrics.fired(GuardLedger, "silent_retry_seen")
			e.resume(l.config.Clock.Now())
			return e, nil
		default:
			l.config.Metrics.fired(GuardLedger, "second_write_refused")
			return nil, &InDoubtError{Earlier: e.intent, Refused: intent}
		}
	}
	e := &Entry[K]{key: key, intent: intent, store: s, state: InFlight, sentAt: l.config.Clock.Now()}
	e.before()
	a.open = append(a.open, e)
	return e, nil
}

// Settle records that a write has succeeded, with the resourceVersion that its answer
// had. A version that is "" or can't be compared leaves the write unconfirmed until the
// cache shows it or a quorum read is past it.
func (l *Ledger[K]) Settle(e *Entry[K], version string) {
	now := l.config.Clock.Now()
	l.mu.Lock()
	if ordered(version) {
		l.config.Metrics.wrote(e.intent.Resource, e.intent.Verb, "settled")
		l.drop(e)
		l.account(e.key).raise(e.store.number, mark{version, now})
		e.store.expect(version, now, l.config.Metrics)
	} else {
		l.config.Metrics.wrote(e.intent.Resource, e.intent.Verb, "done")
		// It has happened, so any quorum read from now on is past it.
		e.state, e.landsUntil = Unconfirmed, now
	}
	l.mu.Unlock()
	l.settled(e.key)
}

// Refuse records that the API server has refused a write. If an earlier attempt at the
// very same write is in doubt it stays so: the refusal may be due to its success.
func (l *Ledger[K]) Refuse(e *Entry[K]) {
	l.close(e, "refused")
}

// Outdate records that the API server has refused a write because it was decided on an
// old object, or on one that is gone, or because its name is taken. If the cache can
// show when it has caught up, the key waits for that: another try before would be
// refused as well.
func (l *Ledger[K]) Outdate(e *Entry[K]) {
	l.mu.Lock()
	wait := !e.doubted && e.outdatedCache()
	if wait {
		e.state, e.landsUntil = Outdated, l.config.Clock.Now()
	}
	l.mu.Unlock()
	if !wait {
		l.close(e, "refused")
		return
	}
	l.config.Metrics.wrote(e.intent.Resource, e.intent.Verb, "refused")
	l.config.Metrics.fired(GuardLedger, "outdated_cache_noticed")
	l.settled(e.key)
}

// Unsent records that a write never reached the API server.
func (l *Ledger[K]) Unsent(e *Entry[K]) {
	l.close(e, "unsent")
}

func (l *Ledger[K]) close(e *Entry[K], outcome string) {
	l.mu.Lock()
	if e.doubted {
		if outcome == "refused" {
			l.config.Metrics.fired(GuardLedger, "refusal_after_lost_answer")
		}
		e.state = InDoubt
		outcome = "in_doubt"
	} else {
		l.drop(e)
	}
	l.mu.Unlock()
	l.config.Metrics.wrote(e.intent.Resource, e.intent.Verb, outcome)
	l.settled(e.key)
}

// Doubt records that it isn't known whether a write has happened.
func (l *Ledger[K]) Doubt(e *Entry[K]) {
	l.mu.Lock()
	e.state, e.doubted = InDoubt, true
	e.landsUntil = e.sentAt.Add(l.config.WriteTimeout + landingSlack)
	l.mu.Unlock()
	l.config.Metrics.wrote(e.intent.Resource, e.intent.Verb, "in_doubt")
	l.settled(e.key)
}

// Len returns how many keys have something outstanding, as far as is known without
// looking at the stores.
func (l *Ledger[K]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.accounts)
}

// Sweep forgets the keys whose writes are all in the caches. Check does so for its key;
// this is for keys that nobody checks any more.
func (l *Ledger[K]) Sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, a := range l.accounts {
		if l.examine(a).Fresh() {
			delete(l.accounts, key)
		}
	}
}

func (l *Ledger[K]) store(resource schema.GroupResource) *trackedStore {
	for _, s := range l.stores {
		if s.resource == resource {
			return s
		}
	}
	return nil
}

func (l *Ledger[K]) account(key K) *account[K] {
	a := l.accounts[key]
	if a == nil {
		a = &account[K]{marks: make([]mark, len(l.stores))}
		l.accounts[key] = a
	}
	return a
}

// drop removes an entry, and the account if nothing is left of it.
func (l *Ledger[K]) drop(e *Entry[K]) {
	a := l.accounts[e.key]
	if a == nil {
		return
	}
	for i, other := range a.open {
		if other == e {
			a.open = append(a.open[:i], a.open[i+1:]...)
			break
		}
	}
	if len(a.open) > 0 {
		return
	}
	for _, m := range a.marks {
		if m.version != "" {
			return
		}
	}
	delete(l.accounts, e.key)
}

// raise makes the account wait for a version, if it doesn't for a newer one.
func (a *account[K]) raise(store int, m mark) {
	if order, err := resourceversion.CompareResourceVersion(m.version, a.marks[store].version); err == nil && order < 0 {
		m.version = a.marks[store].version
	}
	a.marks[store] = m
}

// ordered reports whether a version can be compared with others.
func ordered(version string) bool {
	_, err := resourceversion.CompareResourceVersion(version, version)
	return err == nil
}
