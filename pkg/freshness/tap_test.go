package freshness

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

var (
	errBusy     = apierrors.NewTooManyRequests("busy", 0)
	errInternal = apierrors.NewInternalError(errors.New("etcd is unwell"))
)

// errorEvent is how an API server ends a watch with an error.
func errorEvent(err *apierrors.StatusError) watch.Event {
	return watch.Event{Type: watch.Error, Object: &err.ErrStatus}
}

// end ends the watches that are open, in an orderly way.
func (s *source) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		w.close()
	}
}

// recovery is how long an informer takes to see a change after the API server has refused
// everything for a while.
func recovery(t *testing.T, src *source, informer cache.SharedIndexInformer) time.Duration {
	t.Helper()
	defer runInformer(t, informer)()
	elapse(5 * time.Second)
	src.failWith(errBusy)
	src.end()
	elapse(2 * time.Minute)
	want := src.put("a").ResourceVersion
	src.failWith(nil)
	well := time.Now()
	for informer.GetStore().LastStoreSyncResourceVersion() != want {
		elapse(10 * time.Millisecond)
		if time.Since(well) > 5*time.Minute {
			t.Fatal("the informer has never recovered")
		}
	}
	return time.Since(well)
}

func TestAfterTwoBadMinutesTheCacheIsFreshWithinSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t)
		alone := recovery(t, src, cache.NewSharedIndexInformer(src, &corev1.ConfigMap{}, 0, nil))
		src = newSource(t)
		fed := recovery(t, src, newTestFeed(t, src, nil).Informer())
		t.Logf("client-go alone needed %v, a feed %v", alone, fed)
		if fed > longestPause {
			t.Errorf("the cache was old for %v after the API server was well, want %v at most", fed, longestPause)
		}
	})
}

func TestABrokenWatchGoesOnFromWhereItWas(t *testing.T) {
	for name, breaks := range map[string]func(*source){
		"it ends":               func(s *source) { s.end() },
		"the server is busy":    func(s *source) { s.inject(errorEvent(errBusy)) },
		"the server is unwell":  func(s *source) { s.inject(errorEvent(errInternal)) },
		"the next one is too":   func(s *source) { s.failWith(errInternal); s.end() },
		"the network is broken": func(s *source) { s.failWith(errors.New("connection refused")); s.end() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newSource(t)
				feed := newTestFeed(t, src, nil)
				defer runInformer(t, feed.Informer())()
				src.put("a")
				synctest.Wait()
				src.forget()

				breaks(src)
				synctest.Wait()
				src.failWith(nil)
				src.put("b")
				elapse(200 * time.Millisecond)
				synctest.Wait()
				asked := src.asked()
				if got, want := asked[len(asked)-1], `WATCH rv="101" initial=false`; got != want {
					t.Errorf("the feed asked for %s, want %s", got, want)
				}
				if got, want := feed.Version(), "102"; got != want {
					t.Errorf("got version %q 200 ms later, want %q", got, want)
				}
			})
		})
	}
}

func TestAWatchThatEndsAtOnceAgainAndAgainIsAskedForLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t)
		defer runInformer(t, newTestFeed(t, src, nil).Informer())()
		src.forget()
		src.end()
		for range 600 { // a minute
			elapse(100 * time.Millisecond)
			src.end()
		}
		asked := src.asked()
		if i := slices.IndexFunc(asked, func(request string) bool { return request != `WATCH rv="100" initial=false` }); i >= 0 {
			t.Errorf("the feed asked for %s", asked[i])
		}
		// 5 s apart once the pauses have grown, and in the first seconds seven.
		if n := len(asked); n < 12 || n > 45 {
			t.Errorf("the feed asked %d times in a minute, want 12 to 45", n)
		}
	})
}

func TestAWatchThatIsRefusedForGoodIsReplacedByAList(t *testing.T) {
	for name, refuse := range map[string]func(*source){
		"too old at once": func(s *source) { s.inject(errorEvent(apierrors.NewResourceExpired("too old"))) },
		"unwell three times": func(s *source) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.fail = func(request string) error {
				if request == `WATCH rv="101" initial=false` {
					return errInternal
				}
				return nil
			}
			for w := range s.watches {
				w.close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newSource(t)
				feed := newTestFeed(t, src, nil)
				defer runInformer(t, feed.Informer())()
				src.put("a")
				synctest.Wait()
				src.forget()

				refuse(src)
				elapse(4 * time.Second)
				asked := src.asked()
				if got, want := asked[len(asked)-1], `WATCH rv="" initial=true`; got != want {
					t.Errorf("the feed asked for %s, want %s", got, want)
				}
				if n := len(asked); n > 1+listAfter {
					t.Errorf("the feed made %d requests, want %d at most", n, 1+listAfter)
				}
			})
		})
	}
}

