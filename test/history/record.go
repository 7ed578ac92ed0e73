package history

// The recorder.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

// registry is where an API server keeps everything, unless it is told otherwise.
const registry = "/registry/"

// askInterval is how often etcd is asked how far it has told everything.
const askInterval = 100 * time.Millisecond

// Recording says what is recorded.
type Recording struct {
	// Endpoints are etcd's, without TLS. Required.
	Endpoints []string
	// Namespaces limit what is recorded. Empty: all.
	Namespaces []string
	// Resources are what is recorded. Empty: Pods, WarmPools, PodClaims, Leases.
	Resources []schema.GroupResource
	// Clock stamps the versions. Nil: the machine's.
	Clock clock.PassiveClock
}

// Recorder records. Its methods are safe for concurrent use.
type Recorder struct {
	recording Recording
	client    *clientv3.Client
	cancel    context.CancelFunc
	wg        sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed and made anew at each change of what follows
	from    int64
	to      int64 // everything up to here is recorded
	all     []Version
	world   *World
	err     error // the recording has a gap, and is of no use
}

// Record begins to record, with what is there. It returns when the beginning is
// recorded; ctx bounds that, and not the recording. Whoever calls it calls Close.
func Record(ctx context.Context, recording Recording) (*Recorder, error) {
	if len(recording.Resources) == 0 {
		recording.Resources = []schema.GroupResource{Pods, WarmPools, PodClaims, Leases}
	}
	if recording.Clock == nil {
		recording.Clock = clock.RealClock{}
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: recording.Endpoints, Context: context.Background(), Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("record the history in etcd at %s: %w", recording.Endpoints, err)
	}
	r := &Recorder{recording: recording, client: client, changed: make(chan struct{}), world: NewWorld()}
	if err := r.begin(ctx); err != nil {
		return nil, fmt.Errorf("record the history in etcd at %s: %w", recording.Endpoints, errors.Join(err, client.Close()))
	}
	// Not ctx: the recording outlives it.
	watching, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	// One watch over all: its order is the order of the writes, across resources.
	events := client.Watch(watching, registry, clientv3.WithPrefix(), clientv3.WithRev(r.from+1), clientv3.WithPrevKV(), clientv3.WithProgressNotify())
	r.wg.Go(func() { r.follow(watching, events) })
	return r, nil
}

// Close ends the recording.
func (r *Recorder) Close() {
	r.cancel()
	r.wg.Wait()
	_ = r.client.Close() // what it says of the connection matters to nobody any more
}

// begin records what is there, all at one revision.
func (r *Recorder) begin(ctx context.Context) error {
	now := r.recording.Clock.Now()
	for _, resource := range r.recording.Resources {
		response, err := r.client.Get(ctx, keyOf(resource), clientv3.WithPrefix(), clientv3.WithRev(r.from))
		if err != nil {
			return fmt.Errorf("list %s: %w", resource, err)
		}
		if r.from == 0 {
			r.from = response.Header.Revision
		}
		for _, kv := range response.Kvs {
			if err := r.note(kv, Version{Revision: kv.ModRevision, Time: now, Resource: resource, Initial: true}); err != nil {
				return err
			}
		}
	}
	r.to = r.from
	slices.SortStableFunc(r.all, func(a, b Version) int { return cmp.Compare(a.Revision, b.Revision) })
	for i := range r.all {
		r.world.apply(&r.all[i])
	}
	return nil
}

// keyOf is where an API server keeps the objects of a resource. Built-in ones lie
// under their plural name alone, custom ones under their group too.
func keyOf(resource schema.GroupResource) string {
	if custom := strings.Contains(resource.Group, ".") && !strings.HasSuffix(resource.Group, ".k8s.io"); custom {
		return registry + resource.Group + "/" + resource.Resource + "/"
	}
	return registry + resource.Resource + "/"
}

// follow records what is written, until ctx ends or there is a gap.
func (r *Recorder) follow(ctx context.Context, responses clientv3.WatchChan) {
	for response := range responses {
		if err := r.take(response); err != nil {
			r.fail(err)
			return
		}
	}
	if ctx.Err() == nil {
		r.fail(errors.New("the watch ended"))
	}
}

