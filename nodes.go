package main

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"warmpool.dev/controller/pkg/freshness"
)

// Nodes are an optional cache: they say which Pods are better not handed out, and which to
// replace. They belong to no namespace, so whoever runs the controller for one of them may
// not be allowed to read them, and everything else works without. A node that isn't in the
// cache, for whatever reason, is taken for a good one.

// newNodeFeed makes the informer of nodes.
func newNodeFeed(guards *freshness.Guards[cache.ObjectName], kube kubernetes.Interface) (*freshness.Feed, error) {
	nodes := kube.CoreV1().Nodes()
	return newFeed(guards, freshness.FeedConfig{
		Resource:      corev1.SchemeGroupVersion.WithResource("nodes"),
		Object:        &corev1.Node{},
		ListerWatcher: listerWatcher(kube, "", nodes.List, nodes.Watch),
		Transform:     trimNode,
		Optional:      true,
	})
}

// trimNode keeps of a node what is read here. A node tells of all images that it has, and a
// cluster may have thousands of nodes.
func trimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	trimmed := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion},
		Spec:       corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable},
	}
	if ready := readyCondition(node); ready != nil {
		trimmed.Status.Conditions = []corev1.NodeCondition{{
			Type: ready.Type, Status: ready.Status, LastTransitionTime: ready.LastTransitionTime,
		}}
	}
	return trimmed, nil
}

// readyCondition is the condition Ready of a node, or nil.
func readyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// nodeState is what of a node matters to the Pods on it.
type nodeState struct {
	cordoned bool
	ready    corev1.ConditionStatus // empty: it has never said
}

func stateOfNode(node *corev1.Node) nodeState {
	state := nodeState{cordoned: node.Spec.Unschedulable}
	if ready := readyCondition(node); ready != nil {
		state.ready = ready.Status
	}
	return state
}

// enqueuePoolsOnNode returns the handler of nodes. It adds the keys of the pools that have
// Pods on a node which comes, goes, or has another state; a heartbeat is none. They are
// found by an index of the Pods' cache. What that doesn't have yet comes with an event of
// its own.
func (c *Controller) enqueuePoolsOnNode() cache.ResourceEventHandler {
	add := func(obj any, class freshness.Class) {
		node, ok := obj.(*corev1.Node)
		if !ok {
			return
		}
		pods, err := c.pods.ByIndex(podsByNode, node.Name)
		if err != nil {
			return // only for an index that doesn't exist
		}
		for _, pod := range pods {
			if key, _ := keyOfPod(pod); key != (cache.ObjectName{}) {
				c.queue.AddWithClass(key, class)
			}
		}
	}
	return handler(add, func(old, new any) {
		before, isNode := old.(*corev1.Node)
		after, isNodeToo := new.(*corev1.Node)
		if isNode && isNodeToo && stateOfNode(before) != stateOfNode(after) {
			add(new, freshness.Changed)
		}
	})
}

// nodesOf returns the nodes of Pods, by name, as far as the cache has them.
func (c *Controller) nodesOf(pods []*corev1.Pod) map[string]*corev1.Node {
	nodes := map[string]*corev1.Node{}
	for _, pod := range pods {
		if obj, exists, err := c.nodes.GetByKey(pod.Spec.NodeName); err == nil && exists {
			nodes[pod.Spec.NodeName] = obj.(*corev1.Node)
		}
	}
	return nodes
}

func indexPodByNode(obj any) ([]string, error) {
	if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}, nil
	}
	return nil, nil
}
