package freshness

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// patient is a feed with everything that keeps it healthy, in a synctest bubble.
type patient struct {
	source    *source
	live      *live
	feed      *Feed
	ledger    *Ledger[string]
	queue     *Queue[string]
	backlog   *Backlog[string]
	validator *Validator[string]
	metrics   *Metrics
	// reconnects counts the new connections asked for, ended holds what Run
	// returned.
	reconnects int
	ended      chan error
}

// newPatient starts everything and waits until the feed is synced and a few seconds old.
func newPatient(t *testing.T) *patient {
	t.Helper()
	p := &patient{source: newSource(t), metrics: NewMetrics(), ended: make(chan error, 1)}
	p.live = &live{source: p.source}
	p.feed = newTestFeed(t, p.source, p.metrics)
	p.ledger = NewLedger[string](LedgerConfig{Metrics: p.metrics})
	p.ledger.Track(configMaps, p.feed.Informer().GetStore())
	watermark := NewWatermark(p.metrics, p.feed.ForceRelist)
	if _, err := p.feed.Informer().AddEventHandler(watermark.Handler(cache.ResourceEventHandlerFuncs{})); err != nil {
		t.Fatal(err)
	}
	p.ledger.Guard(configMaps, watermark)
	p.queue = NewQueue(QueueConfig[string]{})
	p.backlog = NewBacklog(BacklogConfig[string]{Ledger: p.ledger, Queue: p.queue, Metrics: p.metrics})
	p.validator = NewValidator(ValidatorConfig[string]{
		Ledger:    p.ledger,
		Backlog:   p.backlog,
		Feeds:     []*Feed{p.feed},
		Live:      p.live,
		Reconnect: func() { p.reconnects++ },
		Metrics:   p.metrics,
	})
	p.source.put("a")
	stopInformer := runInformer(t, p.feed.Informer())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.backlog.Run(ctx, p.feed)
	}()
	go func() { p.ended <- p.validator.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		stopInformer()
		p.queue.ShutDown()
	})
	elapse(5 * time.Second)
	return p
}

// wrote parks the key "key" until the store has reached version.
func (p *patient) wrote(t *testing.T, version string) {
	t.Helper()
	entry, err := p.ledger.Begin("key", Intent{Verb: "update", Resource: configMaps, Namespace: "ns", Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	p.ledger.Settle(entry, version)
	if !p.backlog.Park("key") {
		t.Fatal("the key wasn't parked")
	}
}

// releasedAfter waits for the key and returns how long that took.
func (p *patient) releasedAfter(t *testing.T) time.Duration {
	t.Helper()
	start := time.Now()
	take(t, p.queue, 1)
	return time.Since(start)
}

// actions returns how often the validator did what.
func (p *patient) actions(t *testing.T) map[string]int {
	t.Helper()
	found := map[string]int{}
	// Not missed_release: the bubble's clock lets the look and the event that it looks for
	// fall on one moment, and then either may be first.
	for _, action := range []string{"nudge", "compare", "found_equal", "reconnect", "relist", "not_ready", "given_up", "healed", "doubts_resolved"} {
		if n := firings(t, p.metrics, GuardValidator, action); n > 0 {
			found[action] = n
		}
	}
	return found
}

func (p *patient) want(t *testing.T, want map[string]int) {
	t.Helper()
	if got := p.actions(t); !maps.Equal(got, want) {
		t.Errorf("the validator did %v, want %v", got, want)
	}
}

func TestAFrozenWatchIsHealedByANewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		p.source.freeze()
		p.wrote(t, p.source.put("a").ResourceVersion)
		if took := p.releasedAfter(t); took > 2*time.Second {
			t.Errorf("the key was released after %v, want at most 2s", took)
		}
		p.want(t, map[string]int{"nudge": 1})
	})
}

