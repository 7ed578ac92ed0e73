package history

// Histories made by hand, one version after the other.

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/test/faultproxy"
)

// begin is when every story begins. Each version is a second later than the one before
// it, at the revision after its own.
var begin = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// after is the time of the version at a revision.
func after(revision int) time.Time { return begin.Add(time.Duration(revision) * time.Second) }

type fields = map[string]any

// story writes a history. Revisions begin at 1.
type story struct {
	t     *testing.T
	h     History
	state map[string]*unstructured.Unstructured // by resource and name
}

func newStory(t *testing.T) *story {
	return &story{t: t, state: map[string]*unstructured.Unstructured{}}
}

func (s *story) add(v Version) {
	s.t.Helper()
	revision := len(s.h.Versions) + 1
	v.Revision, v.Time = int64(revision), after(revision)
	v.Object = v.Object.DeepCopy()
	v.Object.SetResourceVersion(strconv.Itoa(revision))
	v, err := newVersion(v)
	if err != nil {
		s.t.Fatal(err)
	}
	s.h.Versions = append(s.h.Versions, v)
	s.h.To = v.Revision
}

// make creates an object. Its UID is its name, unless it is given.
func (s *story) make(resource schema.GroupResource, name string, uid types.UID, content fields) {
	s.t.Helper()
	object := &unstructured.Unstructured{Object: runtimeCopy(content)}
	object.SetNamespace("ns")
	object.SetName(name)
	object.SetUID(uid)
	object.SetGeneration(1)
	s.state[resource.Resource+name] = object
	s.add(Version{Resource: resource, Object: object})
}

// set changes a field of an object, by its path.
func (s *story) set(resource schema.GroupResource, name string, value any, path ...string) {
	s.t.Helper()
	object := s.state[resource.Resource+name]
	if err := unstructured.SetNestedField(object.Object, runtimeValue(value), path...); err != nil {
		s.t.Fatal(err)
	}
	s.add(Version{Resource: resource, Object: object})
}

func (s *story) remove(resource schema.GroupResource, name string) {
	s.t.Helper()
	s.add(Version{Resource: resource, Object: s.state[resource.Resource+name], Deleted: true})
	delete(s.state, resource.Resource+name)
}

// runtimeValue makes a literal into what unstructured objects are made of.
func runtimeValue(value any) any {
	switch v := value.(type) {
	case int:
		return int64(v)
	case fields:
		return runtimeCopy(v)
	case []any:
		return slices.Collect(func(yield func(any) bool) {
			for _, item := range v {
				if !yield(runtimeValue(item)) {
					return
				}
			}
		})
	default:
		return v
	}
}

func runtimeCopy(content fields) fields {
	c := fields{}
	for key, value := range content {
		c[key] = runtimeValue(value)
	}
	return c
}

// pool creates a pool whose UID is its name.
func (s *story) pool(name string, replicas int) {
	s.t.Helper()
	s.make(WarmPools, name, types.UID(name), fields{"spec": fields{"replicas": replicas}})
}

// claim creates a claim whose UID is its name.
func (s *story) claim(name, pool string) {
	s.t.Helper()
	s.make(PodClaims, name, types.UID(name), fields{"spec": fields{"poolName": pool}})
}

// pod creates a Pod of a pool. Its UID is its name.
func (s *story) pod(name, pool string) {
	s.t.Helper()
	s.make(Pods, name, types.UID(name), fields{"metadata": fields{
		"labels":          fields{labelPool: pool, labelState: "idle", labelHash: "v1"},
		"ownerReferences": ownerRef("WarmPool", pool, pool),
	}})
}

func ownerRef(kind, name, uid string) []any {
	return []any{fields{"apiVersion": "warmpool.dev/v1alpha1", "kind": kind, "name": name, "uid": uid, "controller": true}}
}

// ready makes a Pod Ready.
func (s *story) ready(pod string) {
	s.t.Helper()
	s.set(Pods, pod, []any{fields{"type": "Ready", "status": "True"}}, "status", "conditions")
}

