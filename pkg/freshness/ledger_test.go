package freshness

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/tools/cache"
)

var secrets = schema.GroupResource{Resource: "secrets"}

// book is a ledger over two stores that a test moves by hand.
type book struct {
	*Ledger[string]
	configMaps, secrets cache.Store
	metrics             *Metrics
}

func newBook() *book {
	metrics := NewMetrics()
	b := &book{
		Ledger:     NewLedger[string](LedgerConfig{Metrics: metrics}),
		configMaps: cache.NewStore(cache.MetaNamespaceKeyFunc),
		secrets:    cache.NewStore(cache.MetaNamespaceKeyFunc),
		metrics:    metrics,
	}
	b.Track(configMaps, b.configMaps)
	b.Track(secrets, b.secrets)
	b.configMaps.Bookmark("100")
	b.secrets.Bookmark("100")
	return b
}

// begin enters a write that must be allowed.
func (b *book) begin(t *testing.T, key string, intent Intent) *Entry[string] {
	t.Helper()
	intent.Resource = configMaps
	intent.Namespace = "ns"
	entry, err := b.Begin(key, intent)
	if err != nil || entry == nil {
		t.Fatalf("got %v, %v from Begin, want an entry", entry, err)
	}
	return entry
}

// want fails the test if key is not found to be stale for cause.
func (b *book) want(t *testing.T, key string, cause Cause) Verdict {
	t.Helper()
	verdict := b.Check(key)
	if verdict.Cause != cause {
		t.Errorf("got %q for key %s, want %q", verdict.Cause, key, cause)
	}
	return verdict
}

func object(name, uid, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(uid), ResourceVersion: version,
	}}
}

// cached puts an object into the store of ConfigMaps.
func (b *book) cached(t *testing.T, object *corev1.ConfigMap) {
	t.Helper()
	if err := b.configMaps.Update(object); err != nil {
		t.Fatal(err)
	}
}

// gone takes an object out of the store of ConfigMaps, at a version.
func (b *book) gone(t *testing.T, name, version string) {
	t.Helper()
	if err := b.configMaps.Delete(object(name, "", version)); err != nil {
		t.Fatal(err)
	}
}

func TestAKeyIsStaleUntilTheStoreHasReachedTheVersionOfItsWrite(t *testing.T) {
	b := newBook()
	b.want(t, "key", Fresh)
	entry := b.begin(t, "key", Intent{Verb: "create", Name: "a"})
	b.want(t, "key", InFlight)
	b.Settle(entry, "105")

	verdict := b.want(t, "key", Behind)
	if want := (Verdict{Behind, configMaps, "105"}); verdict != want {
		t.Errorf("got verdict %+v, want %+v", verdict, want)
	}
	b.configMaps.Bookmark("104")
	b.want(t, "key", Behind)
	b.secrets.Bookmark("200") // another resource's versions mean nothing here
	b.want(t, "key", Behind)
	b.want(t, "other", Fresh)
	b.configMaps.Bookmark("105")
	b.want(t, "key", Fresh)
	if got := b.Len(); got != 0 {
		t.Errorf("%d keys are kept, want none", got)
	}
}

func TestVersionsAreComparedAsNumbersOfAnyLength(t *testing.T) {
	b := newBook()
	b.Settle(b.begin(t, "key", Intent{Verb: "update", Name: "a"}), "1000000000000000000000000000000")
	b.configMaps.Bookmark("999999999999999999999999999999")
	b.want(t, "key", Behind)
	b.configMaps.Bookmark("1000000000000000000000000000001")
	b.want(t, "key", Fresh)
}

func TestOfSeveralWritesTheNewestCountsWhateverTheOrderOfTheirAnswers(t *testing.T) {
	b := newBook()
	first := b.begin(t, "key", Intent{Verb: "create", Name: "a"})
	second := b.begin(t, "key", Intent{Verb: "create", Name: "b"})
	b.Settle(second, "107")
	b.configMaps.Bookmark("107")
	b.want(t, "key", InFlight)
	b.Settle(first, "106")
	b.want(t, "key", Fresh)

	first = b.begin(t, "key", Intent{Verb: "create", Name: "a"})
	second = b.begin(t, "key", Intent{Verb: "create", Name: "b"})
	b.Settle(second, "117")
	b.Settle(first, "116")
	b.configMaps.Bookmark("116")
	b.want(t, "key", Behind)
	b.configMaps.Bookmark("117")
	b.want(t, "key", Fresh)
}

