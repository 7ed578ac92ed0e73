package main

// A fake API server: the generated fake clientsets, taught what this controller relies
// on and they lack. Their tracker gives objects no uid and no resourceVersion, takes
// every update and every delete whatever it was decided on, and answers a failed test
// of a JSON patch with an error of its own. And here the watches can be kept silent, so
// that a cache is stale.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/freshness"
	"warmpool.dev/controller/pkg/generated/clientset/versioned/fake"
	"warmpool.dev/controller/pkg/pool"
)

var (
	poolResource  = v1alpha1.WarmPoolKind.GroupVersion().WithResource("warmpools")
	claimResource = v1alpha1.PodClaimKind.GroupVersion().WithResource("podclaims")
	podResource   = corev1.SchemeGroupVersion.WithResource("pods")
	nodeResource  = corev1.SchemeGroupVersion.WithResource("nodes")
)

// firstVersion is the resourceVersion of the first object that is put.
const firstVersion = 101

// apiServer is what both clientsets talk to.
type apiServer struct {
	kube     *kubefake.Clientset
	warmpool *fake.Clientset
	// The clientsets' own trackers, with versions. That of pods has the nodes too.
	pods, others *versionedTracker

	mu      sync.Mutex
	version int64
	// stored are the versions of all objects that a tracker stored, by resource and
	// in this order: the tracker numbers them itself, and a watch starts from its
	// number and not from ours.
	stored  map[schema.GroupVersionResource][]int64
	deleted map[types.UID]int64
	latest  map[schema.GroupVersionResource]int64
	silent  bool
	refusal func(clienttesting.Action) error
	writes  []string
}

func newAPIServer() *apiServer {
	a := &apiServer{
		kube:     kubefake.NewSimpleClientset(),
		warmpool: fake.NewSimpleClientset(),
		version:  firstVersion - 1,
		stored:   map[schema.GroupVersionResource][]int64{},
		deleted:  map[types.UID]int64{},
		latest:   map[schema.GroupVersionResource]int64{},
	}
	a.pods = &versionedTracker{a.kube.Tracker(), a}
	a.others = &versionedTracker{a.warmpool.Tracker(), a}
	a.kube.PrependReactor("*", "*", a.serve(a.pods))
	a.kube.PrependWatchReactor("*", a.serveWatch(a.pods))
	a.warmpool.PrependReactor("*", "*", a.serve(a.others))
	a.warmpool.PrependWatchReactor("*", a.serveWatch(a.others))
	return a
}

// refuse makes the API server answer requests with the error that refusal returns for
// them; nil: with what they ask for.
func (a *apiServer) refuse(refusal func(clienttesting.Action) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refusal = refusal
}

// behindTheCaches makes changes that no watch tells of.
func (a *apiServer) behindTheCaches(change func()) {
	a.setSilent(true)
	change()
	settle() // until the watches have dropped the events
	a.setSilent(false)
}

func (a *apiServer) setSilent(silent bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.silent = silent
}

// put creates or overwrites an object, as somebody else than the controller would.
func (a *apiServer) put(t *testing.T, objects ...runtime.Object) {
	t.Helper()
	for _, object := range objects {
		tracker, resource := a.trackerOf(t, object)
		object = object.DeepCopyObject()
		accessor := accessorOf(object)
		accessor.SetResourceVersion("")
		err := tracker.Update(resource, object, accessor.GetNamespace())
		if apierrors.IsNotFound(err) {
			err = tracker.Create(resource, object, accessor.GetNamespace())
		}
		if err != nil {
			t.Fatalf("put %s %s: %v", resource.Resource, accessor.GetName(), err)
		}
	}
}

// remove deletes an object, as somebody else than the controller would.
func (a *apiServer) remove(t *testing.T, object runtime.Object) {
	t.Helper()
	tracker, resource := a.trackerOf(t, object)
	if err := tracker.Delete(resource, accessorOf(object).GetNamespace(), accessorOf(object).GetName()); err != nil {
		t.Fatal(err)
	}
}

func (a *apiServer) trackerOf(t *testing.T, object runtime.Object) (*versionedTracker, schema.GroupVersionResource) {
	t.Helper()
	switch object.(type) {
	case *v1alpha1.WarmPool:
		return a.others, poolResource
	case *v1alpha1.PodClaim:
		return a.others, claimResource
	case *corev1.Pod:
		return a.pods, podResource
	case *corev1.Node:
		return a.pods, nodeResource
	default:
		t.Fatalf("no resource for a %T", object)
		return nil, schema.GroupVersionResource{}
	}
}

func (a *apiServer) pool(t *testing.T, name string) *v1alpha1.WarmPool {
	t.Helper()
	return get[v1alpha1.WarmPool](t, a.others, poolResource, name)
}

