package freshness

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// source is a collection of ConfigMaps at a hand-made API server, in memory: it
// numbers its versions, and its watches do only what a test tells them to. The fake
// clientset won't do, since its objects have no resourceVersion.
type source struct {
	mu      sync.Mutex
	version int
	objects map[string]*corev1.ConfigMap
	watches map[*sourceWatch]bool
	// history is what was sent to the watches: a new watch gets what it missed.
	history []sourceEvent
	held    []sourceEvent
	holding bool
	// mute keeps bookmarks back for good.
	mute bool
	// requests are the lists and watches asked for, in words, and timeouts those
	// of the watches, in seconds.
	requests []string
	timeouts []int64
	// fail, if it isn't nil, decides what a request is answered with.
	fail func(request string) error
}

type sourceEvent struct {
	version int
	watch.Event
}

type sourceWatch struct {
	source *source
	events chan watch.Event
	once   sync.Once
}

func newSource(t *testing.T) *source {
	t.Helper()
	return &source{version: 100, objects: map[string]*corev1.ConfigMap{}, watches: map[*sourceWatch]bool{}}
}

var (
	_ cache.ListerWatcher            = &source{}
	_ cache.ListerWatcherWithContext = &source{}
)

func (s *source) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options)
}

func (s *source) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options)
}

// ListWithContext answers with all objects.
func (s *source) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if err := s.record(fmt.Sprintf("LIST rv=%q limit=%d", options.ResourceVersion, options.Limit)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
	for _, object := range s.objects {
		list.Items = append(list.Items, *object.DeepCopy())
	}
	return list, ctx.Err()
}

// WatchWithContext opens a watch; with sendInitialEvents it sends all objects and the
// bookmark that ends them.
func (s *source) WatchWithContext(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	initial := ptr.Deref(options.SendInitialEvents, false)
	if err := s.record(fmt.Sprintf("WATCH rv=%q initial=%t", options.ResourceVersion, initial)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &sourceWatch{source: s, events: make(chan watch.Event, 10_000)}
	if initial {
		for _, object := range s.objects {
			w.events <- watch.Event{Type: watch.Added, Object: object.DeepCopy()}
		}
		w.events <- watch.Event{Type: watch.Bookmark, Object: s.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})}
	}
	if from, err := strconv.Atoi(options.ResourceVersion); err == nil && !initial {
		s.resume(w, from, ptr.Deref(options.TimeoutSeconds, 0) <= 3)
	}
	s.watches[w] = true
	s.timeouts = append(s.timeouts, ptr.Deref(options.TimeoutSeconds, 0))
	return w, nil
}

// resume sends what came after a version, and, to a watch that is about to end, a
// bookmark.
func (s *source) resume(w *sourceWatch, from int, ending bool) {
	for _, event := range s.history {
		if event.version > from {
			w.events <- event.Event
		}
	}
	if ending && !s.holding && !s.mute && s.version > from {
		w.events <- watch.Event{Type: watch.Bookmark, Object: s.bookmark(nil)}
	}
}

func (s *source) record(request string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, request)
	if s.fail == nil {
		return nil
	}
	return s.fail(request)
}

func (s *source) bookmark(annotations map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(s.version), Annotations: annotations}}
}

// Stop implements watch.Interface.
func (w *sourceWatch) Stop() {
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	w.close()
}

func (w *sourceWatch) close() {
	delete(w.source.watches, w)
	w.once.Do(func() { close(w.events) })
}

// ResultChan implements watch.Interface.
func (w *sourceWatch) ResultChan() <-chan watch.Event { return w.events }

// asked returns the requests so far.
func (s *source) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.requests...)
}

// forget forgets the requests so far.
func (s *source) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests, s.timeouts = nil, nil
}

// failWith makes every request fail with err, or none if err is nil.
func (s *source) failWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = nil
	if err != nil {
		s.fail = func(string) error { return err }
	}
}

// put creates or changes an object, and returns it as it is stored.
func (s *source) put(name string) *corev1.ConfigMap {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	event := watch.Modified
	object := s.objects[name].DeepCopy()
	if object == nil {
		event = watch.Added
		object = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(fmt.Sprintf("uid-%d", s.version)),
		}}
	}
	object.ResourceVersion = strconv.Itoa(s.version)
	s.objects[name] = object
	s.send(watch.Event{Type: event, Object: object.DeepCopy()})
	return object.DeepCopy()
}

// remove deletes an object, and returns the version at which it is gone.
func (s *source) remove(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	object := s.objects[name].DeepCopy()
	object.ResourceVersion = strconv.Itoa(s.version)
	delete(s.objects, name)
	s.send(watch.Event{Type: watch.Deleted, Object: object})
	return object.ResourceVersion
}

// progress sends a bookmark with a new version, as if something else had changed.
func (s *source) progress() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.send(watch.Event{Type: watch.Bookmark, Object: s.bookmark(nil)})
	return strconv.Itoa(s.version)
}

// advance makes a new version, of which no watch is told.
func (s *source) advance() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	return strconv.Itoa(s.version)
}

// send gives an event to every watch, or keeps it while the watches are held.
func (s *source) send(event watch.Event) {
	if s.holding {
		s.held = append(s.held, sourceEvent{s.version, event})
		return
	}
	if event.Type != watch.Bookmark {
		s.history = append(s.history, sourceEvent{s.version, event})
	}
	for w := range s.watches {
		w.events <- event
	}
}

// freeze makes the watches that are open silent, for good.
func (s *source) freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.watches)
}

// hold keeps events back until release.
func (s *source) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holding = true
}

// release lets go of what was held.
func (s *source) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holding = false
	for _, event := range s.held {
		s.send(event.Event)
	}
	s.held = nil
}

// inject sends an event to every watch, whatever it is.
func (s *source) inject(event watch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		w.events <- event
	}
}

// live is what a quorum read finds at a source.
type live struct {
	source *source
	// fail, if it isn't nil, is what is answered instead.
	fail error
	// compared counts the comparisons.
	compared int
}

var _ Live = &live{}

// Version implements Live.
func (l *live) Version(context.Context, *Feed) (string, error) {
	l.source.mu.Lock()
	defer l.source.mu.Unlock()
	return strconv.Itoa(l.source.version), l.fail
}

// Objects implements Live.
func (l *live) Objects(context.Context, *Feed) (map[types.UID]string, error) {
	l.source.mu.Lock()
	defer l.source.mu.Unlock()
	l.compared++
	versions := map[types.UID]string{}
	for _, object := range l.source.objects {
		versions[object.UID] = object.ResourceVersion
	}
	return versions, l.fail
}

// cutStream is a source whose first streamed list ends in the midst. An object that was in
// it is gone when the second comes.
type cutStream struct {
	*source
	again bool
}

// WatchWithContext implements cache.WatcherWithContext.
func (c *cutStream) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if c.again {
		return c.source.WatchWithContext(ctx, options)
	}
	c.again = true
	_ = c.record(`WATCH rv="" initial=true`)
	w := &sourceWatch{source: c.source, events: make(chan watch.Event, 2)}
	c.mu.Lock()
	w.events <- watch.Event{Type: watch.Added, Object: c.objects["gone"].DeepCopy()}
	c.mu.Unlock()
	c.remove("gone")
	w.events <- watch.Event{Type: watch.Error, Object: &metav1.Status{Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests}}
	return w, nil
}

// endless is a source whose bookmarks don't arrive.
type endless struct{ *source }

// WatchWithContext implements cache.WatcherWithContext.
func (e *endless) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := e.source.WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(event watch.Event) (watch.Event, bool) { return event, event.Type != watch.Bookmark }), nil
}
