package freshness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// stall is a backlog over the ledger of a book.
type stall struct {
	*book
	*Backlog[string]
	queue *Queue[string]
}

func newStall(t *testing.T) *stall {
	t.Helper()
	s := &stall{book: newBook(), queue: NewQueue(QueueConfig[string]{})}
	t.Cleanup(s.queue.ShutDown)
	s.Backlog = NewBacklog(BacklogConfig[string]{Ledger: s.Ledger, Queue: s.queue, Metrics: s.metrics})
	return s
}

// wrote makes key wait for the ConfigMaps to reach version.
func (s *stall) wrote(t *testing.T, key, version string) {
	t.Helper()
	s.Settle(s.begin(t, key, Intent{Verb: "create", Name: "a"}), version)
}

// queued takes all keys off the queue.
func (s *stall) queued(t *testing.T) []string {
	t.Helper()
	keys := take(t, s.queue, s.queue.Len())
	slices.Sort(keys)
	return keys
}

func TestAStaleKeyIsParkedAndReleasedByTheVersionThatItWaitsFor(t *testing.T) {
	s := newStall(t)
	reconciled := 0
	reconcile := Chain(func(context.Context, string) (Result, error) {
		reconciled++
		return Result{}, nil
	}, s.Middleware)
	s.wrote(t, "key", "105")

	if result, err := reconcile(t.Context(), "key"); err != nil || !result.Parked || reconciled != 0 {
		t.Fatalf("got %+v, %v and %d reconciles, want the key parked", result, err, reconciled)
	}
	s.configMaps.Bookmark("104")
	s.Progress(configMaps)
	if got := s.queued(t); len(got) != 0 {
		t.Errorf("got %q released at version 104, want nothing", got)
	}
	s.configMaps.Bookmark("105")
	s.Progress(configMaps)
	if got := s.queued(t); !slices.Equal(got, []string{"key"}) {
		t.Errorf("got %q released at version 105, want the key", got)
	}
	if result, err := reconcile(t.Context(), "key"); err != nil || result.Parked || reconciled != 1 {
		t.Errorf("got %+v, %v and %d reconciles, want one", result, err, reconciled)
	}
	if got := s.Parked(); len(got) != 0 {
		t.Errorf("got %v parked, want nothing", got)
	}
}

func TestKeysAreReleasedInTheOrderOfTheVersionsThatTheyWaitFor(t *testing.T) {
	s := newStall(t)
	for _, version := range []string{"105", "99999", "103", "1000"} {
		s.wrote(t, "key-"+version, version)
		if !s.Park("key-" + version) {
			t.Fatalf("the key that waits for %s wasn't parked", version)
		}
	}
	for _, step := range []struct {
		version string
		want    []string
	}{
		{"102", nil},
		{"104", []string{"key-103"}},
		{"2000", []string{"key-1000", "key-105"}},
		{"100000", []string{"key-99999"}},
	} {
		s.configMaps.Bookmark(step.version)
		s.Progress(configMaps)
		if got := s.queued(t); !slices.Equal(got, step.want) {
			t.Errorf("got %q released at version %s, want %q", got, step.version, step.want)
		}
	}
}

func TestAReleasedKeyComesBeforeRoutineWorkAndItsFailuresAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStall(t)
		for range 5 {
			s.queue.AddRateLimited("key")
			take(t, s.queue, 1)
		}
		s.wrote(t, "key", "105")
		s.Park("key")
		s.queue.Add("routine")
		s.configMaps.Bookmark("105")
		s.Progress(configMaps)
		if got, want := take(t, s.queue, 2), []string{"key", "routine"}; !slices.Equal(got, want) {
			t.Errorf("got order %q, want %q", got, want)
		}
		if got := s.queue.NumRequeues("key"); got != 0 {
			t.Errorf("the key has %d failures, want none: being stale is no failure", got)
		}
		s.queue.ShutDown()
	})
}