func TestAWriteThatWasRefusedOrNeverSentLeavesNothing(t *testing.T) {
	b := newBook()
	b.Refuse(b.begin(t, "key", Intent{Verb: "create", Name: "a"}))
	b.want(t, "key", Fresh)
	b.Unsent(b.begin(t, "key", Intent{Verb: "create", Name: "a"}))
	b.want(t, "key", Fresh)
	if got := b.Len(); got != 0 {
		t.Errorf("%d keys are kept, want none", got)
	}
}

func TestAResourceThatIsNotTrackedIsNotEntered(t *testing.T) {
	b := newBook()
	entry, err := b.Begin("key", Intent{Verb: "create", Resource: schema.GroupResource{Resource: "events"}})
	if entry != nil || err != nil {
		t.Errorf("got %v, %v, want neither an entry nor an error", entry, err)
	}
}

func TestBeforeTheFirstListEveryKeyIsStale(t *testing.T) {
	ledger := NewLedger[string](LedgerConfig{})
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	ledger.Track(configMaps, store)
	if got := ledger.Check("key").Cause; got != Unordered {
		t.Errorf("got %q before the first list, want %q", got, Unordered)
	}
	store.Bookmark("1")
	if got := ledger.Check("key").Cause; got != Fresh {
		t.Errorf("got %q after it, want fresh", got)
	}
}

func TestAStoreThatDoesNotTellItsVersionIsNeverFresh(t *testing.T) {
	b := newBook()
	b.want(t, "key", Fresh)
	featurestesting.SetFeatureDuringTest(t, features.AtomicFIFO, false)
	b.want(t, "key", Unordered)
}

func TestVersionsThatCannotBeComparedAreNotFresh(t *testing.T) {
	for _, version := range []string{"", "0", "01", "abc", "1a", "-1", "1.5"} {
		b := newBook()
		b.configMaps.Bookmark(version)
		b.want(t, "key", Unordered)
		b.configMaps.Bookmark("101")
		b.want(t, "key", Fresh)
	}
}

func TestAnAnswerWithoutAUsableVersionLeavesTheWriteUnconfirmed(t *testing.T) {
	for _, version := range []string{"", "0", "abc"} {
		b := newBook()
		b.Settle(b.begin(t, "key", Intent{Verb: "patch", Name: "a"}), version)
		b.want(t, "key", Unconfirmed)
		b.configMaps.Bookmark("1000")
		b.want(t, "key", Unconfirmed)
		// Any quorum read after the answer is past the write.
		b.Learn(configMaps, "1001", b.Highest(configMaps), time.Now())
		b.want(t, "key", Behind)
		b.configMaps.Bookmark("1001")
		b.want(t, "key", Fresh)
	}
}

func TestAStoreThatGoesBackMakesEveryKeyStaleUntilItHasCaughtUp(t *testing.T) {
	b := newBook()
	b.configMaps.Bookmark("200")
	b.want(t, "key", Fresh)
	b.configMaps.Bookmark("150") // a list from an API server that lags
	if got, want := b.want(t, "key", WentBack), (Verdict{WentBack, configMaps, "200"}); got != want {
		t.Errorf("got verdict %+v, want %+v", got, want)
	}
	// A quorum read that finds the API server further on changes nothing.
	b.Learn(configMaps, "210", b.Highest(configMaps), time.Now())
	b.want(t, "key", WentBack)
	b.configMaps.Bookmark("199")
	b.want(t, "key", WentBack)
	b.configMaps.Bookmark("200")
	b.want(t, "key", Fresh)
}

