package pool_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/pool"
)

func TestHandOutPatchOperations(t *testing.T) {
	pod := aPod("a", ready, func(pod *corev1.Pod) { pod.Annotations = map[string]string{"there": "already"} })
	claim := aClaim("c", podMetadata(map[string]string{"team": "red"}, map[string]string{"example.com/a~b": "x"}))
	podBefore, claimBefore := pod.DeepCopy(), claim.DeepCopy()
	patch, err := pool.HandOutPatch(pod, claim)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(pod, podBefore) || !reflect.DeepEqual(claim, claimBefore) {
		t.Error("HandOutPatch changed its arguments")
	}
	var operations []json.RawMessage
	if err := json.Unmarshal(patch, &operations); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, operation := range operations {
		got = append(got, string(operation))
	}
	expect(t, got, []string{
		`{"op":"test","path":"/metadata/uid","value":"uid-of-a"}`,
		`{"op":"test","path":"/metadata/deletionTimestamp","value":null}`,
		`{"op":"test","path":"/metadata/ownerReferences/0/uid","value":"uid-of-runners"}`,
		`{"op":"test","path":"/metadata/ownerReferences/0/controller","value":true}`,
		`{"op":"test","path":"/status/conditions/1/type","value":"Ready"}`,
		`{"op":"test","path":"/status/conditions/1/status","value":"True"}`,
		`{"op":"replace","path":"/metadata/ownerReferences/0","value":{"apiVersion":"warmpool.dev/v1alpha1","kind":"PodClaim","name":"c","uid":"uid-of-c","controller":true,"blockOwnerDeletion":true}}`,
		`{"op":"add","path":"/metadata/labels/team","value":"red"}`,
		`{"op":"add","path":"/metadata/labels/warmpool.dev~1claim","value":"c"}`,
		`{"op":"add","path":"/metadata/labels/warmpool.dev~1state","value":"claimed"}`,
		`{"op":"add","path":"/metadata/annotations/example.com~1a~0b","value":"x"}`,
	})
}

func podMetadata(labels, annotations map[string]string) func(*v1alpha1.PodClaim) {
	return func(c *v1alpha1.PodClaim) {
		c.Spec.PodMetadata = &v1alpha1.PodMetadata{Labels: labels, Annotations: annotations}
	}
}

