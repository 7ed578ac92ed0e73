package freshness

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// newFence returns a fence in front of a feed that is synced and some seconds old.
func newFence(t *testing.T) (*Fence, *source) {
	t.Helper()
	src := newSource(t)
	feed := newTestFeed(t, src, nil)
	t.Cleanup(runInformer(t, feed.Informer()))
	src.put("a")
	elapse(5 * time.Second)
	return &Fence{Feeds: []*Feed{feed}, Live: &live{source: src}, Metrics: NewMetrics()}, src
}

func TestANewLeaderWaitsUntilItsCacheHasWhatThePredecessorWrote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fence, src := newFence(t)
		src.hold()
		version := src.put("a").ResourceVersion // by the predecessor
		go func() {
			elapse(200 * time.Millisecond)
			src.release()
		}()
		start := time.Now()
		if err := fence.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 200*time.Millisecond {
			t.Errorf("waited %v, want 200ms: until the event arrived", took)
		}
		if got := fence.Feeds[0].Version(); got != version {
			t.Errorf("the store is at version %s, want %s", got, version)
		}
		if got := firings(t, fence.Metrics, GuardFence, "passed"); got != 1 {
			t.Errorf("counted %d, want 1", got)
		}
	})
}

func TestANewLeaderDoesNotWaitIfItsCacheIsUpToDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fence, _ := newFence(t)
		start := time.Now()
		if err := fence.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("waited %v, want not at all", took)
		}
	})
}

func TestAnIdleCacheThatEqualsTheAPIServerPassesTheFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fence, src := newFence(t)
		src.advance()
		start := time.Now()
		if err := fence.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != fenceCompare {
			t.Errorf("waited %v, want %v", took, fenceCompare)
		}
		if got := firings(t, fence.Metrics, GuardFence, "found_equal"); got != 1 {
			t.Errorf("found equal %d times, want once", got)
		}
		if got := firings(t, fence.Metrics, GuardFence, "nudge"); got != 0 {
			t.Errorf("nudged %d times, want not at all", got)
		}
	})
}

func TestACacheThatDiffersIsHelpedOverTheFenceByABookmark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fence, src := newFence(t)
		fence.Live = &unlike{live{source: src}}
		src.advance()
		start := time.Now()
		if err := fence.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("waited %v, want at most 1s", took)
		}
		if got := firings(t, fence.Metrics, GuardFence, "nudge"); got != 1 {
			t.Errorf("nudged %d times, want once", got)
		}
	})
}

// unlike finds an object that no cache has: one that was made and deleted at once, say.
type unlike struct{ live }

func (*unlike) Objects(context.Context, *Feed) (map[types.UID]string, error) {
	return map[types.UID]string{"made and deleted": "1"}, nil
}

func TestACacheThatABookmarkDoesNotHelpIsFilledAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fence, src := newFence(t)
		src.hold()
		src.put("a")
		start := time.Now()
		if err := fence.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("waited %v, want at most 10s", took)
		}
		if got := firings(t, fence.Metrics, GuardFence, "relist"); got != 1 {
			t.Errorf("relisted %d times, want once", got)
		}
	})
}

func TestAFenceThatCannotBePassedSaysWhichCacheLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fence, src := newFence(t)
		src.hold()
		src.failWith(errors.New("no more lists"))
		src.put("a")
		start := time.Now()
		err := fence.Wait(t.Context())
		if took := time.Since(start); took != 30*time.Second {
			t.Errorf("waited %v, want 30s", took)
		}
		want := "pass the fence of a new leader: wait for the cache of configmaps to get from version 101 to 102: not within 30s"
		if err == nil || err.Error() != want {
			t.Errorf("got error %v, want %s", err, want)
		}
	})
}

func TestAFenceIsNotPassedWithoutAQuorumRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fence, _ := newFence(t)
		fence.Live.(*live).fail = errors.New("connection refused")
		if err := fence.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "connection refused (not within 30s)") {
			t.Errorf("got error %v, want one with both causes", err)
		}
	})
}