func (r *Recorder) take(response clientv3.WatchResponse) error {
	if err := response.Err(); err != nil {
		// Compacted, for example: something has been missed.
		return fmt.Errorf("the watch broke: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.recording.Clock.Now()
	for _, event := range response.Events {
		if err := r.takeEvent(event, now); err != nil {
			return err
		}
	}
	r.to = max(r.to, response.Header.Revision)
	r.wake()
	return nil
}

func (r *Recorder) takeEvent(event *clientv3.Event, now time.Time) error {
	key := string(event.Kv.Key)
	i := slices.IndexFunc(r.recording.Resources, func(resource schema.GroupResource) bool {
		return strings.HasPrefix(key, keyOf(resource))
	})
	if i < 0 || !r.concerns(strings.TrimPrefix(key, keyOf(r.recording.Resources[i]))) {
		return nil
	}
	v := Version{Revision: event.Kv.ModRevision, Time: now, Resource: r.recording.Resources[i], Deleted: event.Type == mvccpb.Event_DELETE}
	kv := event.Kv
	if v.Deleted {
		if kv = event.PrevKv; kv == nil {
			return fmt.Errorf("the last state of %s before revision %d is compacted", event.Kv.Key, v.Revision)
		}
	}
	n := len(r.all)
	if err := r.note(kv, v); err != nil {
		return err
	}
	if len(r.all) > n {
		// A copy: the slice may move.
		last := r.all[n]
		r.world.apply(&last)
	}
	return nil
}

// concerns tells whether an object may be in one of the namespaces, by its key without
// the resource. It saves the decoding of what others write meanwhile.
func (r *Recorder) concerns(name string) bool {
	namespace, _, namespaced := strings.Cut(name, "/")
	return len(r.recording.Namespaces) == 0 || namespaced && slices.Contains(r.recording.Namespaces, namespace)
}

// note appends a version, if it is in one of the namespaces.
func (r *Recorder) note(kv *mvccpb.KeyValue, v Version) error {
	object, err := decode(kv.Value)
	if err != nil {
		return fmt.Errorf("read %s at revision %d: %w", kv.Key, v.Revision, err)
	}
	if len(r.recording.Namespaces) > 0 && !slices.Contains(r.recording.Namespaces, object.GetNamespace()) {
		return nil
	}
	object.SetResourceVersion(strconv.FormatInt(v.Revision, 10)) // it isn't stored
	v.Object = object
	if v, err = newVersion(v); err != nil {
		return err
	}
	r.all = append(r.all, v)
	return nil
}

func (r *Recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = fmt.Errorf("the history has a gap after revision %d: %w", r.to, err)
	r.wake()
}

// wake wakes everybody who waits. r.mu is held.
func (r *Recorder) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Sync waits until everything is recorded that was written before the call.
func (r *Recorder) Sync(ctx context.Context) error {
	// A read that goes through the quorum, of a key that nobody has.
	response, err := r.client.Get(ctx, registry)
	if err != nil {
		return fmt.Errorf("ask etcd for its revision: %w", err)
	}
	ticker := time.NewTicker(askInterval)
	defer ticker.Stop()
	for {
		r.mu.Lock()
		to, failed, changed := r.to, r.err, r.changed
		r.mu.Unlock()
		switch {
		case failed != nil:
			return failed
		case to >= response.Header.Revision:
			return nil
		}
		// Events come by themselves; but nobody else may write for a while.
		if err := r.client.RequestProgress(ctx); err != nil {
			return fmt.Errorf("ask etcd how far the recording is: %w", err)
		}
		select {
		case <-changed:
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("record up to revision %d, got to %d: %w", response.Header.Revision, to, ctx.Err())
		}
	}
}

// History returns everything that was written before the call. It returns an error,
// and never a history with a gap.
func (r *Recorder) History(ctx context.Context) (*History, error) {
	if err := r.Sync(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return &History{Versions: slices.Clone(r.all), From: r.from, To: r.to}, nil
}

// WaitFor waits until the world, as it is recorded, is as check wants it. check must
// not keep it. what says what is waited for.
func (r *Recorder) WaitFor(ctx context.Context, what string, check func(*World) bool) error {
	for {
		r.mu.Lock()
		failed, changed := r.err, r.changed
		ok := failed == nil && check(r.world)
		r.mu.Unlock()
		switch {
		case failed != nil:
			return failed
		case ok:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		}
	}
}
