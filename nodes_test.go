package main

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"

	"warmpool.dev/controller/pkg/freshness"
)

// aNode is a node that is Ready.
func aNode(name string, options ...func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	for _, option := range options {
		option(node)
	}
	return node
}

func cordoned(node *corev1.Node) { node.Spec.Unschedulable = true }

func nodeNotReady(node *corev1.Node) { node.Status.Conditions[0].Status = corev1.ConditionUnknown }

func heartbeat(node *corev1.Node) {
	node.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(start)
}

func onNode(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeName = name }
}

// TestNodesEnqueueThePoolsThatHavePodsThere is which keys an event of node-1 adds.
func TestNodesEnqueueThePoolsThatHavePodsThere(t *testing.T) {
	all := []string{"ci/builders changed", "ci/runners changed"}
	for _, test := range []struct {
		name  string
		event func(cache.ResourceEventHandler)
		want  []string
	}{
		{"a node of the initial list", func(h cache.ResourceEventHandler) { h.OnAdd(aNode("node-1"), true) }, []string{"ci/builders routine", "ci/runners routine"}},
		{"a node that comes", func(h cache.ResourceEventHandler) { h.OnAdd(aNode("node-1"), false) }, all},
		{"a node that is cordoned", func(h cache.ResourceEventHandler) { h.OnUpdate(aNode("node-1"), aNode("node-1", cordoned)) }, all},
		{"a node that isn't any more", func(h cache.ResourceEventHandler) { h.OnUpdate(aNode("node-1", cordoned), aNode("node-1")) }, all},
		{"a node that stops being ready", func(h cache.ResourceEventHandler) { h.OnUpdate(aNode("node-1"), aNode("node-1", nodeNotReady)) }, all},
		{"a heartbeat", func(h cache.ResourceEventHandler) { h.OnUpdate(aNode("node-1"), aNode("node-1", heartbeat)) }, nil},
		{"a node that goes", func(h cache.ResourceEventHandler) { h.OnDelete(aNode("node-1")) }, all},
		{"a node that is gone, as the cache last knew it",
			func(h cache.ResourceEventHandler) {
				h.OnDelete(cache.DeletedFinalStateUnknown{Key: "node-1", Obj: aNode("node-1")})
			}, all},
		{"a node without Pods", func(h cache.ResourceEventHandler) { h.OnAdd(aNode("node-3"), false) }, nil},
		{"a tombstone without an object", func(h cache.ResourceEventHandler) { h.OnDelete(cache.DeletedFinalStateUnknown{Key: "node-1"}) }, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, aPod("a", onNode("node-1")), aPod("b", onNode("node-1"), ofClaim("job")), aPod("c", onNode("node-1"), ofPool("builders")),
					aPod("d", onNode("node-2"), ofPool("others")), aPod("e", ofPool("pending")), aPod("f", onNode("node-1"), ofNobody))
				f.queued()
				test.event(f.enqueuePoolsOnNode())
				expect(t, "keys", f.queued(), test.want)
			})
		})
	}
}

func TestASnapshotHasTheNodesOfItsPodsAsFarAsTheyAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners"), aNode("node-1"), aNode("node-2", cordoned), aNode("other"),
			aPod("a", onNode("node-1")), aPod("b", onNode("node-2"), ofClaim("job")), aPod("c", onNode("gone")), aPod("d"))
		snapshot, err := f.snapshot(runners)
		if err != nil {
			t.Fatal(err)
		}
		if len(snapshot.Nodes) != 2 || snapshot.Nodes["node-1"] == nil || !snapshot.Nodes["node-2"].Spec.Unschedulable {
			t.Errorf("got nodes %v, want node-1, and node-2, which is cordoned", snapshot.Nodes)
		}
		for _, object := range snapshot.Objects() {
			if _, isNode := object.(*corev1.Node); isNode {
				t.Error("a node counts for the second check: each of its heartbeats would have the pool planned anew")
			}
		}
		// It is told when that changes.
		f.queued()
		f.api.put(t, aNode("node-1", cordoned), aNode("other", cordoned))
		settle()
		expect(t, "keys", f.queued(), []string{"ci/runners changed"})
	})
}

func TestTheCacheOfNodesKeepsWhatIsReadOfThem(t *testing.T) {
	node := aNode("node-1", cordoned)
	node.ResourceVersion = "7"
	node.Labels = map[string]string{"zone": "a"}
	node.Status.Images = []corev1.ContainerImage{{Names: []string{"large"}}}
	node.Status.Conditions = append([]corev1.NodeCondition{{Type: corev1.NodeDiskPressure}}, node.Status.Conditions...)
	want := aNode("node-1", cordoned)
	want.ResourceVersion = "7"
	for range 2 { // what was trimmed may be trimmed again
		trimmed, err := trimNode(node)
		if err != nil {
			t.Fatal(err)
		}
		if d := diff.Diff(want, trimmed); d != "" {
			t.Errorf("the node in the cache:\n%s", d)
		}
		node = trimmed.(*corev1.Node)
	}
	tombstone := cache.DeletedFinalStateUnknown{Key: "node-1"}
	if got, err := trimNode(tombstone); err != nil || got != any(tombstone) {
		t.Errorf("of something else it makes %v (%v)", got, err)
	}
}

// TestWithoutTheRightToReadNodesEverythingElseWorks, and the log says what is missing.
func TestWithoutTheRightToReadNodesEverythingElseWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newUnstartedFixture(t, aPool("runners"), aPod("a", ready), aClaim("job"), aNode("node-1", cordoned))
		f.api.refuse(refusingLists("nodes", apierrors.NewForbidden(nodeResource.GroupResource(), "", errors.New(`User "warmpool" cannot list resource "nodes"`))))
		f.startGuards()
		if err := f.guards.TakeOver(f.ctx); err != nil {
			t.Fatal(err)
		}
		f.run()
		if err := f.guards.Ready(); err != nil {
			t.Errorf("the controller isn't ready: %v", err)
		}
		if got := f.api.claim(t, "job").Status.Pod; got == nil {
			t.Error("the claim has no Pod")
		}
		elapse(10 * time.Minute)
		expect(t, "errors", f.errors(), nil)
		told := 0
		for _, entry := range f.logs.Data() {
			if entry.Type == ktesting.LogInfo && entry.Verbosity == 0 && strings.HasPrefix(entry.Message, "Optional cache is not there") {
				told++
			}
		}
		if told != 1 {
			t.Errorf("it is said %d times that nodes can't be read, want once", told)
		}

		f.api.refuse(nil)
		elapse(freshness.DefaultProbeInterval)
		if nodes := f.nodesOf([]*corev1.Pod{aPod("a", ready)}); len(nodes) != 1 {
			t.Errorf("got the nodes %v when they may be read, want node-1", nodes)
		}
	})
}
