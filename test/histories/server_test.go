package histories

// The API server: objects, their versions, and the conditions on writes.

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

// Answers of the server. A refusal, which is about what the request asks for, is any
// other error.
var (
	errConflict    = errors.New("409 or a failed test: the object has changed")
	errNotFound    = errors.New("404: there is no such object")
	errUnavailable = errors.New("503: ask again")
)

// actor is who writes.
type actor string

const (
	theController actor = "the controller"
	theKubelet    actor = "the kubelet"
	theCollector  actor = "the garbage collector"
	aUser         actor = "a user"
)

// view is what the server holds at one moment. Its objects are never changed.
type view struct {
	pools  map[string]*v1alpha1.WarmPool
	claims map[string]*v1alpha1.PodClaim
	pods   map[string]*corev1.Pod
}

// maxPast is how many writes a cache may be behind.
const maxPast = 20

type server struct {
	view
	now     time.Time
	version int64
	past    []view // oldest first, the last is the present
	judge   *judge

	// nodes are as they are now: a cache of them may be old, but then a Pod on a bad one
	// is only replaced later.
	nodes map[string]*corev1.Node

	quota  bool // no Pod is created
	policy bool // no Pod may have the label forbidden
}

const forbidden = "example.com/forbidden"

func newServer() *server {
	s := &server{
		view:   view{map[string]*v1alpha1.WarmPool{}, map[string]*v1alpha1.PodClaim{}, map[string]*corev1.Pod{}},
		now:    time.Date(2026, time.May, 1, 12, 0, 0, 0, time.UTC),
		policy: true,
	}
	s.nodes = goodNodes()
	s.judge = newJudge(s)
	s.past = []view{s.present()}
	return s
}

func goodNodes() map[string]*corev1.Node {
	nodes := map[string]*corev1.Node{}
	for _, name := range []string{"node-1", "node-2"} {
		nodes[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	return nodes
}

func (s *server) present() view {
	return view{maps.Clone(s.pools), maps.Clone(s.claims), maps.Clone(s.pods)}
}

// clock is the time as the server writes it into objects, to the second.
func (s *server) clock() metav1.Time { return metav1.NewTime(s.now).Rfc3339Copy() }

func (s *server) remember() {
	s.past = append(s.past, s.present())
	s.past = s.past[max(0, len(s.past)-maxPast):]
}

// stamp gives an object its next version, and one that is new its identity.
func (s *server) stamp(object metav1.Object) {
	s.version++
	object.SetResourceVersion(strconv.FormatInt(s.version, 10))
	if object.GetUID() == "" {
		object.SetUID(types.UID("uid-" + object.GetResourceVersion()))
		object.SetCreationTimestamp(s.clock())
		object.SetGeneration(1)
	}
}

func (s *server) putPod(by actor, pod *corev1.Pod) *corev1.Pod {
	before := s.pods[pod.Name]
	s.stamp(pod)
	s.pods[pod.Name] = pod
	s.remember()
	s.judge.pod(by, before, pod)
	return pod
}

func (s *server) removePod(by actor, pod *corev1.Pod) {
	s.version++
	delete(s.pods, pod.Name)
	s.remember()
	s.judge.pod(by, pod, nil)
}

func (s *server) putClaim(by actor, claim *v1alpha1.PodClaim) *v1alpha1.PodClaim {
	before := s.claims[claim.Name]
	s.stamp(claim)
	s.claims[claim.Name] = claim
	s.remember()
	s.judge.claim(by, before, claim)
	return claim
}

func (s *server) removeClaim(claim *v1alpha1.PodClaim) {
	s.version++
	delete(s.claims, claim.Name)
	s.remember()
}

func (s *server) putPool(pool *v1alpha1.WarmPool) {
	s.stamp(pool)
	s.pools[pool.Name] = pool
	s.remember()
	s.judge.pool(pool)
}

func (s *server) removePool(pool *v1alpha1.WarmPool) {
	s.version++
	delete(s.pools, pool.Name)
	s.remember()
}

// createPod doesn't look at the owner; that is the garbage collector's business.
func (s *server) createPod(pod *corev1.Pod) (*corev1.Pod, error) {
	if s.pods[pod.Name] != nil {
		return nil, errConflict
	}
	if s.quota {
		return nil, fmt.Errorf("pods %q is forbidden: exceeded quota", pod.Name)
	}
	pod = pod.DeepCopy()
	pod.Status.Phase = corev1.PodPending
	return s.putPod(theController, pod), nil
}

// patchPod applies a JSON patch, with the library that the real server uses.
func (s *server) patchPod(name string, patch []byte) (*corev1.Pod, error) {
	pod := s.pods[name]
	if pod == nil {
		return nil, errNotFound
	}
	document, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	patched, err := decoded.Apply(document)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errConflict, err)
	}
	var changed corev1.Pod
	if err := json.Unmarshal(patched, &changed); err != nil {
		return nil, err
	}
	controllers := 0
	for _, owner := range changed.OwnerReferences {
		if owner.Controller != nil && *owner.Controller {
			controllers++
		}
	}
	if controllers > 1 {
		return nil, fmt.Errorf("pods %q is invalid: it has %d controllers", name, controllers)
	}
	if s.policy && changed.Labels[forbidden] != "" {
		return nil, fmt.Errorf("pods %q is forbidden: label %s is not allowed", name, forbidden)
	}
	return s.putPod(theController, &changed), nil
}