func TestAnAPIServerThatWasRestoredDoesNotParkItsKeysForGood(t *testing.T) {
	b := newBook()
	b.Settle(b.begin(t, "key", Intent{Verb: "create", Name: "a"}), "9000")
	b.configMaps.Bookmark("8000")
	b.want(t, "key", Behind)
	b.configMaps.Bookmark("150") // restored from a backup
	b.want(t, "key", WentBack)

	b.Learn(configMaps, "160", b.Highest(configMaps), time.Now())
	if got := firings(t, b.metrics, GuardLedger, "restored_server_noticed"); got != 1 {
		t.Errorf("got %d firings, want 1", got)
	}
	b.want(t, "key", WentBack) // the cache is behind the read still
	b.configMaps.Bookmark("160")
	b.want(t, "key", Fresh)
}

func TestAReadThatTheStoreHasOvertakenIsNoSignOfARestore(t *testing.T) {
	b := newBook()
	highest := b.Highest(configMaps)
	b.configMaps.Bookmark("200")
	b.want(t, "key", Fresh)
	b.Learn(configMaps, "150", highest, time.Now()) // read while the store went on
	b.want(t, "key", Fresh)
	b.configMaps.Bookmark("160")
	b.want(t, "key", WentBack)
}

func TestADeletionIsSettledByTheVersionInItsAnswer(t *testing.T) {
	b := newBook()
	b.cached(t, object("a", "u1", "100"))
	b.Settle(b.begin(t, "key", Intent{Verb: "delete", Name: "a", UID: "u1"}), "105")
	b.want(t, "key", Behind)
	b.gone(t, "a", "105")
	b.want(t, "key", Fresh)
}

func TestADeletionWhoseAnswerHasNoVersionIsSettledByTheCacheByUID(t *testing.T) {
	ending := object("a", "u1", "106")
	ending.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	for _, test := range []struct {
		name  string
		shows func(t *testing.T, b *book)
		want  Cause
	}{
		{"it is there still", func(*testing.T, *book) {}, Unconfirmed},
		{"it has changed", func(t *testing.T, b *book) { b.cached(t, object("a", "u1", "106")) }, Unconfirmed},
		{"it is gone", func(t *testing.T, b *book) { b.gone(t, "a", "106") }, Fresh},
		{"it is ending", func(t *testing.T, b *book) { b.cached(t, ending) }, Fresh},
		{"another has its name", func(t *testing.T, b *book) { b.cached(t, object("a", "u2", "107")) }, Fresh},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBook()
			b.cached(t, object("a", "u1", "100"))
			b.Settle(b.begin(t, "key", Intent{Verb: "delete", Name: "a", UID: "u1"}), "")
			b.want(t, "key", Unconfirmed)
			test.shows(t, b)
			b.want(t, "key", test.want)
		})
	}
}

func TestADeletionOfWhatWasEndingAlreadyIsNotShownByThat(t *testing.T) {
	b := newBook()
	ending := object("a", "u1", "100")
	ending.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	b.cached(t, ending)
	b.Settle(b.begin(t, "key", Intent{Verb: "delete", Name: "a"}), "")
	b.want(t, "key", Unconfirmed)
	b.gone(t, "a", "106")
	b.want(t, "key", Fresh)
}

func TestADeletionOfWhatTheCacheNeverHeldIsNotShownByItsAbsence(t *testing.T) {
	b := newBook()
	b.Settle(b.begin(t, "key", Intent{Verb: "delete", Name: "a"}), "")
	b.want(t, "key", Unconfirmed)
}

func TestAnEntryOfAnotherKeyIsNotInTheWay(t *testing.T) {
	b := newBook()
	b.Doubt(b.begin(t, "key", Intent{Verb: "patch", Name: "a", Fingerprint: 1}))
	b.begin(t, "other", Intent{Verb: "patch", Name: "a", Fingerprint: 2})
	b.want(t, "key", InDoubt)
	b.want(t, "other", InFlight)
}

func TestSweepForgetsKeysThatNobodyChecksAnyMore(t *testing.T) {
	b := newBook()
	for i := range 10 {
		b.Settle(b.begin(t, fmt.Sprint("key-", i), Intent{Verb: "create", Name: "a"}), fmt.Sprint(101+i))
	}
	b.configMaps.Bookmark("105")
	b.Sweep()
	if got := b.Len(); got != 5 {
		t.Errorf("%d keys are kept, want the 5 that aren't in the cache yet", got)
	}
}

