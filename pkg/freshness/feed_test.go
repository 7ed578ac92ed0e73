package freshness

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/tools/cache"
)

var configMapsV1 = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// newTestFeed returns a feed of the source's ConfigMaps.
func newTestFeed(t *testing.T, src *source, metrics *Metrics) *Feed {
	t.Helper()
	feed, err := NewFeed(FeedConfig{
		Resource:      configMapsV1,
		Object:        &corev1.ConfigMap{},
		ListerWatcher: src,
		Metrics:       metrics,
	})
	if err != nil {
		t.Fatal(err)
	}
	return feed
}

// runInformer runs an informer and waits until it is synced. The function that it
// returns stops it.
func runInformer(t *testing.T, informer cache.SharedInformer) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		informer.RunWithContext(ctx)
	}()
	if !cache.WaitFor(ctx, "", informer.HasSyncedChecker()) {
		t.Fatal("the informer didn't sync")
	}
	synctest.Wait()
	return func() {
		cancel()
		<-done
	}
}

// firings returns how often a guard did something, by its metrics.
func firings(t *testing.T, metrics *Metrics, guard Guard, action string) int {
	t.Helper()
	counter := metrics.firings.WithLabelValues(string(guard), action)
	return int(counterValue(t, counter))
}

func TestWhenTheStreamedListFailsTheListIsAQuorumReadNevertheless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// What an API server does that is cut off from etcd: it can't find out
		// the newest version, but it can list from its watch cache.
		cutOff := func(request string) error {
			if strings.HasSuffix(request, "initial=true") {
				return apierrors.NewInternalError(errors.New("context deadline exceeded"))
			}
			return nil
		}

		src := newSource(t)
		src.fail = cutOff
		stop := runInformer(t, cache.NewSharedIndexInformer(src, &corev1.ConfigMap{}, 0, nil))
		stop()
		if got, want := src.asked()[1], `LIST rv="0" limit=500`; got != want {
			t.Fatalf("client-go asked for %s, no longer for %s: this guard may not be needed any more", got, want)
		}

		src = newSource(t)
		src.fail = cutOff
		metrics := NewMetrics()
		stop = runInformer(t, newTestFeed(t, src, metrics).Informer())
		defer stop()
		if got, want := src.asked()[1], `LIST rv="" limit=0`; got != want {
			t.Errorf("the feed asked for %s, want %s", got, want)
		}
		if got := firings(t, metrics, GuardFeed, "stale_list_prevented"); got != 1 {
			t.Errorf("got %d firings, want 1", got)
		}
	})
}

func TestALaterListIsAQuorumReadToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t)
		feed := newTestFeed(t, src, nil)
		defer runInformer(t, feed.Informer())()
		src.put("a")
		synctest.Wait()
		src.forget()

		feed.ForceRelist()
		elapse(2 * time.Second)
		synctest.Wait()
		if got, want := src.asked(), []string{`WATCH rv="" initial=true`}; !slices.Equal(got, want) {
			t.Errorf("after ForceRelist the feed asked for %q, want %q", got, want)
		}
		if got, want := feed.Version(), "101"; got != want {
			t.Errorf("got version %q after the relist, want %q", got, want)
		}
	})
}

func TestABounceWatchesAgainFromWhereTheInformerWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t)
		feed := newTestFeed(t, src, nil)
		defer runInformer(t, feed.Informer())()
		src.put("a")
		elapse(5 * time.Second)
		src.forget()

		feed.Bounce()
		synctest.Wait()
		if got, want := src.asked(), []string{`WATCH rv="101" initial=false`}; !slices.Equal(got, want) {
			t.Errorf("after Bounce the feed asked for %q, want %q", got, want)
		}
		src.put("b")
		synctest.Wait()
		if got, want := feed.Version(), "102"; got != want {
			t.Errorf("got version %q from the new watch, want %q", got, want)
		}
	})
}

func TestANudgeAsksForAWatchSoShortThatABookmarkComesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t)
		feed := newTestFeed(t, src, nil)
		defer runInformer(t, feed.Informer())()
		elapse(5 * time.Second)
		src.forget()

		feed.Nudge()
		elapse(2 * time.Second)
		feed.Bounce()
		synctest.Wait()
		if len(src.timeouts) != 2 || src.timeouts[0] != 3 || src.timeouts[1] < 60 {
			t.Errorf("got watches of %v seconds, want one of 3 and then one of at least 60", src.timeouts)
		}
	})
}