func TestAKeyThatWaitsForSeveralThingsIsReleasedByTheLast(t *testing.T) {
	s := newStall(t)
	s.wrote(t, "key", "105")
	entry, err := s.Begin("key", Intent{Verb: "create", Resource: secrets, Namespace: "ns", Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	s.Settle(entry, "300")
	s.Park("key")
	s.configMaps.Bookmark("105")
	s.Progress(configMaps)
	if got := s.queued(t); len(got) != 0 {
		t.Errorf("got %q released by the first of two stores", got)
	}
	s.secrets.Bookmark("300")
	s.Progress(secrets)
	if got := s.queued(t); !slices.Equal(got, []string{"key"}) {
		t.Errorf("got %q released by the second of two stores, want the key", got)
	}
}

func TestAKeyWithAWriteInFlightIsReleasedByItsAnswer(t *testing.T) {
	s := newStall(t)
	entry := s.begin(t, "key", Intent{Verb: "create", Name: "a"})
	s.Park("key")
	s.Refuse(entry)
	if got := s.queued(t); !slices.Equal(got, []string{"key"}) {
		t.Errorf("got %q released by the answer, want the key", got)
	}
}

func TestAKeyInDoubtIsReleasedByTheEventThatShowsTheWrite(t *testing.T) {
	s := newStall(t)
	s.Doubt(s.begin(t, "key", Intent{Verb: "create", Name: "a"}))
	s.Park("key")
	s.configMaps.Bookmark("110")
	s.Progress(configMaps)
	if got := s.queued(t); len(got) != 0 {
		t.Errorf("got %q released by an event that says nothing of the write", got)
	}
	s.cached(t, object("a", "u1", "111"))
	s.Progress(configMaps)
	if got := s.queued(t); !slices.Equal(got, []string{"key"}) {
		t.Errorf("got %q released by the write's own event, want the key", got)
	}
}

func TestAStoreThatWentBackReleasesItsKeysWhenItHasCaughtUp(t *testing.T) {
	s := newStall(t)
	s.configMaps.Bookmark("200")
	s.want(t, "key", Fresh)
	s.configMaps.Bookmark("150")
	if !s.Park("key") {
		t.Fatal("a key whose store went back wasn't parked")
	}
	s.configMaps.Bookmark("199")
	s.Progress(configMaps)
	if got := s.queued(t); len(got) != 0 {
		t.Errorf("got %q released while the store was still behind itself", got)
	}
	s.configMaps.Bookmark("201")
	s.Progress(configMaps)
	if got := s.queued(t); !slices.Equal(got, []string{"key"}) {
		t.Errorf("got %q released, want the key", got)
	}
}

func TestAKeyThatIsFreshByNowIsNotParked(t *testing.T) {
	s := newStall(t)
	s.wrote(t, "key", "105")
	s.Park("key")
	s.configMaps.Bookmark("105")
	if s.Park("key") {
		t.Error("a fresh key was parked")
	}
	s.Progress(configMaps)
	if got := s.queued(t); len(got) != 0 {
		t.Errorf("got %q released, although the worker has the key", got)
	}
}

func TestParkingAKeyAgainDoesNotMakeItWaitTwice(t *testing.T) {
	s := newStall(t)
	s.wrote(t, "key", "105")
	for range 100 {
		s.Park("key")
		s.RecheckAll()
	}
	if got := s.heapOf(s.store(configMaps)).Len(); got != 1 {
		t.Errorf("the key is in the heap %d times, want once", got)
	}
	if got := firings(t, s.metrics, GuardBacklog, "parked_behind"); got != 1 {
		t.Errorf("counted as parked %d times, want once", got)
	}
}

func TestRecheckAllFindsWhatNoSignalTold(t *testing.T) {
	s := newStall(t)
	for i := range 3 {
		s.wrote(t, fmt.Sprint("key-", i), fmt.Sprint(104+i))
		s.Park(fmt.Sprint("key-", i))
	}
	s.configMaps.Bookmark("105") // and nobody calls Progress
	if got := s.RecheckAll(); got != 2 {
		t.Errorf("%d keys were released, want 2", got)
	}
	if got, want := s.queued(t), []string{"key-0", "key-1"}; !slices.Equal(got, want) {
		t.Errorf("got %q released, want %q", got, want)
	}
}

func TestTheMiddlewarePutsTheKeyIntoTheContext(t *testing.T) {
	s := newStall(t)
	var got string
	failure := errors.New("refused")
	reconcile := s.Middleware(func(ctx context.Context, _ string) (Result, error) {
		got, _ = KeyFrom[string](ctx)
		return Result{RequeueAfter: time.Second}, failure
	})
	result, err := reconcile(t.Context(), "key")
	if got != "key" || !errors.Is(err, failure) || result.RequeueAfter != time.Second {
		t.Errorf("got key %q, %+v, %v", got, result, err)
	}
}

// A whole informer: the watch's own events, bookmarks among them, release the keys.
func TestAFeedReleasesKeysByEventsAndByBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t)
		feed := newTestFeed(t, src, nil)
		ledger := NewLedger[string](LedgerConfig{})
		ledger.Track(configMaps, feed.Informer().GetStore())
		queue := NewQueue(QueueConfig[string]{})
		backlog := NewBacklog(BacklogConfig[string]{Ledger: ledger, Queue: queue})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			backlog.Run(ctx, feed)
		}()
		defer func() {
			cancel()
			<-done
			queue.ShutDown()
		}()
		defer runInformer(t, feed.Informer())()

		for _, change := range []func() string{
			func() string { return src.put("a").ResourceVersion },
			src.progress,
			func() string { return src.remove("a") },
		} {
			src.hold()
			version := change()
			entry, err := ledger.Begin("key", Intent{Verb: "update", Resource: configMaps, Namespace: "ns", Name: "a"})
			if err != nil {
				t.Fatal(err)
			}
			ledger.Settle(entry, version)
			if !backlog.Park("key") {
				t.Fatalf("the key wasn't parked at version %s, although its event is held", version)
			}
			start := time.Now()
			elapse(time.Minute)
			synctest.Wait()
			if got := queue.Len(); got != 0 {
				t.Fatalf("the key was released before its event")
			}
			src.release()
			if got := take(t, queue, 1); got[0] != "key" {
				t.Errorf("got %q released, want the key", got)
			}
			if waited := time.Since(start); waited != time.Minute {
				t.Errorf("the key was released %v after it was parked, want 1m0s: the moment of the event", waited)
			}
		}
	})
}

// BenchmarkRelease is the time from the change of a store to the return of a key that
// waits for it to the queue, while 10,000 others wait.
func BenchmarkRelease(b *testing.B) {
	book := newBook()
	queue := NewQueue(QueueConfig[string]{})
	defer queue.ShutDown()
	backlog := NewBacklog(BacklogConfig[string]{Ledger: book.Ledger, Queue: queue})
	wait := func(key string, version int) {
		entry, err := book.Begin(key, Intent{Verb: "create", Resource: configMaps, Namespace: "ns", Name: key})
		if err != nil {
			b.Fatal(err)
		}
		book.Settle(entry, fmt.Sprint(version))
		if !backlog.Park(key) {
			b.Fatal("not parked")
		}
	}
	for i := range 10_000 {
		wait(fmt.Sprint("key-", i), 1_000_000_000+i)
	}
	b.ReportAllocs()
	for version := 101; b.Loop(); version++ {
		wait("key", version)
		book.configMaps.Bookmark(fmt.Sprint(version))
		backlog.Progress(configMaps)
		if key, _ := queue.Get(); key != "key" {
			b.Fatal(key)
		}
		queue.Done("key")
	}
}