func TestASecondWriteOnAnObjectInDoubtIsNotSent(t *testing.T) {
	b := newBook()
	b.Doubt(b.begin(t, "key", Intent{Verb: "create", Name: "a", Fingerprint: 1}))
	_, err := b.Begin("key", Intent{Verb: "delete", Resource: configMaps, Namespace: "ns", Name: "a", Fingerprint: 2})
	var inDoubt *InDoubtError
	if !errors.As(err, &inDoubt) {
		t.Fatalf("got %v, want an InDoubtError", err)
	}
	if want := "delete configmaps ns/a not sent: the answer to an earlier create of it was lost"; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got message %q, want it to begin with %q", err, want)
	}
	if got := firings(t, b.metrics, GuardLedger, "second_write_refused"); got != 1 {
		t.Errorf("got %d firings, want 1", got)
	}
	b.begin(t, "key", Intent{Verb: "create", Name: "b", Fingerprint: 3}) // another object
}

func TestARefusalAfterALostAnswerOfTheSameWriteLeavesItInDoubt(t *testing.T) {
	b := newBook()
	create := Intent{Verb: "create", Name: "a", Fingerprint: 1}
	b.Doubt(b.begin(t, "key", create))
	retry := b.begin(t, "key", create) // client-go sends it again
	b.want(t, "key", InFlight)
	b.Outdate(retry) // 409 AlreadyExists: it may be our own
	b.want(t, "key", InDoubt)
	retry = b.begin(t, "key", create)
	b.Unsent(retry)
	b.want(t, "key", InDoubt)
	b.Settle(b.begin(t, "key", create), "105")
	b.want(t, "key", Behind)
	b.configMaps.Bookmark("105")
	b.want(t, "key", Fresh)
}

func TestTheCacheSettlesWritesInDoubt(t *testing.T) {
	marked := func(o metav1.Object) bool { return o.GetLabels()["mark"] == "1" }
	withMark := object("a", "u1", "106")
	withMark.Labels = map[string]string{"mark": "1"}
	for _, test := range []struct {
		name   string
		before *corev1.ConfigMap
		write  Intent
		after  *corev1.ConfigMap // nil: nothing changes
		gone   bool
		want   Cause
	}{{
		name:  "a creation, when the name is there",
		write: Intent{Verb: "create"},
		after: object("a", "u1", "106"),
		want:  Fresh,
	}, {
		name:  "not a creation, while it isn't",
		write: Intent{Verb: "create"},
		want:  InDoubt,
	}, {
		name:   "not a creation, while the name is an earlier object's",
		before: object("a", "u0", "90"),
		write:  Intent{Verb: "create"},
		after:  object("a", "u0", "106"),
		want:   InDoubt,
	}, {
		name:   "an update, when its precondition is gone",
		before: object("a", "u1", "90"),
		write:  Intent{Verb: "update", ResourceVersion: "90"},
		after:  object("a", "u1", "106"),
		want:   Fresh,
	}, {
		name:   "an update, when its object is gone",
		before: object("a", "u1", "90"),
		write:  Intent{Verb: "update", ResourceVersion: "90"},
		gone:   true,
		want:   Fresh,
	}, {
		name:   "not an update, while its precondition holds",
		before: object("a", "u1", "90"),
		write:  Intent{Verb: "update", ResourceVersion: "90"},
		want:   InDoubt,
	}, {
		name:   "not a patch without a precondition, whatever changes",
		before: object("a", "u1", "90"),
		write:  Intent{Verb: "patch"},
		after:  withMark,
		want:   InDoubt,
	}, {
		name:   "a patch that says what shows it, when that is seen",
		before: object("a", "u1", "90"),
		write:  Intent{Verb: "patch", Shows: marked},
		after:  withMark,
		want:   Fresh,
	}, {
		name:   "not a patch that says what shows it, while that isn't seen",
		before: object("a", "u1", "90"),
		write:  Intent{Verb: "patch", Shows: marked},
		after:  object("a", "u1", "106"),
		want:   InDoubt,
	}, {
		name:   "a deletion, when its object is gone",
		before: object("a", "u1", "90"),
		write:  Intent{Verb: "delete", UID: "u1"},
		gone:   true,
		want:   Fresh,
	}, {
		name:  "not a deletion of a collection",
		write: Intent{Verb: "deletecollection"},
		gone:  true,
		want:  InDoubt,
	}} {
		t.Run(test.name, func(t *testing.T) {
			b := newBook()
			if test.before != nil {
				b.cached(t, test.before)
			}
			b.configMaps.Bookmark("100")
			if test.write.Verb != "deletecollection" {
				test.write.Name = "a"
			}
			b.Doubt(b.begin(t, "key", test.write))
			b.want(t, "key", InDoubt)
			if test.after != nil {
				b.cached(t, test.after)
			}
			if test.gone {
				b.gone(t, "a", "106")
			}
			b.want(t, "key", test.want)
		})
	}
}

