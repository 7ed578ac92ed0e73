package freshness

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// told is a handler that writes down what it is told.
type told struct{ events []string }

func describe(obj any) string {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		if tombstone.Obj == nil {
			return "tombstone of " + tombstone.Key
		}
		obj = tombstone.Obj
	}
	object, ok := obj.(metav1.Object)
	if !ok {
		return fmt.Sprint(obj)
	}
	return fmt.Sprintf("%s@%s", object.GetUID(), object.GetResourceVersion())
}

func (t *told) OnAdd(obj any, _ bool) { t.events = append(t.events, "add "+describe(obj)) }
func (t *told) OnUpdate(old, new any) {
	t.events = append(t.events, "update "+describe(old)+" "+describe(new))
}
func (t *told) OnDelete(obj any)        { t.events = append(t.events, "delete "+describe(obj)) }
func (t *told) take() (events []string) { events, t.events = t.events, nil; return events }

func TestOnlyNewsPassesTheWatermark(t *testing.T) {
	metrics := NewMetrics()
	relists := 0
	watermark := NewWatermark(metrics, func() { relists++ })
	told := &told{}
	handler := watermark.Handler(told)
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"an addition", func() { handler.OnAdd(object("a", "u1", "9"), true) }, []string{"add u1@9"}},
		{"a newer version", func() { handler.OnUpdate(object("a", "u1", "9"), object("a", "u1", "10")) }, []string{"update u1@9 u1@10"}},
		{"the same version again", func() { handler.OnUpdate(object("a", "u1", "10"), object("a", "u1", "10")) }, nil},
		{"an older version", func() { handler.OnUpdate(object("a", "u1", "10"), object("a", "u1", "9")) }, nil},
		{"an addition of an older version", func() { handler.OnAdd(object("a", "u1", "9"), false) }, nil},
		{"the newest version once more", func() { handler.OnUpdate(object("a", "u1", "9"), object("a", "u1", "10")) }, nil},
		{"another object, of an older version", func() { handler.OnAdd(object("b", "u2", "3"), true) }, []string{"add u2@3"}},
		{"another object under the same name", func() { handler.OnUpdate(object("a", "u1", "10"), object("a", "u3", "12")) }, []string{"update u1@10 u3@12"}},
		{"a deletion", func() { handler.OnDelete(object("a", "u3", "13")) }, []string{"delete u3@13"}},
		{"an event of what was deleted", func() { handler.OnAdd(object("a", "u3", "12"), false) }, nil},
		{"the end of that", func() { handler.OnDelete(object("a", "u3", "13")) }, []string{"delete u3@13"}},
		{"a return, of what had stopped to match a selector", func() { handler.OnAdd(object("a", "u3", "14"), false) }, []string{"add u3@14"}},
		{"its end", func() { handler.OnDelete(object("a", "u3", "15")) }, []string{"delete u3@15"}},
		{"a deletion that was missed", func() {
			handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "ns/b", Obj: object("b", "u2", "3")})
		}, []string{"delete u2@3"}},
		{"a deletion of which nothing is known", func() {
			handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "ns/c"})
		}, []string{"delete tombstone of ns/c"}},
		{"a version that can't be compared", func() { handler.OnAdd(object("d", "u4", ""), true) }, []string{"add u4@"}},
		{"what is no object", func() { handler.OnUpdate("x", "y") }, []string{"update x y"}},
	} {
		step.do()
		if got := told.take(); !slices.Equal(got, step.want) {
			t.Errorf("%s: the handler was told %q, want %q", step.what, got, step.want)
		}
	}
	if got := watermark.Len(); got != 0 {
		t.Errorf("versions of %d objects are kept although all are gone, want none", got)
	}
	if got := firings(t, metrics, GuardWatermark, "old_event_dropped"); got != 3 || relists != 3 {
		t.Errorf("counted %d old events and %d relists, want 3 and 3", got, relists)
	}
}

