package main

// The same controller without the guards: what it was before it took them.

import (
	"context"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// runPlain is run on client-go's own informers and queue, with the same reconcile function,
// the same handlers, as many workers and the same backoff.
func runPlain(ctx context.Context, config *rest.Config, namespace string) error {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](5*time.Millisecond, time.Minute))
	deployments := cache.NewSharedIndexInformer(listerWatcher(kube.AppsV1().RESTClient(), "deployments", namespace), &appsv1.Deployment{}, 0, nil)
	configMaps := cache.NewSharedIndexInformer(listerWatcher(kube.CoreV1().RESTClient(), "configmaps", namespace), &corev1.ConfigMap{}, 0, cache.Indexers{byOwner: ownerUID})
	ofDeployments, err := deployments.AddEventHandler(handler(queue.Add, cache.MetaObjectToName))
	if err != nil {
		return err
	}
	ofConfigMaps, err := configMaps.AddEventHandler(handler(queue.Add, ownerName))
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer queue.ShutDown()
	running.Go(func() { deployments.RunWithContext(ctx) })
	running.Go(func() { configMaps.RunWithContext(ctx) })
	if !cache.WaitFor(ctx, "caches", ofDeployments.HasSyncedChecker(), ofConfigMaps.HasSyncedChecker()) {
		return nil
	}
	m := &mirror{kube, deployments.GetStore(), configMaps.GetIndexer()}
	for range 4 {
		running.Go(func() {
			for workOnNext(ctx, queue, m) {
			}
		})
	}
	<-ctx.Done()
	return nil
}

func workOnNext(ctx context.Context, queue workqueue.TypedRateLimitingInterface[cache.ObjectName], m *mirror) bool {
	key, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	if _, err := m.reconcile(ctx, key); err != nil {
		queue.AddRateLimited(key)
		return true
	}
	queue.Forget(key)
	return true
}