func TestAnIdleStoreCatchesUpByABookmarkThatIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		p.wrote(t, p.source.advance()) // no event of this resource
		if took := p.releasedAfter(t); took > 2*time.Second {
			t.Errorf("the key was released after %v, want at most 2s", took)
		}
		p.want(t, map[string]int{"nudge": 1})
	})
}

func TestAStoreThatIsFoundEqualToTheAPIServerLacksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		p.source.mu.Lock()
		p.source.mute = true
		p.source.mu.Unlock()
		p.wrote(t, p.source.advance()) // of an object that the selector leaves out
		if took := p.releasedAfter(t); took > 7*time.Second {
			t.Errorf("the key was released after %v, want at most 7s", took)
		}
		p.want(t, map[string]int{"nudge": 1, "compare": 1, "found_equal": 1})
		if got := p.ledger.Check("key").Cause; got != Fresh {
			t.Errorf("got %q, want fresh", got)
		}
	})
}

func TestAWatchThatNoNewOneMendsIsHealedByAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		p.source.hold() // an API server whose watches lag, old and new
		p.wrote(t, p.source.put("a").ResourceVersion)
		if took := p.releasedAfter(t); took < 15*time.Second || took > 20*time.Second {
			t.Errorf("the key was released after %v, want between 15s and 20s", took)
		}
		elapse(2 * time.Second)
		p.want(t, map[string]int{"nudge": 1, "compare": 1, "reconnect": 1, "relist": 1, "healed": 1})
		if p.reconnects != 1 {
			t.Errorf("%d new connections were asked for, want 1", p.reconnects)
		}
		if err := p.validator.Healthy(); err != nil {
			t.Errorf("got %v, want healthy", err)
		}
	})
}

func TestWhatCannotBeHealedIsNotReadyAndEndsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		p.source.hold()
		p.wrote(t, p.source.put("a").ResourceVersion)
		p.source.mu.Lock()
		p.source.fail = func(string) error { return errors.New("no more lists and watches") }
		p.source.mu.Unlock()

		elapse(55 * time.Second)
		if err := p.validator.Healthy(); err != nil {
			t.Errorf("got %v after 55s, want healthy still", err)
		}
		elapse(10 * time.Second)
		if err := p.validator.Healthy(); err == nil || !strings.Contains(err.Error(), "the cache of configmaps lacks since") {
			t.Errorf("got %v after 65s, want an error that names the cache", err)
		}
		start := time.Now()
		err := <-p.ended
		if took := time.Since(start); err == nil || took < 54*time.Second || took > 58*time.Second {
			t.Errorf("Run returned %v after another %v, want an error after 55s to 57s", err, took)
		}
		if got := p.actions(t); got["not_ready"] != 1 || got["given_up"] != 1 || got["relist"] < 2 {
			t.Errorf("the validator did %v, want not_ready and given_up once and several relists", got)
		}
	})
}

func TestWhileTheAPIServerIsDownTheWatchIsNotBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		p.source.hold()
		p.wrote(t, p.source.put("a").ResourceVersion)
		p.source.mu.Lock()
		p.live.fail = errors.New("connection refused")
		p.source.mu.Unlock()
		elapse(10 * time.Minute)
		p.want(t, map[string]int{})
		if err := p.validator.Healthy(); err != nil {
			t.Errorf("got %v, want healthy", err)
		}
	})
}

func TestAnIdleFeedIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		for range 60 {
			p.source.advance()
			elapse(30 * time.Second)
			p.source.progress() // the API server's bookmark
			elapse(30 * time.Second)
		}
		p.want(t, map[string]int{})
	})
}

func TestAFrozenWatchIsFoundEvenIfNoKeyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		p.source.freeze()
		version := p.source.put("b").ResourceVersion
		start := time.Now()
		if err := p.feed.WaitFor(t.Context(), version); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 150*time.Second {
			t.Errorf("the event arrived after %v, want at most 2m30s: a probe and a bookmark's time", took)
		}
	})
}

