package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/freshness"
	clientset "warmpool.dev/controller/pkg/generated/clientset/versioned"
)

// Names of the indexes of the informers' stores.
const (
	// podsByOwner finds Pods by the UID of their controller owner.
	podsByOwner = "controllerUID"
	// podsByPool finds Pods by the pool that they were made for, as a key.
	podsByPool = "pool"
	// podsByNode finds Pods by the name of the node that they are on.
	podsByNode = "nodeName"
	// claimsByPool finds claims by their namespace and spec.poolName, as a key.
	claimsByPool = "poolName"
)

// feeds are what the caches are filled from: one informer for each resource.
type feeds struct {
	pools, claims, pods *freshness.Feed
	// nodes is optional: its cache may be empty for as long as the controller runs.
	nodes *freshness.Feed
}

// newFeeds makes the informers of one namespace, or of all. Nothing runs yet.
func newFeeds(guards *freshness.Guards[cache.ObjectName], kube kubernetes.Interface, warmpool clientset.Interface, namespace string) (f feeds, err error) {
	pools := warmpool.WarmpoolV1alpha1().WarmPools(namespace)
	f.pools, err = newFeed(guards, freshness.FeedConfig{
		Resource:      v1alpha1.WarmPoolKind.GroupVersion().WithResource("warmpools"),
		Object:        &v1alpha1.WarmPool{},
		Namespace:     namespace,
		ListerWatcher: listerWatcher(warmpool, "", pools.List, pools.Watch),
	})
	if err != nil {
		return f, err
	}
	claims := warmpool.WarmpoolV1alpha1().PodClaims(namespace)
	f.claims, err = newFeed(guards, freshness.FeedConfig{
		Resource:      v1alpha1.PodClaimKind.GroupVersion().WithResource("podclaims"),
		Object:        &v1alpha1.PodClaim{},
		Namespace:     namespace,
		ListerWatcher: listerWatcher(warmpool, "", claims.List, claims.Watch),
		Indexers:      cache.Indexers{claimsByPool: indexClaimByPool},
	})
	if err != nil {
		return f, err
	}
	// Every Pod made here has the label from its creation on; the others of the
	// cluster are none of our business, and would fill the memory.
	const selector = v1alpha1.LabelPool
	pods := kube.CoreV1().Pods(namespace)
	f.pods, err = newFeed(guards, freshness.FeedConfig{
		Resource:      corev1.SchemeGroupVersion.WithResource("pods"),
		Object:        &corev1.Pod{},
		Namespace:     namespace,
		LabelSelector: selector,
		ListerWatcher: listerWatcher(kube, selector, pods.List, pods.Watch),
		Indexers:      cache.Indexers{podsByOwner: indexPodByOwner, podsByPool: indexPodByPool, podsByNode: indexPodByNode},
	})
	if err != nil {
		return f, err
	}
	f.nodes, err = newNodeFeed(guards, kube)
	return f, err
}

// newFeed adds what all feeds have in common.
func newFeed(guards *freshness.Guards[cache.ObjectName], config freshness.FeedConfig) (*freshness.Feed, error) {
	if config.Transform == nil {
		config.Transform = dropManagedFields
	}
	config.InstallCommand = "kubectl apply -f artifacts/crds"
	config.GrantCommand = "kubectl apply -f artifacts/deploy"
	feed, err := guards.Feed(config)
	if err != nil {
		return nil, fmt.Errorf("make the feed of %s: %w", config.Resource.Resource, err)
	}
	return feed, nil
}

// listerWatcher lists and watches through a typed client.
func listerWatcher[List runtime.Object](
	client any,
	labelSelector string,
	lists func(context.Context, metav1.ListOptions) (List, error),
	watches func(context.Context, metav1.ListOptions) (watch.Interface, error),
) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = labelSelector
			return lists(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = labelSelector
			return watches(ctx, options)
		},
	}, client)
}

// dropManagedFields keeps what nobody here reads out of the caches. A transform must
// not fail and must not touch the resourceVersion.
func dropManagedFields(obj any) (any, error) {
	if object, ok := obj.(metav1.Object); ok {
		object.SetManagedFields(nil)
	}
	return obj, nil
}

func indexClaimByPool(obj any) ([]string, error) {
	key, _ := keyOfClaim(obj)
	return []string{key.String()}, nil
}

func indexPodByPool(obj any) ([]string, error) {
	key, _ := keyOfPod(obj)
	return []string{key.String()}, nil
}

func indexPodByOwner(obj any) ([]string, error) {
	if pod, ok := obj.(*corev1.Pod); ok {
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
			return []string{string(owner.UID)}, nil
		}
	}
	return nil, nil
}
