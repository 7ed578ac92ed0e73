package history

// The rules that are judged on proxies' logs.

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/test/faultproxy"
)

// owned is the metadata of a Pod in a creation.
func owned(name string, uid types.UID) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "warmpool.dev/v1alpha1", Kind: "WarmPool", Name: "pool", UID: uid, Controller: ptr.To(true)},
	}}
}

func logOf(requests ...faultproxy.Request) faultproxy.Log {
	for i := range requests {
		requests[i].ID = int64(i + 1)
		requests[i].Who = "a"
		requests[i].Namespace = "ns"
	}
	return faultproxy.Log{Requests: requests}
}

func TestEveryWriteIsGuardedAndEveryReadFresh(t *testing.T) {
	uid, version := types.UID("uid"), "1"
	both := metav1.Preconditions{UID: &uid, ResourceVersion: &version}
	for _, c := range []struct {
		name    string
		request faultproxy.Request
		want    string
	}{
		{"a guarded delete", faultproxy.Request{Verb: "delete", Resource: "pods", Preconditions: both}, ""},
		{"a delete by uid alone", faultproxy.Request{Verb: "delete", Resource: "pods", Preconditions: metav1.Preconditions{UID: &uid}}, "delete: without the preconditions uid and resourceVersion"},
		{"a delete by version alone", faultproxy.Request{Verb: "delete", Resource: "podclaims", Preconditions: metav1.Preconditions{ResourceVersion: &version}}, "delete: without the preconditions uid and resourceVersion"},
		{"a delete of all", faultproxy.Request{Verb: "deletecollection", Resource: "pods"}, "deletecollection: whatever may be there"},
		{"an eviction", faultproxy.Request{Verb: "create", Resource: "pods", Subresource: "eviction", Meta: owned("a", "uid")}, "create: an eviction"},
		{"a guarded update", faultproxy.Request{Verb: "update", Resource: "podclaims", Subresource: "status", Meta: metav1.ObjectMeta{ResourceVersion: "1"}}, ""},
		{"a bare update", faultproxy.Request{Verb: "update", Resource: "podclaims"}, "update: without a resourceVersion"},
		{"a patch that tests the uid", faultproxy.Request{Verb: "patch", Resource: "pods", Tests: []string{"/metadata/uid"}}, ""},
		{"a patch at a version", faultproxy.Request{Verb: "patch", Resource: "pods", Meta: metav1.ObjectMeta{ResourceVersion: "1"}}, ""},
		{"a bare patch", faultproxy.Request{Verb: "patch", Resource: "pods", Tests: []string{"/status"}}, "patch: without a resourceVersion, and without a test of the uid"},
		{"a named creation", faultproxy.Request{Verb: "create", Resource: "pods", Meta: owned("a", "uid")}, ""},
		{"a creation by generateName", faultproxy.Request{Verb: "create", Resource: "pods", Meta: metav1.ObjectMeta{GenerateName: "a-"}}, "create: without a name of its sender's choice"},
		{"a creation without an owner", faultproxy.Request{Verb: "create", Resource: "pods", Meta: metav1.ObjectMeta{Name: "a"}}, "create: without an owner's UID"},
		{"a creation of a Lease", faultproxy.Request{Verb: "create", Group: "coordination.k8s.io", Resource: "leases", Meta: metav1.ObjectMeta{Name: "a"}}, ""},
		{"an event", faultproxy.Request{Verb: "create", Resource: "events"}, ""},
		{"a review", faultproxy.Request{Verb: "create", Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}, ""},
		{"a fresh list", faultproxy.Request{Verb: "list", Resource: "pods"}, ""},
		{"a list from the cache", faultproxy.Request{Verb: "list", Resource: "pods", Query: map[string][]string{"resourceVersion": {"0"}}}, "list: resourceVersion=0, which may be answered from a cache of any age"},
		{"a watch from the cache", faultproxy.Request{Verb: "watch", Resource: "pods", Query: map[string][]string{"resourceVersion": {"0"}}}, "watch: resourceVersion=0, which may be answered from a cache of any age"},
		{"a get", faultproxy.Request{Verb: "get", Resource: "pods"}, ""},
	} {
		var got string
		if found := O17(logOf(c.request)); len(found) > 0 {
			got = found[0].Message
		}
		want := c.want
		if want != "" {
			want = `request 1 of "a": ` + want
		}
		if got != want {
			t.Errorf("%s: %q, want %q", c.name, got, want)
		}
	}
}