// handOut is the one write that gives a Pod to a claim.
func (s *story) handOut(pod, claim string) {
	s.t.Helper()
	object := s.state[Pods.Resource+pod]
	labels := maps.Clone(object.GetLabels())
	labels[labelState], labels[labelClaim] = claimed, claim
	object.SetLabels(labels)
	s.set(Pods, pod, ownerRef("PodClaim", claim, claim), "metadata", "ownerReferences")
}

// bind writes the claim's status.
func (s *story) bind(claim, pod string) {
	s.t.Helper()
	s.set(PodClaims, claim, fields{
		"pod":                fields{"name": pod, "uid": pod},
		"observedGeneration": 1,
		"conditions":         []any{condition("Bound", "True", "HandedOut", 0)},
	}, "status")
}

// wait writes the status of a claim that waits.
func (s *story) wait(claim, reason string) {
	s.t.Helper()
	s.set(PodClaims, claim, fields{"conditions": []any{condition("Bound", "False", reason, 0)}}, "status")
}

// count writes the pool's status.
func (s *story) count(pool string, replicas, ready, pending int) {
	s.t.Helper()
	s.set(WarmPools, pool, fields{
		"replicas": replicas, "readyReplicas": ready, "updatedReplicas": replicas, "updatedReadyReplicas": ready,
		"pendingClaims": pending, "observedGeneration": 1, "updateRevision": "v1",
	}, "status")
}

func condition(kind, status, reason string, second int) fields {
	return fields{"type": kind, "status": status, "reason": reason, "lastTransitionTime": after(second).Format(time.RFC3339)}
}

// ending begins the deletion of an object.
func (s *story) ending(resource schema.GroupResource, name string) {
	s.t.Helper()
	s.set(resource, name, "2026-12-01T12:00:00Z", "metadata", "deletionTimestamp")
}

// correct is a story that breaks no rule: a pool of two fills, a claim takes a Pod, the
// pool refills, the claim is deleted and its Pod goes with it.
func correct(s *story) {
	s.pool("pool", 2)
	s.pod("a", "pool")
	s.pod("b", "pool")
	s.ready("a")
	s.ready("b")
	s.count("pool", 2, 2, 0)
	s.claim("claim", "pool")
	s.handOut("a", "claim")
	s.bind("claim", "a")
	s.pod("c", "pool")
	s.ready("c")
	s.claim("late", "pool")
	s.handOut("b", "late")
	s.pod("d", "pool")
	s.bind("late", "b")
	s.ready("d")
	s.remove(PodClaims, "claim")
	s.ending(Pods, "a")
	s.remove(Pods, "a")
}

// judgement is a case of a table: a story, and what is wrong with it.
type judgement struct {
	name  string
	story func(*story)
	terms Terms
	// want are the violations, each as "rule revision object: message".
	want []string
}

// judgeAll runs a table.
func judgeAll(t *testing.T, judge func(*History, Terms) []Violation, cases []judgement) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newStory(t)
			c.story(s)
			if diff := cmp.Diff(c.want, lines(judge(&s.h, c.terms))); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}

// lines are violations without their times.
func lines(found []Violation) []string {
	var all []string
	for _, v := range found {
		all = append(all, fmt.Sprintf("%s %d %s: %s", v.Rule, v.Revision, v.Object, v.Message))
	}
	return all
}

func TestCorrectStoryBreaksNoRule(t *testing.T) {
	s := newStory(t)
	correct(s)
	for _, terms := range []Terms{{}, {GarbageCollector: true}, {Logs: []faultproxy.Log{{}}}} {
		if got := lines(Judge(&s.h, terms)); got != nil {
			t.Errorf("Judge complains of %q", got)
		}
	}
	if got := lines(I6(&s.h)); got != nil {
		t.Errorf("I6 complains of %q", got)
	}
}
