package freshness

// Tap: the watch that a reflector reads, over as many watches at the API server as it
// takes.
//
// client-go's reflector waits after each failure twice as long as after the last, up to a
// minute, forgets that only after two minutes without one, and can't be woken meanwhile:
// after an API server's bad minute the cache stays old for another. So the reflector isn't
// told of failures. It is handed a streamed list when that is complete; when a watch
// breaks, the tap goes on with another from where it was; and only when nothing but a new
// list can help does the reflector's watch end, with "expired".

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

const (
	// stallAfter is how long a streamed list may be silent. A proxy that drops the
	// bookmark at its end makes it so for ever.
	stallAfter = 5 * time.Second
	// listAfter is after how many refusals in a row of a watch, each for a reason that
	// time alone doesn't mend, a list is tried.
	listAfter = 3
)

// command is what a feed can tell its current watch.
type command int

const (
	watchAgain command = iota
	listAgain
)

// Why a watch at the API server has ended.
var (
	errEnded      = errors.New("the watch has ended")
	errOverdue    = errors.New("the API server should have ended the watch")
	errStalled    = errors.New("the streamed list is silent")
	errWatchAgain = errors.New("told to watch again")
	errListAgain  = errors.New("told to list again")
)

// tap is what a reflector gets for a watch. One goroutine uses it at a time.
type tap struct {
	feed    *Feed
	options metav1.ListOptions
	// ctx ends when the reflector has had enough.
	ctx    context.Context
	cancel context.CancelFunc
	events chan watch.Event
	// commands are what the feed is told from outside.
	commands chan command
	// initial are the events of a streamed list.
	initial []watch.Event
	// version is that of the last event that the reflector has taken.
	version string
	// pause and refused count failures since the last event.
	pause   pause
	refused int

	// inner is the present watch at the API server, close what ends it.
	inner    watch.Interface
	innerCtx context.Context
	close    func()
	opened   time.Time
}

// newTap returns a tap that isn't running yet.
func newTap(ctx context.Context, feed *Feed, options metav1.ListOptions) *tap {
	t := &tap{
		feed:     feed,
		options:  options,
		events:   make(chan watch.Event),
		commands: make(chan command, 1),
		version:  options.ResourceVersion,
		close:    func() {},
	}
	t.ctx, t.cancel = context.WithCancel(ctx)
	return t
}

// ResultChan implements watch.Interface.
func (t *tap) ResultChan() <-chan watch.Event { return t.events }

// Stop implements watch.Interface.
func (t *tap) Stop() { t.cancel() }

// start makes the first request and returns when there is something to hand over. It
// returns an error where the reflector knows what to do about it: to list, if the API
// server can't stream lists; to list anew, if the version to watch from is too old.
func (t *tap) start() error {
	request, hopeless := t.open, t.needsList
	if ptr.Deref(t.options.SendInitialEvents, false) {
		request, hopeless = t.stream, func(err error) bool { return !isTransient(err) }
	}
	for {
		err := request()
		switch {
		case err == nil:
			return nil
		case t.ctx.Err() != nil:
			return t.ctx.Err()
		case hopeless(err):
			return err
		}
		// Whatever it is told meanwhile, another try is what it takes.
		_ = t.wait(err)
	}
}

// run hands over the list, if there is one, and whatever comes after it.
func (t *tap) run() {
	defer t.end()
	for _, event := range t.initial {
		select {
		case t.events <- event:
		case <-t.ctx.Done():
			return
		}
	}
	t.initial = nil
	for {
		err := t.pass()
		t.close()
		for err != nil {
			if t.ctx.Err() != nil {
				return
			}
			if t.needsList(err) {
				t.expire()
				return
			}
			if err = t.wait(err); err == nil {
				err = t.open()
			}
		}
	}
}