func TestNothingIsWrittenAtRest(t *testing.T) {
	s := newStory(t)
	filled(s) // at 1 to 4
	s.make(Leases, "leader", "leader", fields{"spec": fields{}})
	if got := lines(I7(&s.h, after(5), after(9))); got != nil {
		t.Errorf("I7 complains of %q at rest", got)
	}
	if diff := cmp.Diff([]string{"I7 4 warmpools ns/pool: written at rest"}, lines(I7(&s.h, after(4), after(9)))); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
	log := logOf(
		faultproxy.Request{Verb: "update", Resource: "warmpools", Name: "pool", Arrived: after(1)},
		faultproxy.Request{Verb: "create", Resource: "events", Name: "e", Arrived: after(4)},
		faultproxy.Request{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Arrived: after(4)},
		faultproxy.Request{Verb: "list", Resource: "pods", Arrived: after(4)},
		faultproxy.Request{Verb: "create", Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews", Arrived: after(4)},
	)
	want := []string{`I7 0 events ns/e: request 2 of "a": create at rest`}
	if diff := cmp.Diff(want, lines(I7OnWire(after(2), after(9), log))); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"update warmpools": 1, "create events": 1, "update leases": 1}, Writes(log)); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestFailuresArePaced(t *testing.T) {
	pace := Pace{Base: 5 * time.Millisecond, Cap: time.Minute}
	// failures are creations for one owner, at these times, each told code.
	failures := func(code int, at ...time.Duration) faultproxy.Log {
		var requests []faultproxy.Request
		for _, d := range at {
			requests = append(requests, faultproxy.Request{Verb: "create", Resource: "pods", Meta: owned("x", "pool"), Name: d.String(), Arrived: begin.Add(d), Told: code})
		}
		return logOf(requests...)
	}
	every := func(d time.Duration, n int) []time.Duration {
		var at []time.Duration
		for i := range n {
			at = append(at, time.Duration(i)*d)
		}
		return at
	}
	// each are failures at once, one for each of many objects.
	each := func(verb string, meta metav1.ObjectMeta) faultproxy.Log {
		var requests []faultproxy.Request
		for i := range 50 {
			requests = append(requests, faultproxy.Request{Verb: verb, Resource: "pods", Meta: meta, Name: strconv.Itoa(i), Arrived: begin, Told: 403})
		}
		return logOf(requests...)
	}
	var backoff []time.Duration // 5 ms, 10 ms, ... as a rate limiter has it
	for d, at := 5*time.Millisecond, time.Duration(0); at < 10*time.Minute; d = min(2*d, time.Minute) {
		backoff = append(backoff, at)
		at += d
	}
	for _, c := range []struct {
		name string
		log  faultproxy.Log
		pace Pace
		bad  bool
	}{
		{"a backoff", failures(403, backoff...), pace, false},
		{"a backoff whose answers are lost", failures(0, backoff...), pace, false},
		{"a hot loop", failures(403, every(5*time.Millisecond, 100)...), pace, true},
		{"a hot loop that is never answered", failures(0, every(5*time.Millisecond, 100)...), pace, true},
		{"a retry each second for minutes", failures(500, every(time.Second, 300)...), pace, true},
		{"a burst at once", failures(403, every(0, 20)...), pace, true},
		{"a burst at once, where bursts are allowed", failures(403, every(0, 20)...), Pace{Base: pace.Base, Cap: pace.Cap, Burst: 10}, false},
		{"creations of many objects without an owner", each("create", metav1.ObjectMeta{}), pace, false},
		{"creations of many objects of one owner", each("create", owned("x", "pool")), pace, true},
		{"updates of many objects of one owner", each("update", owned("x", "pool")), pace, false},
		{"many successes", failures(201, every(time.Millisecond, 100)...), pace, false},
	} {
		if got := I8(c.pace, c.log); (len(got) > 0) != c.bad {
			t.Errorf("%s: I8 complains of %q, want that it does: %t", c.name, lines(got), c.bad)
		}
	}
}

func TestNothingIsWrittenBeforeEverythingIsSeen(t *testing.T) {
	write := faultproxy.Request{Verb: "create", Resource: "pods", Name: "x", Arrived: after(5)}
	list := faultproxy.Request{Verb: "list", Resource: "pods", Told: 200, ToldRV: "10", Replied: after(4)}
	bookmark := func(second int, end bool) faultproxy.Delivery {
		return faultproxy.Delivery{Time: after(second), Resource: PodClaims, Type: "BOOKMARK", ResourceVersion: "10", Initial: true, InitialEnd: end}
	}
	late := list
	late.Replied = after(6)
	refused := list
	refused.Told = 403
	for _, c := range []struct {
		name       string
		requests   []faultproxy.Request
		deliveries []faultproxy.Delivery
		want       []string
	}{
		{"both are seen", []faultproxy.Request{list, write}, []faultproxy.Delivery{bookmark(4, true)}, nil},
		{"the list comes later", []faultproxy.Request{late, write}, []faultproxy.Delivery{bookmark(4, true)}, []string{`I9 0 pods ns/x: request 2 of "a": create before the pods were seen`}},
		{"the list is refused", []faultproxy.Request{refused, write}, []faultproxy.Delivery{bookmark(4, true)}, []string{`I9 0 pods ns/x: request 2 of "a": create before the pods were seen`}},
		{"the initial events haven't ended", []faultproxy.Request{list, write}, []faultproxy.Delivery{bookmark(4, false), bookmark(6, true)}, []string{`I9 0 pods ns/x: request 2 of "a": create before the podclaims.warmpool.dev were seen`}},
		{"a Lease is free", []faultproxy.Request{{Verb: "update", Group: "coordination.k8s.io", Resource: "leases"}}, nil, nil},
	} {
		log := logOf(c.requests...)
		log.Deliveries = c.deliveries
		if diff := cmp.Diff(c.want, lines(I9(log, Pods, PodClaims))); diff != "" {
			t.Errorf("%s: violations (-want +got):\n%s", c.name, diff)
		}
	}
}