// An informer that was handed half of a list would take its objects for all there are.
func TestAStreamedListIsHandedOverWhenItIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t)
		src.put("kept")
		src.put("gone")
		cut := &cutStream{source: src}
		feed, err := NewFeed(FeedConfig{Resource: configMapsV1, Object: &corev1.ConfigMap{}, ListerWatcher: cut})
		if err != nil {
			t.Fatal(err)
		}
		defer runInformer(t, feed.Informer())()
		if got, want := feed.Informer().GetStore().ListKeys(), []string{"ns/kept"}; !slices.Equal(got, want) {
			t.Errorf("the store has %v, want %v", got, want)
		}
		if got, want := src.asked(), []string{`WATCH rv="" initial=true`, `WATCH rv="" initial=true`}; !slices.Equal(got, want) {
			t.Errorf("the feed asked for %q, want %q", got, want)
		}
	})
}

// A proxy that drops bookmarks also drops the one that ends a streamed list.
func TestAStreamedListWithoutAnEndIsLeftForAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t)
		src.put("a")
		metrics := NewMetrics()
		feed, err := NewFeed(FeedConfig{Resource: configMapsV1, Object: &corev1.ConfigMap{}, ListerWatcher: &endless{source: src}, Metrics: metrics})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		defer runInformer(t, feed.Informer())()
		if took := time.Since(start); took > 2*stallAfter {
			t.Errorf("the informer was synced after %v, want %v at most", took, 2*stallAfter)
		}
		if got, want := src.asked(), []string{`WATCH rv="" initial=true`, `LIST rv="" limit=0`, `WATCH rv="101" initial=false`}; !slices.Equal(got, want) {
			t.Errorf("the feed asked for %q, want %q", got, want)
		}
		if got := firings(t, metrics, GuardFeed, "stalled_list_left"); got != 1 {
			t.Errorf("got %d firings, want 1", got)
		}
	})
}

func TestAListThatFailsIsTriedAgainUntilThereIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t)
		src.failWith(&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}})
		feed, err := NewFeed(FeedConfig{Resource: configMapsV1, Object: &corev1.ConfigMap{}, ListerWatcher: unstreamable{src}})
		if err != nil {
			t.Fatal(err)
		}
		granted := time.Minute
		time.AfterFunc(granted, func() { src.failWith(nil) })
		start := time.Now()
		defer runInformer(t, feed.Informer())()
		if took := time.Since(start); took > granted+longestPause {
			t.Errorf("the informer was synced %v after it was allowed to list, want %v at most", took-granted, longestPause)
		}
		if n := len(src.asked()); n > 30 {
			t.Errorf("the feed asked %d times in a minute, want 30 at most", n)
		}
	})
}

func TestABounceAsksAtOnceWhereTheNextTryIsNotDue(t *testing.T) {
	for name, make := range map[string]func(*source) cache.ListerWatcher{
		"of a list":  func(s *source) cache.ListerWatcher { return unstreamable{s} },
		"of a watch": func(s *source) cache.ListerWatcher { return s },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newSource(t)
				feed, err := NewFeed(FeedConfig{Resource: configMapsV1, Object: &corev1.ConfigMap{}, ListerWatcher: make(src)})
				if err != nil {
					t.Fatal(err)
				}
				src.failWith(errBusy)
				time.AfterFunc(time.Minute, func() {
					asked := len(src.asked())
					feed.Bounce()
					synctest.Wait()
					if got := len(src.asked()); got != asked+1 {
						t.Errorf("%d requests came right after the bounce, want 1", got-asked)
					}
					src.failWith(nil)
					feed.Bounce()
				})
				start := time.Now()
				defer runInformer(t, feed.Informer())()
				if took := time.Since(start); took != time.Minute {
					t.Errorf("the informer was synced after %v, want at the bounce, after a minute", took)
				}
			})
		})
	}
}