func TestAnObjectThatIsMissingFromAListWasDeletedIfTheListIsNewer(t *testing.T) {
	for version, want := range map[string][]string{
		"20": nil,           // the list is newer: the object is dead
		"5":  {"add u1@10"}, // the list is older: it had no such object yet
		"":   {"add u1@10"}, // nothing is known
	} {
		watermark := NewWatermark(nil, nil)
		watermark.version = func() string { return version }
		told := &told{}
		handler := watermark.Handler(told)
		handler.OnAdd(object("a", "u1", "10"), true)
		handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "ns/a", Obj: object("a", "u1", "10")})
		told.take()
		handler.OnAdd(object("a", "u1", "10"), false)
		if got := told.take(); !slices.Equal(got, want) {
			t.Errorf("missing at version %q: the handler was told %q, want %q", version, got, want)
		}
	}
}

func TestOfDeletedObjectsOnlyTheLastAreRemembered(t *testing.T) {
	watermark := NewWatermark(nil, nil)
	told := &told{}
	handler := watermark.Handler(told)
	for i := range goneKept + 1 {
		handler.OnDelete(object("a", fmt.Sprint("u", i), "5"))
	}
	told.take()
	for i := range 2 {
		handler.OnAdd(object("a", fmt.Sprint("u", i), "5"), false)
	}
	if got, want := told.take(), []string{"add u0@5"}; !slices.Equal(got, want) {
		t.Errorf("the handler was told %q, want %q: u0 alone is forgotten", got, want)
	}
	if !watermark.Below(object("a", "u1", "5")) || watermark.Below(object("a", "u1", "6")) {
		t.Error("an object is old up to the version at which it went, and not above")
	}
	if got := len(watermark.gone); got != goneKept {
		t.Errorf("%d are kept, want %d", got, goneKept)
	}
}

func TestAnObjectOfASnapshotIsBelowItsWatermarkIfItWasSeenNewer(t *testing.T) {
	watermark := NewWatermark(nil, nil)
	handler := watermark.Handler(&told{})
	handler.OnAdd(object("a", "u1", "10"), true)
	for version, want := range map[string]bool{"9": true, "10": false, "11": false, "": false} {
		if got := watermark.Below(object("a", "u1", version)); got != want {
			t.Errorf("got %t for version %q of an object seen at 10, want %t", got, version, want)
		}
	}
	if watermark.Below(object("a", "u2", "1")) {
		t.Error("another object under the same name was held against the first one's versions")
	}
	watermark.Reset()
	if watermark.Below(object("a", "u1", "9")) {
		t.Error("a version was remembered over Reset")
	}
}

// The store's version alone doesn't show this: after the old event came newer ones.
func TestAReplayedEventMakesTheStoresKeysStaleUntilItsObjectIsListedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t)
		old := src.put("a")
		feed := newTestFeed(t, src, nil)
		watermark := NewWatermark(nil, feed.ForceRelist)
		if _, err := feed.Informer().AddEventHandler(watermark.Handler(&told{})); err != nil {
			t.Fatal(err)
		}
		ledger := NewLedger[string](LedgerConfig{})
		ledger.Track(configMaps, feed.Informer().GetStore())
		ledger.Guard(configMaps, watermark)
		defer runInformer(t, feed.Informer())()
		src.put("a")
		elapse(5 * time.Second)
		if got := ledger.Check("key").Cause; got != Fresh {
			t.Fatalf("got %q before the replay, want fresh", got)
		}

		src.inject(watch.Event{Type: watch.Modified, Object: old})
		src.put("b")
		synctest.Wait()
		cached, _, _ := feed.Informer().GetStore().GetByKey("ns/a")
		if cached.(*corev1.ConfigMap).ResourceVersion != old.ResourceVersion || feed.Version() != "103" {
			t.Fatal("the cache doesn't hold the old object at a new version, so this test shows nothing")
		}
		if got := ledger.Check("key").Cause; got != WentBack {
			t.Errorf("got %q while the cache holds an old object, want %q", got, WentBack)
		}
		elapse(3 * time.Second) // the relist, after client-go's backoff
		synctest.Wait()
		if got := ledger.Check("key").Cause; got != Fresh {
			t.Errorf("got %q after the relist, want fresh", got)
		}
	})
}