// handOut makes the patch for the Pod as the cache has it, and applies it to the Pod
// as the API server has it.
func handOut(t *testing.T, cached, live *corev1.Pod, claim *v1alpha1.PodClaim) (*corev1.Pod, error) {
	t.Helper()
	patch, err := pool.HandOutPatch(cached, claim)
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset(live.DeepCopy())
	return client.CoreV1().Pods(live.Namespace).Patch(t.Context(), live.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
}

func TestHandOutPatchGivesThePodToTheClaim(t *testing.T) {
	reserved := map[string]string{v1alpha1.LabelState: "free", v1alpha1.LabelPool: "other", v1alpha1.LabelClaim: "other", "warmpool.dev/more": "x"}
	foreignOwner := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "uid-of-other"}
	for _, c := range []struct {
		name            string
		pod             func(*corev1.Pod)
		claim           func(*v1alpha1.PodClaim)
		wantLabels      map[string]string
		wantAnnotations map[string]string
	}{{
		name:       "a claim that sets nothing",
		pod:        func(*corev1.Pod) {},
		claim:      func(*v1alpha1.PodClaim) {},
		wantLabels: map[string]string{v1alpha1.LabelPool: "runners", v1alpha1.LabelTemplateHash: presentHash, v1alpha1.LabelState: "claimed", v1alpha1.LabelClaim: "c"},
	}, {
		name: "a Pod that has lost all its labels",
		pod:  func(pod *corev1.Pod) { pod.Labels = nil },
		claim: podMetadata(map[string]string{"team": "red"}, map[string]string{
			"note": "first",
		}),
		wantLabels:      map[string]string{v1alpha1.LabelState: "claimed", v1alpha1.LabelClaim: "c", "team": "red"},
		wantAnnotations: map[string]string{"note": "first"},
	}, {
		name: "keys that a JSON pointer has to escape",
		pod:  func(pod *corev1.Pod) { pod.Annotations = map[string]string{"a/b": "old", "a~1b": "stays"} },
		claim: podMetadata(map[string]string{"example.com/team": "red"}, map[string]string{
			"a/b": "new", "~": "tilde", "~1": "tilde and one", "x/~y": "both", "": "empty",
		}),
		wantLabels:      map[string]string{v1alpha1.LabelPool: "runners", v1alpha1.LabelTemplateHash: presentHash, v1alpha1.LabelState: "claimed", v1alpha1.LabelClaim: "c", "example.com/team": "red"},
		wantAnnotations: map[string]string{"a/b": "new", "a~1b": "stays", "~": "tilde", "~1": "tilde and one", "x/~y": "both", "": "empty"},
	}, {
		name:            "keys that are reserved",
		pod:             func(*corev1.Pod) {},
		claim:           podMetadata(reserved, reserved),
		wantLabels:      map[string]string{v1alpha1.LabelPool: "runners", v1alpha1.LabelTemplateHash: presentHash, v1alpha1.LabelState: "claimed", v1alpha1.LabelClaim: "c"},
		wantAnnotations: nil,
	}, {
		name: "a Pod whose controller is not its first owner",
		pod: func(pod *corev1.Pod) {
			pod.OwnerReferences = append([]metav1.OwnerReference{foreignOwner}, pod.OwnerReferences...)
		},
		claim:      func(*v1alpha1.PodClaim) {},
		wantLabels: map[string]string{v1alpha1.LabelPool: "runners", v1alpha1.LabelTemplateHash: presentHash, v1alpha1.LabelState: "claimed", v1alpha1.LabelClaim: "c"},
	}} {
		t.Run(c.name, func(t *testing.T) {
			pod, claim := aPod("a", ready, c.pod), aClaim("c", c.claim)
			got, err := handOut(t, pod, pod, claim)
			if err != nil {
				t.Fatal(err)
			}
			if owner := pool.OwnerClaim(got); owner == nil || owner.UID != "uid-of-c" || owner.Name != "c" || len(got.OwnerReferences) != len(pod.OwnerReferences) {
				t.Errorf("owners %+v, want the claim instead of the pool", got.OwnerReferences)
			}
			if pool.OwnerPool(got) != nil {
				t.Errorf("owners %+v, want no pool among them", got.OwnerReferences)
			}
			if !maps.Equal(got.Labels, c.wantLabels) {
				t.Errorf("labels:\n got %v\nwant %v", got.Labels, c.wantLabels)
			}
			if !maps.Equal(got.Annotations, c.wantAnnotations) {
				t.Errorf("annotations:\n got %v\nwant %v", got.Annotations, c.wantAnnotations)
			}
		})
	}
}

func TestHandOutPatchIsRefusedWhere(t *testing.T) {
	withoutLabels := func(pod *corev1.Pod) { pod.Labels = nil }
	for _, c := range []struct {
		name         string
		cached, live func(*corev1.Pod)
	}{{
		name: "the Pod was handed out meanwhile", cached: ready, live: func(pod *corev1.Pod) { ready(pod); of("other")(pod) },
	}, {
		name: "the Pod was handed out to the very claim", cached: ready, live: func(pod *corev1.Pod) { ready(pod); of("c")(pod) },
	}, {
		name: "the Pod is being deleted", cached: ready, live: func(pod *corev1.Pod) { ready(pod); podDeleting(pod) },
	}, {
		name: "the Pod isn't Ready any more", cached: ready, live: notReadyFor(0),
	}, {
		name: "it is another Pod of the same name", cached: ready, live: func(pod *corev1.Pod) { ready(pod); pod.UID = "another" },
	}, {
		name: "the pool is not the controller any more", cached: ready, live: func(pod *corev1.Pod) { ready(pod); pod.OwnerReferences[0].Controller = ptr.To(false) },
	}, {
		name: "the Pod lost its owner", cached: ready, live: func(pod *corev1.Pod) { ready(pod); pod.OwnerReferences = nil },
	}, {
		name: "the conditions stand in another order", cached: ready, live: func(pod *corev1.Pod) {
			ready(pod)
			conditions := pod.Status.Conditions
			conditions[0], conditions[1] = conditions[1], conditions[0]
		},
	}, {
		name: "labels came to a Pod that had none", cached: func(pod *corev1.Pod) { ready(pod); withoutLabels(pod) }, live: ready,
	}} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := handOut(t, aPod("a", c.cached), aPod("a", c.live), aClaim("c")); err == nil {
				t.Errorf("the patch was applied: %+v", got.ObjectMeta)
			}
		})
	}
}