// needsList tells whether another watch would do no better.
func (t *tap) needsList(err error) bool {
	return errors.Is(err, errListAgain) || t.refused >= listAfter || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// open makes a request for a watch from where the last one was.
func (t *tap) open() error {
	options := t.options
	options.ResourceVersion = t.version
	options.SendInitialEvents, options.ResourceVersionMatch = nil, ""
	return t.request(options, t.feed.timeout())
}

func (t *tap) request(options metav1.ListOptions, timeout time.Duration) error {
	options.TimeoutSeconds = ptr.To(int64(timeout.Seconds()))
	ctx, cancel := context.WithTimeout(t.ctx, timeout+watchGrace)
	inner, err := t.feed.source.WatchWithContext(ctx, options)
	if err != nil {
		cancel()
		t.note(err)
		return err
	}
	t.inner, t.innerCtx, t.opened = inner, ctx, t.feed.config.Clock.Now()
	t.close = sync.OnceFunc(func() {
		inner.Stop()
		cancel()
	})
	return nil
}

// stream makes a request for a list that is streamed, and reads all of it.
func (t *tap) stream() error {
	t.initial = nil
	options := t.options
	// Without a version it is a quorum read; with the last known one it would be "not
	// older than".
	options.ResourceVersion = ""
	if err := t.request(options, max(t.feed.config.WatchTimeout, listTimeout)); err != nil {
		return err
	}
	for {
		stalled := time.NewTimer(stallAfter)
		event, err := t.receive(stalled.C)
		stalled.Stop()
		if err != nil {
			if errors.Is(err, errStalled) {
				t.feed.config.Metrics.fired(GuardFeed, "stalled_list_left")
			}
			t.close()
			return err
		}
		t.initial = append(t.initial, event)
		if isEndOfList(event) {
			t.version = versionOf(event)
			return nil
		}
	}
}

// isEndOfList tells whether an event is the bookmark that ends a streamed list.
func isEndOfList(event watch.Event) bool {
	if event.Type != watch.Bookmark {
		return false
	}
	object, err := meta.Accessor(event.Object)
	return err == nil && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

func versionOf(event watch.Event) string {
	object, err := meta.Accessor(event.Object)
	if err != nil {
		return ""
	}
	return object.GetResourceVersion()
}

// receive returns the next event of the watch, or why there is none.
func (t *tap) receive(stalled <-chan time.Time) (watch.Event, error) {
	select {
	case event, ok := <-t.inner.ResultChan():
		var err error
		switch {
		case t.innerCtx.Err() != nil:
			err = t.overdue()
		case !ok:
			err = errEnded
		case event.Type == watch.Error:
			err = apierrors.FromObject(event.Object)
		default:
			t.feed.heard()
			t.pause.reset()
			t.refused = 0
			return event, nil
		}
		t.note(err)
		return event, err
	case what := <-t.commands:
		return watch.Event{}, what.err()
	case <-stalled:
		return watch.Event{}, errStalled
	case <-t.innerCtx.Done():
		return watch.Event{}, t.overdue()
	}
}

// note counts refusals that time alone doesn't mend.
func (t *tap) note(err error) {
	if !isTransient(err) {
		t.refused++
	}
}

// err is what a watch ends with that is told so.
func (c command) err() error {
	if c == listAgain {
		return errListAgain
	}
	return errWatchAgain
}

// pass hands over events until the watch has ended, and returns why it has.
func (t *tap) pass() error {
	for {
		event, err := t.receive(nil)
		if err != nil {
			return err
		}
		select {
		case t.events <- event:
			if version := versionOf(event); version != "" {
				t.version = version
			}
		case what := <-t.commands:
			return what.err()
		case <-t.innerCtx.Done():
			return t.overdue()
		}
	}
}

// wait waits until the next try is due, or the feed is told something. It returns an error
// if that is to list.
func (t *tap) wait(failed error) error {
	ended := errors.Is(failed, errEnded) || errors.Is(failed, errOverdue)
	switch {
	case errors.Is(failed, errWatchAgain):
		return nil
	case ended && t.feed.config.Clock.Since(t.opened) >= time.Second:
		t.pause.reset() // it has lasted, so nothing is wrong
		return nil
	}
	due := t.feed.backOff(t.ctx, "watch", &t.pause, failed)
	defer due.Stop()
	select {
	case <-due.C:
	case what := <-t.commands:
		if what == listAgain {
			return errListAgain
		}
	case <-t.ctx.Done():
	}
	return nil
}

// expire makes the reflector list anew.
func (t *tap) expire() {
	expired := watch.Event{Type: watch.Error, Object: &metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusGone,
		Reason:  metav1.StatusReasonExpired,
		Message: "a new list is needed",
	}}
	select {
	case t.events <- expired:
	case <-t.ctx.Done():
	}
}

// overdue counts a watch that the API server should have ended, if it was that.
func (t *tap) overdue() error {
	if t.ctx.Err() == nil {
		t.feed.config.Metrics.fired(GuardFeed, "overdue_watch_ended")
	}
	return errOverdue
}

// end ends the tap for good.
func (t *tap) end() {
	t.close()
	t.cancel()
	t.feed.mu.Lock()
	if t.feed.current == t {
		t.feed.current = nil
	}
	t.feed.mu.Unlock()
	close(t.events)
}