func TestAWriteInDoubtThatNeverHappenedIsSettledOnceItCannotLand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		entry, err := p.ledger.Begin("key", Intent{Verb: "create", Resource: configMaps, Namespace: "ns", Name: "b"})
		if err != nil {
			t.Fatal(err)
		}
		p.ledger.Doubt(entry)
		p.backlog.Park("key")
		if took := p.releasedAfter(t); took < 6*time.Second || took > 8*time.Second {
			t.Errorf("the key was released after %v, want between 6s and 8s", took)
		}
		p.want(t, map[string]int{"doubts_resolved": 1})
	})
}

func TestAWriteInDoubtThatDidHappenIsSettledByItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		entry, err := p.ledger.Begin("key", Intent{Verb: "create", Resource: configMaps, Namespace: "ns", Name: "b"})
		if err != nil {
			t.Fatal(err)
		}
		p.ledger.Doubt(entry)
		p.backlog.Park("key")
		go func() {
			elapse(100 * time.Millisecond)
			p.source.put("b")
		}()
		if took := p.releasedAfter(t); took != 100*time.Millisecond {
			t.Errorf("the key was released after %v, want 100ms: the moment of the event", took)
		}
	})
}

func TestAfterARestoreOfTheAPIServerKeysAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		for range 50 {
			p.source.put("a")
		}
		elapse(time.Second)
		if got := p.ledger.Check("key").Cause; got != Fresh {
			t.Fatalf("got %q, want fresh", got)
		}
		p.source.mu.Lock()
		p.source.version = 120 // from a backup
		p.source.objects["a"].ResourceVersion = "110"
		p.source.history = nil
		p.source.mu.Unlock()
		p.feed.ForceRelist() // what client-go does on its own when its watch breaks
		elapse(2 * time.Second)
		if p.backlog.Park("key") {
			p.releasedAfter(t)
		}
		if got := firings(t, p.metrics, GuardLedger, "restored_server_noticed"); got != 1 {
			t.Errorf("the restore was noticed %d times, want once", got)
		}
		if got := p.ledger.Check("key").Cause; got != Fresh {
			t.Errorf("got %q, want fresh", got)
		}
	})
}

// Time travel: an API server that lags answers with what it had long ago.
func TestAStoreThatWentBackIsFilledAnewAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		old := p.source.bookmark(nil)
		for range 50 {
			p.source.put("a")
		}
		elapse(5 * time.Second)
		if got := p.ledger.Check("key").Cause; got != Fresh {
			t.Fatalf("got %q, want fresh", got)
		}
		p.source.inject(watch.Event{Type: watch.Bookmark, Object: old})
		synctest.Wait()
		if !p.backlog.Park("key") {
			t.Fatal("the key wasn't parked, although the cache is older than it was")
		}
		if took := p.releasedAfter(t); took > 5*time.Second {
			t.Errorf("the key was released after %v, want at most 5s", took)
		}
		if p.reconnects != 1 {
			t.Errorf("%d new connections were asked for, want 1", p.reconnects)
		}
		p.want(t, map[string]int{"relist": 1})
		if got, want := p.feed.Version(), "151"; got != want {
			t.Errorf("the store is at version %s, want %s", got, want)
		}
	})
}

func TestAReleaseThatWasMissedIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStall(t)
		validator := NewValidator(ValidatorConfig[string]{Ledger: s.Ledger, Backlog: s.Backlog, Live: &live{}, Metrics: s.metrics})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- validator.Run(ctx) }()
		s.wrote(t, "key", "105")
		s.Park("key")
		s.configMaps.Bookmark("105") // and no signal
		if got := take(t, s.queue, 1); got[0] != "key" {
			t.Errorf("got %q, want the key", got)
		}
		synctest.Wait()
		if got := firings(t, s.metrics, GuardValidator, "missed_release"); got != 1 {
			t.Errorf("counted %d, want 1", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v when its context ended, want nil", err)
		}
		s.queue.ShutDown()
	})
}