func TestHandOutPatchAllowsWhatDoesntMatter(t *testing.T) {
	live := aPod("a", ready, func(pod *corev1.Pod) {
		pod.ResourceVersion = "8" // a heartbeat of the kubelet
		pod.Labels["foreign"] = "label"
		pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "uid-of-other"})
	})
	got, err := handOut(t, aPod("a", ready), live, aClaim("c"))
	if err != nil {
		t.Fatal(err)
	}
	if got.Labels["foreign"] != "label" || len(got.OwnerReferences) != 2 || got.OwnerReferences[1].Name != "other" {
		t.Errorf("what others wrote is gone: labels %v, owners %+v", got.Labels, got.OwnerReferences)
	}
}

func TestHandOutPatchOfAPodThatCantBeHandedOut(t *testing.T) {
	for _, c := range []struct {
		name string
		pod  func(*corev1.Pod)
	}{
		{"it belongs to a claim", func(pod *corev1.Pod) { ready(pod); of("other")(pod) }},
		{"it belongs to nobody", func(pod *corev1.Pod) { ready(pod); pod.OwnerReferences = nil }},
		{"it was never Ready", func(*corev1.Pod) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			patch, err := pool.HandOutPatch(aPod("a", c.pod), aClaim("c"))
			want := "hand out pod ci/a: no WarmPool is its controller owner, or it has no Ready condition"
			if err == nil || err.Error() != want {
				t.Errorf("\n got %v and patch %s\nwant %s", err, patch, want)
			}
		})
	}
}

func TestNewPodIsMadeFromTheTemplate(t *testing.T) {
	p := aPool(func(p *v1alpha1.WarmPool) {
		p.Spec.Template.ObjectMeta = metav1.ObjectMeta{
			Name: "theirs", GenerateName: "theirs-", Namespace: "elsewhere", UID: "theirs", Finalizers: []string{"example.com/theirs"},
			Labels:          map[string]string{"team": "red", v1alpha1.LabelState: "claimed", v1alpha1.LabelPool: "other", v1alpha1.LabelClaim: "theirs", v1alpha1.LabelTemplateHash: "theirs"},
			Annotations:     map[string]string{"note": "x", "warmpool.dev/note": "x"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "theirs", UID: "theirs", Controller: ptr.To(true)}},
		}
	})
	before := p.DeepCopy()
	got := pool.NewPod(p, "runners-x7k2")
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "runners-x7k2", Namespace: "ci",
			Labels: map[string]string{
				"team": "red", v1alpha1.LabelState: "idle", v1alpha1.LabelPool: "runners",
				v1alpha1.LabelTemplateHash: pool.TemplateHash(&p.Spec.Template),
			},
			Annotations: map[string]string{"note": "x"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "warmpool.dev/v1alpha1", Kind: "WarmPool", Name: "runners", UID: "uid-of-runners", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "runner", Image: "example.com/runner:1"}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	got.Spec.Containers[0].Image, got.Labels["team"] = "changed", "changed"
	if !reflect.DeepEqual(p, before) {
		t.Error("the Pod shares the pool's memory, which may be a cache's")
	}
}

func TestNewPodOfATemplateWithoutMetadata(t *testing.T) {
	got := pool.NewPod(aPool(), "runners-1")
	want := map[string]string{v1alpha1.LabelState: "idle", v1alpha1.LabelPool: "runners", v1alpha1.LabelTemplateHash: presentHash}
	if !maps.Equal(got.Labels, want) {
		t.Errorf("labels %v, want %v", got.Labels, want)
	}
	if state := pool.StateOfPod(got, 0, now); state != pool.PodStarting {
		t.Errorf("a new Pod is %s, want Starting", state)
	}
}

