package main

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"warmpool.dev/controller/pkg/freshness"
)

// docs: all of them

// run keeps the ConfigMaps of a namespace, or of all, until ctx ends.
func run(ctx context.Context, config *rest.Config, namespace string, metrics *freshness.Metrics) error {
	guards, err := freshness.New(config, freshness.Options[cache.ObjectName]{Metrics: metrics})
	if err != nil {
		return err
	}
	reads, readsErr := kubernetes.NewForConfig(guards.Reads())
	writes, writesErr := kubernetes.NewForConfig(guards.Writes())
	if err := errors.Join(readsErr, writesErr); err != nil {
		return err
	}
	deployments, err := guards.Feed(freshness.FeedConfig{
		Resource: appsv1.SchemeGroupVersion.WithResource("deployments"), Object: &appsv1.Deployment{},
		Namespace: namespace, LabelSelector: mirrored,
		ListerWatcher: listerWatcher(reads.AppsV1().RESTClient(), "deployments", namespace),
	})
	if err != nil {
		return err
	}
	configMaps, err := guards.Feed(freshness.FeedConfig{
		Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Object: &corev1.ConfigMap{},
		Namespace: namespace, LabelSelector: mirrored, Indexers: cache.Indexers{byOwner: ownerUID},
		ListerWatcher: listerWatcher(reads.CoreV1().RESTClient(), "configmaps", namespace),
	})
	if err != nil {
		return err
	}
	_, deploymentsErr := guards.Handle(deployments, handler(guards.Queue.Add, cache.MetaObjectToName))
	_, configMapsErr := guards.Handle(configMaps, handler(guards.Queue.Add, ownerName))
	if err := errors.Join(deploymentsErr, configMapsErr); err != nil {
		return err
	}
	m := &mirror{writes, deployments.Informer().GetStore(), configMaps.Informer().GetIndexer()}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { defer cancel(); ended <- guards.Run(ctx) }()
	err = guards.Work(ctx, 4, guards.Chain(m.reconcile))
	cancel()
	return errors.Join(err, <-ended)
}

// docs: end

// listerWatcher lists and watches what has the label.
func listerWatcher(client rest.Interface, resource, namespace string) cache.ListerWatcher {
	return cache.NewFilteredListWatchFromClient(client, resource, namespace, func(options *metav1.ListOptions) {
		options.LabelSelector = mirrored
	})
}

// handler returns a handler that adds the key of each object that it is told of, if it has
// one.
func handler(add func(cache.ObjectName), keyOf func(metav1.Object) cache.ObjectName) cache.ResourceEventHandler {
	enqueue := func(obj any) {
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj // the last state that the cache knew
		}
		if object, ok := obj.(metav1.Object); ok {
			if key := keyOf(object); key.Name != "" {
				add(key)
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue,
		UpdateFunc: func(old, new any) {
			enqueue(old) // it may have had another owner
			enqueue(new)
		},
		DeleteFunc: enqueue,
	}
}

// byOwner is the index that finds ConfigMaps by the UID of their controller.
const byOwner = "ownerUID"

func ownerUID(obj any) ([]string, error) {
	if object, ok := obj.(metav1.Object); ok {
		if owner := metav1.GetControllerOfNoCopy(object); owner != nil {
			return []string{string(owner.UID)}, nil
		}
	}
	return nil, nil
}

// ownerName is the key of the Deployment that owns an object.
func ownerName(object metav1.Object) cache.ObjectName {
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil && owner.Kind == "Deployment" {
		return cache.NewObjectName(object.GetNamespace(), owner.Name)
	}
	return cache.ObjectName{}
}