// leaseOf is a Lease as its holder writes it.
func leaseOf(holder string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(holder), LeaseDurationSeconds: ptr.To(int32(15)), RenewTime: &metav1.MicroTime{Time: renewed},
		},
	}
}

// leases is a history in which a-1 holds the lease from 1 on, renews it at 2, and b-1
// takes it at 20.
func leases(t *testing.T) *History {
	t.Helper()
	s := newStory(t)
	version := func(second int, holder string) {
		s.make(Leases, "leader", "leader", fields{"spec": fields{
			"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": after(second).Format(metav1.RFC3339Micro),
		}})
		s.h.Versions[len(s.h.Versions)-1].Time = after(second)
	}
	version(1, "a-1")
	version(2, "a-1")
	version(20, "b-1") // at revision 3
	return &s.h
}

func TestOnlyTheLeaderSends(t *testing.T) {
	inJSON, err := json.Marshal(leaseOf("a-1", after(1)))
	if err != nil {
		t.Fatal(err)
	}
	inProtobuf, err := runtime.Encode(scheme.Codecs.EncoderForVersion(protobufOf(t), coordinationv1.SchemeGroupVersion), leaseOf("a-1", after(1)))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		at     time.Time
		body   []byte
		change func(*faultproxy.Request)
		terms  Terms
		bad    bool
	}{
		{name: "while it leads", at: after(10), body: inJSON},
		{name: "while it leads, as its lease in protobuf says", at: after(10), body: inProtobuf},
		{name: "just before the recorder heard of its lease", at: begin.Add(500 * time.Millisecond), body: inJSON},
		{name: "long before it led", at: begin.Add(-time.Second), body: inJSON, bad: true},
		{name: "after the lease has run out", at: after(18), body: inJSON, bad: true},
		{name: "after its own deadline", at: after(10), body: inJSON, terms: Terms{Deadline: 5 * time.Second}, bad: true},
		{name: "after another took the lease", at: after(22), body: inJSON, terms: Terms{Deadline: time.Hour}, bad: true},
		{name: "without ever having asked for the lease", at: after(10), bad: true},
		{name: "right after it was thawed", at: after(22), body: inJSON, terms: Terms{Woken: map[string][]time.Time{"a": {after(22)}}}},
		{name: "long after it was thawed", at: after(23), body: inJSON, terms: Terms{Woken: map[string][]time.Time{"a": {after(22)}}}, bad: true},
		{name: "right after another was thawed", at: after(22), body: inJSON, terms: Terms{Woken: map[string][]time.Time{"b": {after(22)}}}, bad: true},
		{name: "an event, after all", at: after(18), body: inJSON, change: func(r *faultproxy.Request) { r.Resource = "events" }},
		{name: "a read, after all", at: after(18), body: inJSON, change: func(r *faultproxy.Request) { r.Verb = "list" }},
	} {
		write := faultproxy.Request{Verb: "patch", Resource: "pods", Name: "x", Arrived: c.at}
		if c.change != nil {
			c.change(&write)
		}
		c.terms.Logs = []faultproxy.Log{logOf(faultproxy.Request{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Body: c.body}, write)}
		if got := I10(leases(t), c.terms); (len(got) > 0) != c.bad {
			t.Errorf("%s: I10 complains of %q, want that it does: %t", c.name, lines(got), c.bad)
		}
	}
}

func protobufOf(t *testing.T) runtime.Encoder {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		t.Fatal("no protobuf")
	}
	return info.Serializer
}

func TestNoWriteTakesEffectOutsideItsTerm(t *testing.T) {
	inJSON, err := json.Marshal(leaseOf("a-1", after(1)))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		write faultproxy.Request
		want  []string
	}{
		{"in its term", faultproxy.Request{Verb: "patch", Code: 200, AnswerRV: "3"}, nil},
		{"in another's", faultproxy.Request{Verb: "patch", Code: 200, AnswerRV: "4"}, []string{`O18 0 pods ns/: request 2 of "a": patch took effect at revision 4, in the term of "b-1"`}},
		{"in another's, in vain", faultproxy.Request{Verb: "patch", Code: 422}, nil},
		{"in another's, a creation", faultproxy.Request{Verb: "create", Code: 201, AnswerRV: "4"}, nil},
	} {
		c.write.Resource = "pods"
		log := logOf(faultproxy.Request{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Body: inJSON}, c.write)
		if diff := cmp.Diff(c.want, lines(O18(leases(t), Terms{Logs: []faultproxy.Log{log}}))); diff != "" {
			t.Errorf("%s: violations (-want +got):\n%s", c.name, diff)
		}
	}
}
