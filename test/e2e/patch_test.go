package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/pool"
	"warmpool.dev/controller/test/environment"
)

// handOutFixture is a pool with one Pod, ready to be handed out, and two claims. No
// controller and no kubelet runs: the tests here act in their place.
type handOutFixture struct {
	t            *testing.T
	ns           *environment.Namespace
	pool         *v1alpha1.WarmPool
	pod          *corev1.Pod // as the controller's cache holds it
	claim, other *v1alpha1.PodClaim
}

func newHandOutFixture(t *testing.T, annotations map[string]string, podMetadata *v1alpha1.PodMetadata) *handOutFixture {
	t.Helper()
	ns := env.Namespace(t)
	f := &handOutFixture{t: t, ns: ns}
	f.pool = ns.CreatePool(environment.Pool("runners", 1, func(p *v1alpha1.WarmPool) { p.Spec.Template.Annotations = annotations }))
	f.claim = ns.CreateClaim(environment.Claim("build", "runners", func(c *v1alpha1.PodClaim) { c.Spec.PodMetadata = podMetadata }))
	f.other = ns.CreateClaim(environment.Claim("other", "runners"))
	pod, err := env.Kube.CoreV1().Pods(ns.Name).Create(t.Context(), pool.NewPod(f.pool, "runners-1"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ns.SetReady(pod, true)
	f.pod = f.live()
	return f
}

// live is the Pod as it is at the API server.
func (f *handOutFixture) live() *corev1.Pod {
	f.t.Helper()
	pod, err := env.Kube.CoreV1().Pods(f.ns.Name).Get(f.t.Context(), "runners-1", metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return pod
}

// handOut sends the patch that the controller makes of its snapshot.
func (f *handOutFixture) handOut(claim *v1alpha1.PodClaim) (*corev1.Pod, error) {
	f.t.Helper()
	patch, err := pool.HandOutPatch(f.pod, claim)
	if err != nil {
		f.t.Fatal(err)
	}
	return env.Kube.CoreV1().Pods(f.ns.Name).Patch(f.t.Context(), f.pod.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
}

// merge changes the Pod behind the controller's back, by a JSON merge patch.
func (f *handOutFixture) merge(patch any, subresources ...string) {
	f.t.Helper()
	content, err := json.Marshal(patch)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := env.Kube.CoreV1().Pods(f.ns.Name).Patch(f.t.Context(), f.pod.Name, types.MergePatchType, content, metav1.PatchOptions{}, subresources...); err != nil {
		f.t.Fatal(err)
	}
}

// metadata is a merge patch of an object's metadata.
func metadata(field string, value any) any {
	return map[string]any{"metadata": map[string]any{field: value}}
}

// testFailed checks that an answer is the one to a failed test: 422 Invalid with
// details that are there and empty. By that the controller tells it from an object
// that doesn't validate, and from an admission policy.
func testFailed(err error) error {
	if err == nil {
		return errors.New("the hand-out was done")
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return fmt.Errorf("the hand-out was answered with something else than a failed test: %w", err)
	}
	status := answer.Status()
	if status.Code != 422 || status.Reason != metav1.StatusReasonInvalid || status.Details == nil || !equality.Semantic.DeepEqual(*status.Details, metav1.StatusDetails{}) {
		return fmt.Errorf("the hand-out was answered with %+v, want 422 Invalid and empty details", status)
	}
	return nil
}

// Each case changes what one test of the patch is about, after the snapshot.
func TestTheHandOutIsRefusedOnceItsGroundsAreGone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*handOutFixture){
		"the Pod is no longer Ready": func(f *handOutFixture) { f.ns.SetReady(f.pod, false) },
		"the Pod has no condition Ready any more": func(f *handOutFixture) {
			f.merge(map[string]any{"status": map[string]any{"conditions": nil}}, "status")
		},
		"another condition stands where Ready stood": func(f *handOutFixture) {
			f.merge(map[string]any{"status": map[string]any{"conditions": []corev1.PodCondition{{Type: "example.com/Gate", Status: corev1.ConditionTrue}}}}, "status")
		},
		"the Pod is being deleted": func(f *handOutFixture) {
			f.merge(metadata("finalizers", []string{"example.com/wait"}))
			f.ns.Kubectl("delete", "pod", f.pod.Name, "--wait=false")
		},
		"the Pod has another owner": func(f *handOutFixture) {
			owner := metav1.NewControllerRef(f.other, v1alpha1.PodClaimKind)
			f.merge(metadata("ownerReferences", []metav1.OwnerReference{*owner}))
		},
		"the Pod has another pool as its owner": func(f *handOutFixture) {
			owner := metav1.NewControllerRef(f.ns.CreatePool(environment.Pool("others", 1)), v1alpha1.WarmPoolKind)
			f.merge(metadata("ownerReferences", []metav1.OwnerReference{*owner}))
		},
		"the pool is an owner still, but not the controller": func(f *handOutFixture) {
			owner := f.pod.OwnerReferences[0].DeepCopy()
			owner.Controller = nil
			f.merge(metadata("ownerReferences", []metav1.OwnerReference{*owner}))
		},
		"the Pod has no owner": func(f *handOutFixture) { f.merge(metadata("ownerReferences", nil)) },
		"the Pod is another one of the same name": func(f *handOutFixture) {
			f.ns.Kubectl("delete", "pod", f.pod.Name)
			pod, err := env.Kube.CoreV1().Pods(f.ns.Name).Create(f.t.Context(), pool.NewPod(f.pool, f.pod.Name), metav1.CreateOptions{})
			if err != nil {
				f.t.Fatal(err)
			}
			f.ns.SetReady(pod, true)
		},
		"the Pod was handed out to another claim": func(f *handOutFixture) {
			if _, err := f.handOut(f.other); err != nil {
				f.t.Fatal(err)
			}
		},
		"the Pod was handed out to this very claim": func(f *handOutFixture) {
			if _, err := f.handOut(f.claim); err != nil {
				f.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newHandOutFixture(t, nil, nil)
			change(f)
			before := f.live()
			_, err := f.handOut(f.claim)
			if err := testFailed(err); err != nil {
				t.Error(err)
			}
			after := f.live()
			if !equality.Semantic.DeepEqual(after.OwnerReferences, before.OwnerReferences) || !maps.Equal(after.Labels, before.Labels) {
				t.Errorf("the Pod was changed: owners %v, labels %v", after.OwnerReferences, after.Labels)
			}
			f.merge(metadata("finalizers", nil)) // the namespace has to go
		})
	}
}

// What the hand-out doesn't rely on may change after the snapshot, and survives.
func TestTheHandOutGoesThroughWhatDoesNotConcernIt(t *testing.T) {
	t.Parallel()
	wish := &v1alpha1.PodMetadata{Annotations: map[string]string{"example.com/build": "17"}}
	for name, c := range map[string]struct {
		template    map[string]string // the template's annotations
		podMetadata *v1alpha1.PodMetadata
		change      func(*handOutFixture)
		check       func(*corev1.Pod) error
	}{
		"nothing has changed": {
			change: func(*handOutFixture) {},
			check:  func(*corev1.Pod) error { return nil },
		},
		"a heartbeat": {
			change: func(f *handOutFixture) {
				condition := f.pod.Status.Conditions[0]
				condition.LastProbeTime = metav1.Now()
				f.merge(map[string]any{"status": map[string]any{"conditions": []corev1.PodCondition{condition}, "hostIP": "10.0.0.7"}}, "status")
			},
			check: func(pod *corev1.Pod) error { return want(pod.Status.HostIP, "10.0.0.7") },
		},
		"a label of somebody else": {
			change: func(f *handOutFixture) { f.merge(metadata("labels", map[string]string{"example.com/zone": "a"})) },
			check:  func(pod *corev1.Pod) error { return want(pod.Labels["example.com/zone"], "a") },
		},
		"an annotation of somebody else, and the claim sets none": {
			change: func(f *handOutFixture) {
				f.merge(metadata("annotations", map[string]string{"example.com/seen": "yes"}))
			},
			check: func(pod *corev1.Pod) error { return want(pod.Annotations["example.com/seen"], "yes") },
		},
		"an annotation of somebody else beside those of the template and the claim": {
			template:    map[string]string{"example.com/team": "a"},
			podMetadata: wish,
			change: func(f *handOutFixture) {
				f.merge(metadata("annotations", map[string]string{"example.com/seen": "yes"}))
			},
			check: func(pod *corev1.Pod) error {
				return want(pod.Annotations["example.com/seen"]+pod.Annotations["example.com/team"]+pod.Annotations["example.com/build"], "yesa17")
			},
		},
		"an owner behind the pool that isn't the controller": {
			change: func(f *handOutFixture) {
				second := *metav1.NewControllerRef(f.other, v1alpha1.PodClaimKind)
				second.Controller = nil
				f.merge(metadata("ownerReferences", append(f.pod.OwnerReferences, second)))
			},
			check: func(pod *corev1.Pod) error { return want(fmt.Sprint(len(pod.OwnerReferences)), "2") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newHandOutFixture(t, c.template, c.podMetadata)
			c.change(f)
			pod, err := f.handOut(f.claim)
			if err != nil {
				t.Fatalf("the hand-out was refused: %v", err)
			}
			if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != f.claim.UID || !ptr.Deref(owner.BlockOwnerDeletion, false) {
				t.Errorf("the Pod's controller is %v, want the claim", owner)
			}
			if pod.Labels["warmpool.dev/state"] != "claimed" || pod.Labels["warmpool.dev/claim"] != "build" {
				t.Errorf("the Pod's labels are %v", pod.Labels)
			}
			if err := c.check(pod); err != nil {
				t.Error(err)
			}
		})
	}
}

func want(got, want string) error {
	if got != want {
		return fmt.Errorf("got %q, want %q", got, want)
	}
	return nil
}

// A Pod that had no annotations gets its first one from somebody else, after the
// snapshot: the claim's must not wipe it out. The patch is refused; that of the next
// snapshot keeps both.
func TestTheHandOutNeverWipesOutAnAnnotation(t *testing.T) {
	t.Parallel()
	f := newHandOutFixture(t, nil, &v1alpha1.PodMetadata{Annotations: map[string]string{"example.com/build": "17"}})
	f.merge(metadata("annotations", map[string]string{"example.com/seen": "yes"}))
	_, err := f.handOut(f.claim)
	if err := testFailed(err); err != nil {
		t.Error(err)
	}
	f.pod = f.live()
	pod, err := f.handOut(f.claim)
	if err != nil {
		t.Fatal(err)
	}
	if pod.Annotations["example.com/seen"] != "yes" || pod.Annotations["example.com/build"] != "17" {
		t.Errorf("the Pod's annotations are %v, want both", pod.Annotations)
	}
}