func TestAQuorumReadSettlesAWriteInDoubtOnceItCannotLandAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		b.Doubt(b.begin(t, "key", Intent{Verb: "patch", Name: "a"}))
		b.Doubt(b.begin(t, "other", Intent{Verb: "patch", Name: "b"}))
		if got := b.Unresolved(); got != nil {
			t.Errorf("got %v to be read at once, want nothing: the writes may land still", got)
		}
		b.Learn(configMaps, "200", b.Highest(configMaps), time.Now())
		b.want(t, "key", InDoubt)

		elapse(DefaultWriteTimeout + landingSlack)
		if got := b.Unresolved(); len(got) != 1 || got[0] != configMaps {
			t.Errorf("got %v to be read, want configmaps", got)
		}
		b.Learn(configMaps, "210", b.Highest(configMaps), time.Now())
		b.want(t, "key", Behind)
		b.want(t, "other", Behind)
		if got := b.Unresolved(); got != nil {
			t.Errorf("got %v to be read after the read, want nothing", got)
		}
		b.configMaps.Bookmark("210")
		b.want(t, "key", Fresh)
		b.want(t, "other", Fresh)
	})
}

func TestAWriteInFlightIsNotSettledByAnything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		b.begin(t, "key", Intent{Verb: "create", Name: "a"})
		elapse(time.Hour)
		b.cached(t, object("a", "u1", "106"))
		b.Learn(configMaps, "210", b.Highest(configMaps), time.Now())
		b.Vouch(configMaps, "106", time.Now())
		b.want(t, "key", InFlight)
	})
}

func TestARefusalForAnOldCacheMakesTheKeyWaitUntilTheCacheHasMoved(t *testing.T) {
	for _, test := range []struct {
		name   string
		before *corev1.ConfigMap
		write  Intent
		after  *corev1.ConfigMap
		want   Cause // right after the refusal
	}{{
		name:   "an update of an old version waits for a newer one",
		before: object("a", "u1", "90"),
		write:  Intent{Verb: "update", Name: "a", ResourceVersion: "90"},
		after:  object("a", "u1", "106"),
		want:   Outdated,
	}, {
		name:   "a deletion of an old version waits for a newer one",
		before: object("a", "u1", "90"),
		write:  Intent{Verb: "delete", Name: "a", UID: "u1", ResourceVersion: "90"},
		after:  object("a", "u1", "106"),
		want:   Outdated,
	}, {
		name:  "a creation under a name that is taken waits for its owner",
		write: Intent{Verb: "create", Name: "a"},
		after: object("a", "u1", "106"),
		want:  Outdated,
	}, {
		name:   "a decision on something older than the cache needs no waiting",
		before: object("a", "u1", "90"),
		write:  Intent{Verb: "update", Name: "a", ResourceVersion: "80"},
		want:   Fresh,
	}, {
		name:  "a write on what the cache doesn't hold needs no waiting",
		write: Intent{Verb: "update", Name: "a", ResourceVersion: "80"},
		want:  Fresh,
	}, {
		name:   "a creation under a name that the cache shows as taken needs no waiting",
		before: object("a", "u1", "90"),
		write:  Intent{Verb: "create", Name: "a"},
		want:   Fresh,
	}} {
		t.Run(test.name, func(t *testing.T) {
			b := newBook()
			if test.before != nil {
				b.cached(t, test.before)
				b.configMaps.Bookmark("100")
			}
			b.Outdate(b.begin(t, "key", test.write))
			b.want(t, "key", test.want)
			if test.after != nil {
				b.cached(t, test.after)
				b.want(t, "key", Fresh)
			}
		})
	}
}

