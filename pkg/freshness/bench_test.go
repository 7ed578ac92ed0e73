package freshness_test

// What the guards cost on the way of a key, of an event and of a write, the last two beside
// the same without them. BenchmarkCheck and BenchmarkRelease are in other files.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"warmpool.dev/controller/pkg/freshness"
)

// others is how many keys wait beside the one that is measured.
const others = 10_000

// crowd returns a ledger in which others keys wait, and one of its three stores.
func crowd(b *testing.B, metrics *freshness.Metrics) (*freshness.Ledger[string], cache.Store) {
	b.Helper()
	ledger := freshness.NewLedger[string](freshness.LedgerConfig{Metrics: metrics})
	var store cache.Store
	for _, resource := range []string{"deployments", "pods", "configmaps"} {
		store = cache.NewStore(cache.MetaNamespaceKeyFunc)
		store.Bookmark("1000000")
		ledger.Track(schema.GroupResource{Resource: resource}, store)
	}
	for i := range others {
		key := fmt.Sprint("key-", i)
		entry, err := ledger.Begin(key, freshness.Intent{Verb: "create", Resource: corev1.Resource("configmaps"), Name: key})
		if err != nil {
			b.Fatal(err)
		}
		ledger.Settle(entry, "2000000000")
	}
	return ledger, store
}

// BenchmarkEntry is all that the guards put around a reconcile that finds its caches fresh:
// Recover, Measure, the check, the record of what is confirmed later.
func BenchmarkEntry(b *testing.B) {
	metrics := freshness.NewMetrics()
	ledger, _ := crowd(b, metrics)
	queue := freshness.NewQueue(freshness.QueueConfig[string]{})
	b.Cleanup(queue.ShutDown)
	backlog := freshness.NewBacklog(freshness.BacklogConfig[string]{Ledger: ledger, Queue: queue, Metrics: metrics})
	reconcile := freshness.Chain(func(context.Context, string) (freshness.Result, error) { return freshness.Result{}, nil },
		freshness.Recover[string], freshness.Measure[string](metrics, clock.RealClock{}), backlog.Middleware)
	work := func(b *testing.B) {
		if result, err := reconcile(b.Context(), "idle"); err != nil || result.Parked {
			b.Error(result, err)
		}
	}
	b.Run("one worker", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			work(b)
		}
	})
	b.Run("many workers", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				work(b)
			}
		})
	})
}

// BenchmarkConfirm is the second check, of a plan that was made on 100 objects.
func BenchmarkConfirm(b *testing.B) {
	ledger, store := crowd(b, nil)
	queue := freshness.NewQueue(freshness.QueueConfig[string]{})
	b.Cleanup(queue.ShutDown)
	backlog := freshness.NewBacklog(freshness.BacklogConfig[string]{Ledger: ledger, Queue: queue})
	var snapshot []metav1.Object
	for i := range 100 {
		snapshot = append(snapshot, configMap(fmt.Sprint("cm-", i), 100+i))
	}
	again := func() []metav1.Object { return snapshot }
	for name, moves := range map[string]bool{"nothing has moved": false, "something has moved": true} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			reconcile := backlog.Middleware(func(ctx context.Context, _ string) (freshness.Result, error) {
				if moves {
					version, _ := strconv.Atoi(store.LastStoreSyncResourceVersion())
					store.Bookmark(strconv.Itoa(version + 1))
				}
				for b.Loop() {
					if err := freshness.Confirm(ctx, snapshot, again); err != nil {
						b.Fatal(err)
					}
				}
				return freshness.Result{}, nil
			})
			if result, err := reconcile(b.Context(), "idle"); err != nil || result.Parked {
				b.Error(result, err)
			}
		})
	}
}

func configMap(name string, version int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: strconv.Itoa(version)},
		Data:       map[string]string{"replicas": "3", "image": "registry.example.com/web:1"},
	}
}

// instantly answers each write at once, with the next version.
type instantly struct{ version int }

// RoundTrip implements http.RoundTripper.
func (i *instantly) RoundTrip(request *http.Request) (*http.Response, error) {
	i.version++
	body, err := json.Marshal(configMap("a", i.version))
	return &http.Response{
		StatusCode: http.StatusOK, Request: request,
		Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}},
		Body:   io.NopCloser(bytes.NewReader(body)),
	}, err
}

// BenchmarkWrite is an update by a client whose API server takes no time.
func BenchmarkWrite(b *testing.B) {
	for _, recorded := range []bool{false, true} {
		name := map[bool]string{false: "plain", true: "recorded"}[recorded]
		b.Run(name, func(b *testing.B) {
			config := &rest.Config{Host: "http://127.0.0.1", QPS: -1, Transport: &instantly{version: 1_000_000},
				ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
			if recorded {
				ledger, _ := crowd(b, freshness.NewMetrics())
				transport := freshness.Transport[string]{Ledger: ledger}
				if err := transport.Wrap(config); err != nil {
					b.Fatal(err)
				}
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				b.Fatal(err)
			}
			ctx, object := freshness.WithKey(b.Context(), "key"), configMap("a", 1)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := client.CoreV1().ConfigMaps("ns").Update(ctx, object, metav1.UpdateOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEvent is an event on its way to a handler.
func BenchmarkEvent(b *testing.B) {
	for _, marked := range []bool{false, true} {
		name := map[bool]string{false: "plain", true: "watermark"}[marked]
		b.Run(name, func(b *testing.B) {
			told, events := 0, 0
			var handler cache.ResourceEventHandler = cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, _ any) { told++ }}
			if marked {
				handler = freshness.NewWatermark(freshness.NewMetrics(), nil).Handler(handler)
			}
			objects := make([]*corev1.ConfigMap, others)
			for i := range objects {
				objects[i] = configMap(fmt.Sprint("cm-", i), 1)
				handler.OnAdd(objects[i], true)
			}
			b.ReportAllocs()
			for version := 2; b.Loop(); version++ {
				object := objects[version%others]
				object.ResourceVersion = strconv.Itoa(version)
				handler.OnUpdate(object, object)
				events++
			}
			if told != events {
				b.Errorf("the handler was told of %d events of %d", told, events)
			}
		})
	}
}

// BenchmarkQueue is a key on its way through the queue, in which 10,000 others are.
func BenchmarkQueue(b *testing.B) {
	for _, classes := range []bool{false, true} {
		name := map[bool]string{false: "plain", true: "classes"}[classes]
		b.Run(name, func(b *testing.B) {
			var queue workqueue.TypedRateLimitingInterface[string]
			if classes {
				queue = freshness.NewQueue(freshness.QueueConfig[string]{Metrics: freshness.NewMetrics()})
			} else {
				queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
			}
			defer queue.ShutDown()
			for i := range others {
				queue.Add(fmt.Sprint("key-", i))
			}
			b.ReportAllocs()
			for b.Loop() {
				key, _ := queue.Get()
				queue.Done(key)
				queue.Add(key)
			}
		})
	}
}

// BenchmarkMergePatch is the patch of a ConfigMap in which one value has changed.
func BenchmarkMergePatch(b *testing.B) {
	from := configMap("a", 1)
	to := from.DeepCopy()
	to.Data["replicas"] = "4"
	b.ReportAllocs()
	for b.Loop() {
		if patch, err := freshness.MergePatch(from, to, freshness.PatchOptions{}); err != nil || len(patch) == 0 {
			b.Fatal(string(patch), err)
		}
	}
}