func (a *apiServer) claim(t *testing.T, name string) *v1alpha1.PodClaim {
	t.Helper()
	return get[v1alpha1.PodClaim](t, a.others, claimResource, name)
}

func (a *apiServer) pod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	return get[corev1.Pod](t, a.pods, podResource, name)
}

func get[T any](t *testing.T, tracker clienttesting.ObjectTracker, resource schema.GroupVersionResource, name string) *T {
	t.Helper()
	object, err := tracker.Get(resource, "ci", name)
	if err != nil {
		t.Fatal(err)
	}
	return any(object).(*T)
}

// allPods returns all Pods, in the order of their names.
func (a *apiServer) allPods(t *testing.T) []corev1.Pod {
	t.Helper()
	list, err := a.pods.List(podResource, corev1.SchemeGroupVersion.WithKind("Pod"), metav1.NamespaceAll)
	if err != nil {
		t.Fatal(err)
	}
	pods := list.(*corev1.PodList).Items
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

// makeReady does what a kubelet does to the Pods that aren't Ready yet.
func (a *apiServer) makeReady(t *testing.T) {
	t.Helper()
	for a.makeOneReady(t) {
	}
}

// makeOneReady does it to one of them, and returns false if there is none.
func (a *apiServer) makeOneReady(t *testing.T) (found bool) {
	t.Helper()
	for _, pod := range a.allPods(t) {
		if !slices.ContainsFunc(pod.Status.Conditions, isReady) {
			ready(&pod)
			a.put(t, &pod)
			return true
		}
	}
	return false
}

// state describes all objects, one a line.
func (a *apiServer) state(t *testing.T) []string {
	t.Helper()
	lines := []string{}
	for _, pod := range a.allPods(t) {
		lines = append(lines, describePod(&pod))
	}
	for _, kind := range []schema.GroupVersionKind{v1alpha1.PodClaimKind, v1alpha1.WarmPoolKind} {
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		list, err := a.others.List(resource, kind, metav1.NamespaceAll)
		if err != nil {
			t.Fatal(err)
		}
		err = meta.EachListItem(list, func(object runtime.Object) error {
			switch object := object.(type) {
			case *v1alpha1.PodClaim:
				lines = append(lines, describeClaim(object))
			case *v1alpha1.WarmPool:
				lines = append(lines, describePool(object))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return sorted(lines)
}

// sent returns the requests that would change something, refused ones included, since
// it was last called, in alphabetical order.
func (a *apiServer) sent() []string { return sorted(a.sentInOrder()) }

// sentInOrder returns the same in the order in which they came.
func (a *apiServer) sentInOrder() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	writes := a.writes
	a.writes = nil
	return writes
}

func sorted(lines []string) []string {
	lines = append([]string{}, lines...)
	slices.Sort(lines)
	return lines
}

func (a *apiServer) serve(tracker clienttesting.ObjectTracker) clienttesting.ReactionFunc {
	store := clienttesting.ObjectReaction(tracker)
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		if refusal := a.note(action); refusal != nil {
			if err := refusal(action); err != nil {
				return true, nil, err
			}
		}
		_, object, err := store(action)
		var status apierrors.APIStatus
		if action.GetVerb() == "patch" && err != nil && !errors.As(err, &status) {
			err = testFailed(err)
		}
		return true, object, err
	}
}

// testFailed is the API server's answer to a JSON patch of which a test failed
// (k8s.io/apiserver, jsonPatcher.applyJSPatch).
func testFailed(cause error) error {
	return apierrors.NewGenericServerResponse(422, "", schema.GroupResource{}, "", cause.Error(), 0, false)
}

func (a *apiServer) serveWatch(tracker clienttesting.ObjectTracker) clienttesting.WatchReactionFunc {
	return func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := tracker.Watch(action.GetResource(), action.GetNamespace(), action.(clienttesting.WatchActionImpl).ListOptions)
		return true, w, err
	}
}

// note writes a request down and returns what refuses it.
func (a *apiServer) note(action clienttesting.Action) func(clienttesting.Action) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if line := describeWrite(action); line != "" {
		a.writes = append(a.writes, line)
	}
	return a.refusal
}

// describeWrite returns "" for a request that only reads, and for those that are about
// events and leases. The names of Pods that are created are random.
func describeWrite(action clienttesting.Action) string {
	resource := action.GetResource().Resource
	if action.GetSubresource() != "" {
		resource += "/" + action.GetSubresource()
	}
	if resource == "events" || resource == "leases" {
		return ""
	}
	switch action := action.(type) {
	case clienttesting.CreateActionImpl:
		return "create " + resource
	case clienttesting.UpdateActionImpl:
		return fmt.Sprintf("update %s %s", resource, accessorOf(action.Object).GetName())
	case clienttesting.PatchActionImpl:
		return fmt.Sprintf("patch %s %s", resource, action.Name)
	case clienttesting.DeleteActionImpl:
		line := fmt.Sprintf("delete %s %s", resource, action.Name)
		if p := action.DeleteOptions.Preconditions; p != nil && p.UID != nil && p.ResourceVersion != nil {
			line += fmt.Sprintf(" if it is %s at %s", *p.UID, *p.ResourceVersion)
		}
		return line
	default:
		return ""
	}
}

// versionedTracker gives the objects of a tracker uids and resourceVersions, and
// checks preconditions.
type versionedTracker struct {
	clienttesting.ObjectTracker
	api *apiServer
}

func (v *versionedTracker) Create(resource schema.GroupVersionResource, object runtime.Object, namespace string, options ...metav1.CreateOptions) error {
	v.api.mu.Lock()
	defer v.api.mu.Unlock()
	object = object.DeepCopyObject()
	accessor := accessorOf(object)
	if accessor.GetUID() == "" {
		accessor.SetUID(types.UID(fmt.Sprintf("uid-%d", v.api.version+1)))
	}
	if created := accessor.GetCreationTimestamp(); created.IsZero() {
		accessor.SetCreationTimestamp(metav1.NewTime(time.Now()))
	}
	return v.store(resource, object, func() error { return v.ObjectTracker.Create(resource, object, namespace, options...) })
}

func (v *versionedTracker) Update(resource schema.GroupVersionResource, object runtime.Object, namespace string, options ...metav1.UpdateOptions) error {
	v.api.mu.Lock()
	defer v.api.mu.Unlock()
	object = object.DeepCopyObject()
	current, err := v.Get(resource, namespace, accessorOf(object).GetName())
	if err != nil {
		return err
	}
	if decidedOn := accessorOf(object).GetResourceVersion(); decidedOn != "" && decidedOn != accessorOf(current).GetResourceVersion() {
		return apierrors.NewConflict(resource.GroupResource(), accessorOf(object).GetName(), errors.New("the object has been modified"))
	}
	return v.store(resource, object, func() error { return v.ObjectTracker.Update(resource, object, namespace, options...) })
}

func (v *versionedTracker) Patch(resource schema.GroupVersionResource, object runtime.Object, namespace string, options ...metav1.PatchOptions) error {
	v.api.mu.Lock()
	defer v.api.mu.Unlock()
	return v.store(resource, object, func() error { return v.ObjectTracker.Patch(resource, object, namespace, options...) })
}

func (v *versionedTracker) Delete(resource schema.GroupVersionResource, namespace, name string, options ...metav1.DeleteOptions) error {
	v.api.mu.Lock()
	defer v.api.mu.Unlock()
	object, err := v.Get(resource, namespace, name)
	if err != nil {
		return err
	}
	current := accessorOf(object)
	for _, o := range options {
		if p := o.Preconditions; p != nil && (p.UID != nil && *p.UID != current.GetUID() ||
			p.ResourceVersion != nil && *p.ResourceVersion != current.GetResourceVersion()) {
			return apierrors.NewConflict(resource.GroupResource(), name, errors.New("Precondition failed"))
		}
	}
	v.api.version++
	v.api.deleted[current.GetUID()] = v.api.version
	v.api.latest[resource] = v.api.version
	return v.ObjectTracker.Delete(resource, namespace, name, options...)
}

// store stores an object under the next version. The caller holds the lock.
func (v *versionedTracker) store(resource schema.GroupVersionResource, object runtime.Object, store func() error) error {
	next := v.api.version + 1
	accessorOf(object).SetResourceVersion(strconv.FormatInt(next, 10))
	if err := store(); err != nil {
		return err
	}
	v.api.version = next
	v.api.latest[resource] = next
	v.api.stored[resource] = append(v.api.stored[resource], next)
	return nil
}

func (v *versionedTracker) List(resource schema.GroupVersionResource, kind schema.GroupVersionKind, namespace string, options ...metav1.ListOptions) (runtime.Object, error) {
	v.api.mu.Lock()
	defer v.api.mu.Unlock()
	list, err := v.ObjectTracker.List(resource, kind, namespace, options...)
	if err != nil {
		return nil, err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	accessor.SetResourceVersion(strconv.FormatInt(v.api.version, 10))
	return list, nil
}

func (v *versionedTracker) Watch(resource schema.GroupVersionResource, namespace string, options ...metav1.ListOptions) (watch.Interface, error) {
	v.api.mu.Lock()
	defer v.api.mu.Unlock()
	for i := range options {
		if options[i].ResourceVersion == "" {
			continue
		}
		version, err := strconv.ParseInt(options[i].ResourceVersion, 10, 64)
		if err != nil {
			return nil, err
		}
		// The tracker gives the first object of a resource the number 2.
		older := slices.IndexFunc(append(slices.Clone(v.api.stored[resource]), version+1), func(stored int64) bool { return stored > version })
		options[i].ResourceVersion = strconv.Itoa(1 + older)
	}
	inner, err := v.ObjectTracker.Watch(resource, namespace, options...)
	if err != nil {
		return nil, err
	}
	return watch.Filter(inner, v.api.deliver), nil
}

// deliver gives a deletion its own version, as the API server does, and drops what the
// watches shall not tell. The tracker's watch may hand out the tracker's own object.
func (a *apiServer) deliver(event watch.Event) (watch.Event, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	event.Object = event.Object.DeepCopyObject()
	if event.Type == watch.Deleted {
		object := accessorOf(event.Object)
		object.SetResourceVersion(strconv.FormatInt(a.deleted[object.GetUID()], 10))
	}
	return event, !a.silent
}

// live is how the guards ask the fake what it has, as they do by quorum reads.
type live struct{ api *apiServer }

// Version implements freshness.Live.
func (l live) Version(_ context.Context, feed *freshness.Feed) (string, error) {
	l.api.mu.Lock()
	defer l.api.mu.Unlock()
	return strconv.FormatInt(max(l.api.latest[feed.Resource()], firstVersion-1), 10), nil
}

// Objects implements freshness.Live.
func (l live) Objects(_ context.Context, feed *freshness.Feed) (map[types.UID]string, error) {
	tracker, kind := l.api.others, v1alpha1.WarmPoolKind
	switch feed.Resource() {
	case claimResource:
		kind = v1alpha1.PodClaimKind
	case podResource:
		tracker, kind = l.api.pods, corev1.SchemeGroupVersion.WithKind("Pod")
	}
	list, err := tracker.List(feed.Resource(), kind, metav1.NamespaceAll)
	if err != nil {
		return nil, err
	}
	versions := map[types.UID]string{}
	err = meta.EachListItem(list, func(object runtime.Object) error {
		versions[accessorOf(object).GetUID()] = accessorOf(object).GetResourceVersion()
		return nil
	})
	return versions, err
}

func accessorOf(object runtime.Object) metav1.Object {
	accessor, err := meta.Accessor(object)
	if err != nil {
		panic(err) // every object of these tests has metadata
	}
	return accessor
}

func describePod(pod *corev1.Pod) string {
	owner := "nobody"
	if ref := metav1.GetControllerOf(pod); ref != nil {
		owner = fmt.Sprintf("%s %s", ref.Kind, ref.UID)
	}
	words := []string{"of " + owner, pod.Labels[v1alpha1.LabelState], "not ready"}
	if slices.ContainsFunc(pod.Status.Conditions, isReady) {
		words[2] = "ready"
	}
	return fmt.Sprintf("pod %s: %s", nameOf(pod), strings.Join(words, ", "))
}

// nameOf hides the random part of the name of a Pod that the controller made.
func nameOf(pod *corev1.Pod) string {
	if made := pod.Labels[v1alpha1.LabelPool] + "-"; strings.HasPrefix(pod.Name, made) {
		return made + "*"
	}
	return pod.Name
}

func isReady(c corev1.PodCondition) bool {
	return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
}

func describeClaim(claim *v1alpha1.PodClaim) string {
	words := []string{}
	for _, c := range claim.Status.Conditions {
		words = append(words, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
	}
	if bound := claim.Status.Pod; bound != nil {
		words = append(words, fmt.Sprintf("pod %s", bound.UID))
	}
	if len(words) == 0 {
		words = append(words, "no status")
	}
	return fmt.Sprintf("claim %s: %s", claim.Name, strings.Join(words, ", "))
}

// describePool names, of the conditions, Available and those of the others that tell
// of something out of the ordinary.
func describePool(p *v1alpha1.WarmPool) string {
	if p.Status.Selector != pool.IdleSelector(p.Name) {
		return fmt.Sprintf("pool %s: no status", p.Name)
	}
	line := fmt.Sprintf("pool %s: %d idle, %d ready, %d claimed, %d pending", p.Name,
		p.Status.Replicas, p.Status.ReadyReplicas, p.Status.ClaimedReplicas, p.Status.PendingClaims)
	for _, kind := range []string{v1alpha1.PoolAvailable, v1alpha1.PoolReplicaFailure, v1alpha1.PoolAtCapacity, v1alpha1.PoolPaused} {
		if meta.IsStatusConditionTrue(p.Status.Conditions, kind) {
			line += ", " + kind
		}
	}
	return line
}
