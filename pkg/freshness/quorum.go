package freshness

// Quorum: what the API server has, as opposed to what a cache holds.
//
// The version of a resource is asked for by listing, with no version given, a name that
// needn't exist: one point read in etcd, after which the API server waits until its own
// cache is as new. It costs the same for one object and for a million. The objects are
// compared by their metadata alone.

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// Live reads from the API server, at quorum. Its implementations are safe for concurrent
// use.
type Live interface {
	// Version returns the newest resourceVersion of the feed's resource.
	Version(ctx context.Context, feed *Feed) (string, error)
	// Objects returns the UIDs and resourceVersions of all objects of a feed.
	Objects(ctx context.Context, feed *Feed) (map[types.UID]string, error)
}

// probeName is the name that is listed. Nothing needs to have it.
const probeName = "freshness-probe"

type quorum struct{ client metadata.Interface }

// NewLive returns a Live that asks the API server of config. It is not held up by the
// client's own rate limit: few as they are, these reads are what parked keys wait for.
func NewLive(config *rest.Config) (Live, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.RateLimiter = -1, nil
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of metadata: %w", err)
	}
	return &quorum{client}, nil
}

// Version implements Live.
func (q *quorum) Version(ctx context.Context, feed *Feed) (string, error) {
	list, err := q.list(ctx, feed, metav1.ListOptions{FieldSelector: "metadata.name=" + probeName})
	if err != nil {
		return "", fmt.Errorf("ask the API server for the version of %s: %w", feed.Resource().Resource, err)
	}
	return list.ResourceVersion, nil
}

// Objects implements Live.
func (q *quorum) Objects(ctx context.Context, feed *Feed) (map[types.UID]string, error) {
	list, err := q.list(ctx, feed, metav1.ListOptions{
		LabelSelector: feed.config.LabelSelector, FieldSelector: feed.config.FieldSelector,
	})
	if err != nil {
		return nil, fmt.Errorf("list the metadata of %s: %w", feed.Resource().Resource, err)
	}
	versions := make(map[types.UID]string, len(list.Items))
	for i := range list.Items {
		versions[list.Items[i].UID] = list.Items[i].ResourceVersion
	}
	return versions, nil
}

func (q *quorum) list(ctx context.Context, feed *Feed, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	resource := q.client.Resource(feed.Resource())
	if feed.config.Namespace != "" {
		return resource.Namespace(feed.config.Namespace).List(ctx, options)
	}
	return resource.List(ctx, options)
}

// holds reports whether the store of a feed holds exactly these objects.
func (f *Feed) holds(versions map[types.UID]string) bool {
	cached := f.informer.GetStore().List()
	if len(cached) != len(versions) {
		return false
	}
	for _, obj := range cached {
		object, ok := obj.(metav1.Object)
		if !ok || versions[object.GetUID()] != object.GetResourceVersion() || object.GetResourceVersion() == "" {
			return false
		}
	}
	return true
}