func TestAWatchThatTheServerForgetsIsEndedByTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t) // it never ends a watch on its own
		metrics := NewMetrics()
		feed := newTestFeed(t, src, metrics)
		defer runInformer(t, feed.Informer())()
		src.put("a")
		synctest.Wait()
		src.forget()

		elapse(listTimeout + watchGrace) // it began as a streamed list
		synctest.Wait()
		if got, want := src.asked()[0], `WATCH rv="101" initial=false`; got != want {
			t.Errorf("the feed asked for %s, want %s", got, want)
		}
		if got := firings(t, metrics, GuardFeed, "overdue_watch_ended"); got < 1 {
			t.Errorf("got %d firings, want at least 1", got)
		}
		src.mu.Lock()
		open := len(src.watches)
		src.mu.Unlock()
		if open != 1 {
			t.Errorf("%d watches are open, want 1", open)
		}
	})
}

func TestABookmarkMovesTheVersionAndGivesASignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t)
		feed := newTestFeed(t, src, nil)
		if got := feed.Version(); got != "" {
			t.Errorf("got version %q before the first list, want none", got)
		}
		progress, stop := feed.Follow()
		defer stop()
		defer runInformer(t, feed.Informer())()
		<-progress // of the first list

		want := src.progress()
		<-progress
		if got := feed.Version(); got != want {
			t.Errorf("got version %q, want the bookmark's, %q", got, want)
		}
		select {
		case <-progress:
			t.Error("got a signal although nothing has changed")
		default:
		}
	})
}

func TestEachKindOfChangeGivesASignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t)
		feed := newTestFeed(t, src, nil)
		progress, stop := feed.Follow()
		defer stop()
		defer runInformer(t, feed.Informer())()
		<-progress
		for _, change := range []func() string{
			func() string { return src.put("a").ResourceVersion },
			func() string { return src.put("a").ResourceVersion },
			func() string { return src.remove("a") },
		} {
			want := change()
			<-progress
			if got := feed.Version(); got != want {
				t.Errorf("got version %q, want %q", got, want)
			}
		}
	})
}

func TestSeveralFollowersAreToldUntilTheyStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t)
		feed := newTestFeed(t, src, nil)
		defer runInformer(t, feed.Informer())()
		first, stopFirst := feed.Follow()
		second, stopSecond := feed.Follow()
		defer stopSecond()
		src.progress()
		<-first
		<-second
		stopFirst()
		src.progress()
		<-second
		select {
		case <-first:
			t.Error("a follower that has stopped was told")
		default:
		}
	})
}

func TestWaitForReturnsWhenTheStoreHasReachedTheVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t)
		feed := newTestFeed(t, src, nil)
		defer runInformer(t, feed.Informer())()
		go func() {
			for range 5 {
				elapse(time.Second)
				src.progress()
			}
		}()
		start := time.Now()
		if err := feed.WaitFor(t.Context(), "103"); err != nil {
			t.Error(err)
		}
		if waited := time.Since(start); waited != 3*time.Second {
			t.Errorf("waited %v, want 3s", waited)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("too long"))
		defer cancel()
		err := feed.WaitFor(ctx, "200")
		if want := "wait for the cache of configmaps to get from version 105 to 200: too long"; err == nil || err.Error() != want {
			t.Errorf("got error %v, want %s", err, want)
		}
		if err := feed.WaitFor(t.Context(), ""); err == nil {
			t.Error("got no error for a version that can't be compared")
		}
	})
}

func TestLastHeardIsTheTimeOfTheLastEventOrBookmark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t)
		feed := newTestFeed(t, src, nil)
		if !feed.LastHeard().IsZero() {
			t.Error("a feed that never ran has heard something")
		}
		defer runInformer(t, feed.Informer())()
		elapse(time.Minute)
		src.progress()
		synctest.Wait()
		heard := time.Now()
		elapse(time.Second)
		if got := feed.LastHeard(); !got.Equal(heard) {
			t.Errorf("got %v, want %v", got, heard)
		}
	})
}

func TestWithoutAtomicFIFOAFeedIsRefused(t *testing.T) {
	featurestesting.SetFeatureDuringTest(t, features.AtomicFIFO, false)
	_, err := NewFeed(FeedConfig{Resource: configMapsV1, Object: &corev1.ConfigMap{}, ListerWatcher: newSource(t)})
	if err == nil || !strings.Contains(err.Error(), "remove KUBE_FEATURE_AtomicFIFO=false from the environment") {
		t.Errorf("got %v, want an error that says what to do", err)
	}
}

// unstreamable is a source that can't stream lists, as a fake clientset can't.
type unstreamable struct{ *source }

func (unstreamable) IsWatchListSemanticsUnSupported() bool { return true }

func TestASourceThatCannotStreamListsIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t)
		feed, err := NewFeed(FeedConfig{Resource: configMapsV1, Object: &corev1.ConfigMap{}, ListerWatcher: unstreamable{src}})
		if err != nil {
			t.Fatal(err)
		}
		defer runInformer(t, feed.Informer())()
		if got, want := src.asked(), []string{`LIST rv="" limit=0`, `WATCH rv="100" initial=false`}; !slices.Equal(got, want) {
			t.Errorf("the feed asked for %q, want %q", got, want)
		}
	})
}