// deletePod deletes a Pod if it is still as the caller knows it. A Pod that runs on a
// node is given time to end.
func (s *server) deletePod(by actor, known *corev1.Pod) error {
	pod := s.pods[known.Name]
	switch {
	case pod == nil:
		return errNotFound
	case pod.UID != known.UID || pod.ResourceVersion != known.ResourceVersion:
		return errConflict
	case pod.DeletionTimestamp != nil:
	case pod.Spec.NodeName == "" || hasEnded(pod):
		s.removePod(by, pod)
	default:
		pod = pod.DeepCopy()
		now := s.clock()
		pod.DeletionTimestamp = &now
		s.putPod(by, pod)
	}
	return nil
}

// errWriteOnce is what the CRD's rule answers.
var errWriteOnce = errors.New("status.pod is written once and can't be changed or removed")

func (s *server) updateClaimStatus(changed *v1alpha1.PodClaim) (*v1alpha1.PodClaim, error) {
	claim := s.claims[changed.Name]
	switch {
	case claim == nil:
		return nil, errNotFound
	case claim.UID != changed.UID || claim.ResourceVersion != changed.ResourceVersion:
		return nil, errConflict
	case claim.Status.Pod != nil && (changed.Status.Pod == nil || *changed.Status.Pod != *claim.Status.Pod):
		return nil, errWriteOnce
	}
	claim = claim.DeepCopy()
	claim.Status = *changed.Status.DeepCopy()
	return s.putClaim(theController, claim), nil
}

// deleteClaim deletes a claim if it is still as the caller knows it. The garbage
// collector takes its Pod.
func (s *server) deleteClaim(known *v1alpha1.PodClaim) error {
	claim := s.claims[known.Name]
	switch {
	case claim == nil:
		return errNotFound
	case claim.UID != known.UID || claim.ResourceVersion != known.ResourceVersion:
		return errConflict
	}
	s.judge.claimDeletion(claim)
	s.removeClaim(claim)
	return nil
}

func (s *server) updatePoolStatus(changed *v1alpha1.WarmPool) error {
	pool := s.pools[changed.Name]
	switch {
	case pool == nil:
		return errNotFound
	case pool.UID != changed.UID || pool.ResourceVersion != changed.ResourceVersion:
		return errConflict
	}
	pool = pool.DeepCopy()
	pool.Status = *changed.Status.DeepCopy()
	s.putPool(pool)
	return nil
}

// sorted returns the objects of a map in the order of their names, so that a history
// can be repeated.
func sorted[T any](objects map[string]T) []T {
	var all []T
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		all = append(all, objects[name])
	}
	return all
}
