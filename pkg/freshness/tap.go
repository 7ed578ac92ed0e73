package freshness

// Tap: what stands between a watch and the reflector that reads it. It notes signs of
// life, and it can end the watch from outside, which client-go can't: a reflector waits
// for its watch as long as that is open.

import (
	"context"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// command is what a feed can tell its current watch.
type command int

const (
	watchAgain command = iota
	listAgain
)

// tap stands between a watch and the reflector that reads it.
type tap struct {
	feed     *Feed
	inner    watch.Interface
	ctx      context.Context
	cancel   context.CancelFunc
	events   chan watch.Event
	commands chan command
	stopped  chan struct{}
	once     sync.Once
}

// ResultChan implements watch.Interface.
func (t *tap) ResultChan() <-chan watch.Event { return t.events }

// Stop implements watch.Interface.
func (t *tap) Stop() { t.once.Do(func() { close(t.stopped) }) }

// run hands events over until the watch ends, is stopped, is too old, or is told to.
func (t *tap) run() {
	defer t.end()
	for {
		select {
		case event, ok := <-t.inner.ResultChan():
			if !ok {
				return
			}
			if event.Type != watch.Error {
				t.feed.heard()
			}
			if !t.handOver(event) {
				return
			}
		case what := <-t.commands:
			t.obey(what)
			return
		case <-t.ctx.Done():
			t.overdue()
			return
		case <-t.stopped:
			return
		}
	}
}

// handOver gives an event to the reflector. It returns false if the tap is to end.
func (t *tap) handOver(event watch.Event) bool {
	select {
	case t.events <- event:
		return true
	case what := <-t.commands:
		t.obey(what)
	case <-t.ctx.Done():
		t.overdue()
	case <-t.stopped:
	}
	return false
}

// obey makes the reflector do what was ordered. The end of the watch, which follows,
// is all that it takes to make it watch again.
func (t *tap) obey(what command) {
	if what != listAgain {
		return
	}
	expired := watch.Event{Type: watch.Error, Object: &metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusGone,
		Reason:  metav1.StatusReasonExpired,
		Message: "told to list again",
	}}
	select {
	case t.events <- expired:
	case <-t.stopped:
	case <-t.ctx.Done():
	}
}

// overdue counts a watch that the API server should have ended.
func (t *tap) overdue() {
	if t.ctx.Err() == context.DeadlineExceeded {
		t.feed.config.Metrics.fired(GuardFeed, "overdue_watch_ended")
	}
}

func (t *tap) end() {
	t.inner.Stop()
	t.cancel()
	t.feed.mu.Lock()
	if t.feed.current == t {
		t.feed.current = nil
	}
	t.feed.mu.Unlock()
	close(t.events)
}