func TestARefusalThatTheCacheDoesNotExplainIsSettledByAQuorumRead(t *testing.T) {
	b := newBook()
	b.cached(t, object("a", "u1", "90"))
	b.configMaps.Bookmark("100")
	b.Outdate(b.begin(t, "key", Intent{Verb: "update", Name: "a", ResourceVersion: "90"}))
	b.Learn(configMaps, "110", b.Highest(configMaps), time.Now())
	b.want(t, "key", Behind)
	b.configMaps.Bookmark("110")
	b.want(t, "key", Fresh)
}

func TestAStoreFoundEqualToTheAPIServerSettlesWhatVersionsLeaveOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		b.Settle(b.begin(t, "unconfirmed", Intent{Verb: "create", Name: "a"}), "x-1")
		b.Settle(b.begin(t, "behind", Intent{Verb: "create", Name: "b"}), "500")
		b.configMaps.Bookmark("x-2")
		b.want(t, "unconfirmed", Unordered)
		b.want(t, "idle", Unordered)

		b.Vouch(configMaps, "x-2", time.Now())
		b.want(t, "unconfirmed", Fresh)
		b.want(t, "behind", Fresh)
		b.want(t, "idle", Fresh)
		b.configMaps.Bookmark("x-3") // nobody has vouched for this one
		b.want(t, "idle", Unordered)
	})
}

func TestWhatWasWrittenAfterTheStoreWasComparedIsNotSettledByThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		asOf := time.Now()
		elapse(time.Millisecond)
		b.Settle(b.begin(t, "key", Intent{Verb: "create", Name: "a"}), "500")
		b.Settle(b.begin(t, "other", Intent{Verb: "create", Name: "b"}), "")
		b.Vouch(configMaps, "100", asOf)
		b.want(t, "key", Behind)
		b.want(t, "other", Unconfirmed)
	})
}

// BenchmarkCheck is a worker's check at its entry: three stores, and a ledger in which
// 10,000 other keys wait.
func BenchmarkCheck(b *testing.B) {
	ledger := NewLedger[cache.ObjectName](LedgerConfig{Metrics: NewMetrics()})
	for _, resource := range []string{"warmpools", "podclaims", "pods"} {
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		store.Bookmark("1000000")
		ledger.Track(schema.GroupResource{Resource: resource}, store)
	}
	keys := make([]cache.ObjectName, 10_000)
	for i := range keys {
		keys[i] = cache.ObjectName{Namespace: "ns", Name: fmt.Sprint("pool-", i)}
		entry, err := ledger.Begin(keys[i], Intent{Verb: "create", Resource: schema.GroupResource{Resource: "pods"}, Namespace: "ns", Name: "p"})
		if err != nil {
			b.Fatal(err)
		}
		ledger.Settle(entry, "2000000")
	}
	b.Run("fresh", func(b *testing.B) {
		key := cache.ObjectName{Namespace: "ns", Name: "idle"}
		b.ReportAllocs()
		for b.Loop() {
			if !ledger.Check(key).Fresh() {
				b.Fatal("stale")
			}
		}
	})
	b.Run("behind", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if ledger.Check(keys[i%len(keys)]).Fresh() {
				b.Fatal("fresh")
			}
		}
	})
}

func TestACheckOnTheFastPathAllocatesNothing(t *testing.T) {
	b := newBook()
	b.Settle(b.begin(t, "behind", Intent{Verb: "create", Name: "a"}), "500")
	if got := testing.AllocsPerRun(1000, func() { b.Check("idle") }); got != 0 {
		t.Errorf("got %v allocations for a key that waits for nothing, want 0", got)
	}
	if got := testing.AllocsPerRun(1000, func() { b.Check("behind") }); got != 0 {
		t.Errorf("got %v allocations for a key that waits for a version, want 0", got)
	}
}
