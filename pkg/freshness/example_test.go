package freshness_test

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"warmpool.dev/controller/pkg/freshness"
)

// A controller that wants all guards: what it does itself is reconcile and the handler.
func ExampleNew() {
	run := func(ctx context.Context, config *rest.Config, reconcile func(context.Context, kubernetes.Interface, cache.ObjectName) error) error {
		guards, err := freshness.New[cache.ObjectName](config, freshness.Options[cache.ObjectName]{})
		if err != nil {
			return err
		}
		reads, err := kubernetes.NewForConfig(guards.Reads())
		if err != nil {
			return err
		}
		writes, err := kubernetes.NewForConfig(guards.Writes())
		if err != nil {
			return err
		}
		feed, err := guards.Feed(freshness.FeedConfig{
			Resource:      corev1.SchemeGroupVersion.WithResource("configmaps"),
			Object:        &corev1.ConfigMap{},
			ListerWatcher: cache.NewListWatchFromClient(reads.CoreV1().RESTClient(), "configmaps", metav1.NamespaceAll, fields.Everything()),
		})
		if err != nil {
			return err
		}
		add := func(obj any) {
			if key, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				guards.Queue.Add(key)
			}
		}
		_, err = guards.Handle(feed, cache.ResourceEventHandlerFuncs{
			AddFunc: add, UpdateFunc: func(_, obj any) { add(obj) }, DeleteFunc: add,
		})
		if err != nil {
			return err
		}
		guarded := guards.Chain(func(ctx context.Context, key cache.ObjectName) (freshness.Result, error) {
			return freshness.Result{}, reconcile(ctx, writes, key)
		})
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			defer cancel() // if the caches can't be filled, or healed
			ended <- guards.Run(ctx)
		}()
		err = guards.Work(ctx, 4, guarded)
		cancel()
		return errors.Join(err, <-ended)
	}
	_ = run
}

// A middleware sees a key before the reconcile function does, and the result after it.
func ExampleChain() {
	log := func(next freshness.Reconciler[string]) freshness.Reconciler[string] {
		return func(ctx context.Context, key string) (freshness.Result, error) {
			result, err := next(ctx, key)
			fmt.Println(key, "done, error:", err)
			return result, err
		}
	}
	reconcile := freshness.Chain(func(context.Context, string) (freshness.Result, error) {
		return freshness.Result{}, errors.New("refused")
	}, log, freshness.Recover[string])
	_, _ = reconcile(context.Background(), "default/runners")
	// Output: default/runners done, error: refused
}

// The patch carries what it was decided on; a change that isn't worth a write gives none.
func ExampleMergePatch() {
	old := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "u1", ResourceVersion: "7"},
		Data:       map[string]string{"count": "1", "state": "waiting"},
	}
	changed := old.DeepCopy()
	changed.Data["state"] = "bound"
	patch, err := freshness.MergePatch(old, changed, freshness.PatchOptions{})
	fmt.Println(string(patch), err)
	patch, err = freshness.MergePatch(old, old.DeepCopy(), freshness.PatchOptions{})
	fmt.Println(len(patch), err)
	// Output:
	// {"data":{"state":"bound"},"metadata":{"resourceVersion":"7","uid":"u1"}} <nil>
	// 0 <nil>
}