func TestPodName(t *testing.T) {
	sixty := strings.Repeat("x", 60)
	for _, c := range []struct{ name, poolName, suffix, want string }{
		{"a short name stays whole", "runners", "x7k2bvw9", "runners-x7k2bvw9"},
		{"54 characters stay whole", strings.Repeat("x", 54), "x7k2bvw9", strings.Repeat("x", 54) + "-x7k2bvw9"},
		{"55 characters are cut", strings.Repeat("x", 54) + "y", "x7k2bvw9", strings.Repeat("x", 54) + "-x7k2bvw9"},
		{"63 characters are cut", sixty + "abc", "x7k2bvw9", strings.Repeat("x", 54) + "-x7k2bvw9"},
		{"a name cut after a dash", strings.Repeat("x", 53) + "-abc", "x7k2bvw9", strings.Repeat("x", 53) + "-x7k2bvw9"},
		{"a name cut after dashes", strings.Repeat("x", 51) + "---abc", "x7k2bvw9", strings.Repeat("x", 51) + "-x7k2bvw9"},
		{"a name cut after a dot", strings.Repeat("x", 53) + ".abc", "x7k2bvw9", strings.Repeat("x", 53) + "-x7k2bvw9"},
		{"a name cut before a dot", strings.Repeat("x", 54) + ".abc", "x7k2bvw9", strings.Repeat("x", 54) + "-x7k2bvw9"},
		{"a name with dots keeps them", "v1.runners", "x7k2bvw9", "v1.runners-x7k2bvw9"},
		{"a name of one character", "r", "2", "r-2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := pool.PodName(c.poolName, c.suffix)
			if got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
			if len(got) > 63 {
				t.Errorf("%s has %d characters, want at most 63", got, len(got))
			}
			if problems := validation.IsDNS1123Subdomain(got); len(problems) > 0 {
				t.Errorf("%s is no name of a Pod: %q", got, problems)
			}
		})
	}
}

// TestPoolsWithTheSameBeginningKeepTheirPodsApart replays a report of another
// controller, whose names collided after they were cut (cert-manager#6342).
func TestPoolsWithTheSameBeginningKeepTheirPodsApart(t *testing.T) {
	named := func(end string) *v1alpha1.WarmPool {
		return aPool(func(p *v1alpha1.WarmPool) {
			p.Name = strings.Repeat("x", 60) + end
			p.UID = types.UID("uid-of-" + end)
		})
	}
	a, b := named("a"), named("b")
	podOfA := pool.NewPod(a, pool.PodName(a.Name, "x7k2bvw9"))
	podOfB := pool.NewPod(b, pool.PodName(b.Name, "p9q4bvw9"))
	if podOfA.Name == podOfB.Name {
		t.Errorf("both Pods are called %s, though their suffixes differ", podOfA.Name)
	}
	if podOfA.Labels[v1alpha1.LabelPool] != a.Name || podOfB.Labels[v1alpha1.LabelPool] != b.Name {
		t.Errorf("labels %v and %v, want the whole names of the pools", podOfA.Labels, podOfB.Labels)
	}
	ready(podOfA)
	ready(podOfB)
	expect(t, describe(plan(t, snapshot(a, podOfA, podOfB))), nil)
	expect(t, describe(plan(t, snapshot(b, podOfA))), []string{"create 1"})
}

// TestTheHashOfATemplateNeverChanges is there for upgrades: another hash for the same
// template replaces every idle Pod of every pool.
func TestTheHashOfATemplateNeverChanges(t *testing.T) {
	template := func(change func(*corev1.PodTemplateSpec)) *corev1.PodTemplateSpec {
		template := &corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "red", "app": "ci"}},
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{
					Name: "runner", Image: "example.com/runner:1",
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
				}, {
					Name: "helper", Image: "example.com/helper:1",
				}},
				Volumes: []corev1.Volume{{Name: "work", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
					VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{},
				}}}},
				Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
					{TopologyKey: "kubernetes.io/hostname", LabelSelector: &metav1.LabelSelector{}},
				}}},
			},
		}
		change(template)
		return template
	}
	for _, c := range []struct {
		name   string
		change func(*corev1.PodTemplateSpec)
		want   string
	}{
		{"as it is", func(*corev1.PodTemplateSpec) {}, "ee872a30bb"},
		{"with an empty list", func(t *corev1.PodTemplateSpec) { t.Spec.Containers[1].Command = []string{} }, "ee872a30bb"},
		{"another image", func(t *corev1.PodTemplateSpec) { t.Spec.Containers[1].Image = "example.com/helper:2" }, "1753d232d6"},
		{"another annotation", func(t *corev1.PodTemplateSpec) { t.Annotations = map[string]string{"version": "2"} }, "b8cc055b17"},
		{"a selector that selects none, not all", func(t *corev1.PodTemplateSpec) {
			t.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector = nil
		}, "26e8c864a6"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := template(c.change)
			if got := pool.TemplateHash(before); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if !reflect.DeepEqual(before, template(c.change)) {
				t.Error("TemplateHash changed its argument")
			}
		})
	}
}

func BenchmarkTemplateHash(b *testing.B) {
	for b.Loop() {
		pool.TemplateHash(&aPool().Spec.Template)
	}
}
