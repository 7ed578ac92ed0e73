package main

// One story, told with the guards and without them: Deployments are created, and scaled a
// moment later, while the controller's cache of ConfigMaps is old, and the answer to its
// first creation is lost.

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/freshness"
	"warmpool.dev/controller/test/faultproxy"
)

const (
	// deployments is how many the story has.
	deployments = 8
	// lag is how long the cache of ConfigMaps stays old after the Deployments were
	// scaled, at most: if the controller has done its work twice by then, that is enough.
	lag = 3 * time.Second
)

// controller is run or runPlain.
type controller func(ctx context.Context, config *rest.Config, namespace string) error

// stage is where the story is told.
type stage struct {
	t         *testing.T
	proxy     *faultproxy.Proxy
	kube      kubernetes.Interface // past the proxy
	namespace string
}

// newStage starts the controller behind a proxy. When the test ends it is stopped.
func newStage(t *testing.T, start controller) *stage {
	t.Helper()
	target := administrator(t)
	proxy, err := faultproxy.Start(faultproxy.Options{Target: target})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	kube, err := kubernetes.NewForConfig(target)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t, proxy, kube, newNamespace(t, kube)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- start(ctx, proxy.Config(target), s.namespace) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the controller ended with an error: %v", err)
		}
	})
	// It is at work when this one has its ConfigMap, and knows of it.
	s.deploy("first")
	err = proxy.WaitDeliveries(within(t, deadline), 1, func(d faultproxy.Delivery) bool {
		return d.Resource.Resource == "configmaps" && strings.HasPrefix(d.Name, "first-")
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// tell tells the story, and returns how long it took until all was well once the faults
// were over.
func (s *stage) tell() (recovery time.Duration) {
	s.t.Helper()
	held := s.proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Verb: "watch", Resource: "configmaps"}, Do: faultproxy.HoldStream()})
	lost := s.proxy.Add(faultproxy.Rule{Match: creations, Times: 1, Do: faultproxy.LoseAnswer(faultproxy.Reset())})
	for i := range deployments {
		s.deploy(fmt.Sprint("web-", i))
	}
	for i := range deployments {
		first := faultproxy.Match{Verb: "create", Resource: "configmaps", Name: fmt.Sprintf("web-%d-*", i)}
		if _, err := s.proxy.WaitRequests(within(s.t, deadline), 1, first, (*faultproxy.Request).Committed); err != nil {
			s.t.Fatal(err)
		}
	}
	for i := range deployments {
		s.scale(fmt.Sprint("web-", i), 2)
	}
	// A controller that does its work twice has done so by then, or never will.
	_, _ = s.proxy.WaitRequests(within(s.t, lag), 2*deployments, creations, (*faultproxy.Request).Committed)
	if lost.Fired() != 1 || held.Fired() == 0 {
		s.t.Fatalf("the faults didn't happen: %d answers lost, %d events held", lost.Fired(), held.Fired())
	}
	released := time.Now()
	held.Release()
	eventually(s.t, "one ConfigMap that is right for each Deployment", s.converged)
	recovery = time.Since(released)
	eventually(s.t, "the last write to be answered", s.atRest)
	return recovery
}

// atRest returns an error while a write is under way.
func (s *stage) atRest() error {
	for _, request := range s.proxy.Log().Select(writes) {
		if request.Answered.IsZero() {
			return fmt.Errorf("%s %s has no answer yet", request.Verb, request.Name)
		}
	}
	return nil
}

// creations are the requests that create the story's ConfigMaps.
var creations = faultproxy.Match{Verb: "create", Resource: "configmaps", Name: "web-*"}

// writes are all requests of the controller that change something in the story.
var writes = faultproxy.Match{Verb: faultproxy.Writes, Name: "web-*"}

// deploy creates a Deployment with one replica.
func (s *stage) deploy(name string) {
	s.t.Helper()
	labels := map[string]string{"app": name}
	_, err := s.kube.AppsV1().Deployments(s.namespace).Create(s.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{mirrorLabel: "true"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example.com/web:1"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) scale(name string, replicas int) {
	s.t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if _, err := s.kube.AppsV1().Deployments(s.namespace).Patch(s.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// converged says what is missing at the API server until each Deployment has one ConfigMap,
// which says what the story ends with.
func (s *stage) converged() error {
	list, err := s.kube.CoreV1().ConfigMaps(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: mirrored})
	if err != nil {
		return err
	}
	list.Items = slices.DeleteFunc(list.Items, func(c corev1.ConfigMap) bool { return metav1.GetControllerOf(&c).Name == "first" })
	owned := map[string]bool{}
	for _, configMap := range list.Items {
		owned[metav1.GetControllerOf(&configMap).Name] = true
		if want := map[string]string{"replicas": "2", "image": "registry.example.com/web:1"}; !maps.Equal(configMap.Data, want) {
			return fmt.Errorf("configmap %s says %v, not %v", configMap.Name, configMap.Data, want)
		}
	}
	if len(owned) != deployments || len(list.Items) != deployments {
		return fmt.Errorf("%d ConfigMaps of %d Deployments", len(list.Items), len(owned))
	}
	return nil
}

// count counts the controller's writes, by verb and by the API server's answer.
func (s *stage) count() map[string]int {
	counts := map[string]int{}
	for _, request := range s.proxy.Log().Select(writes) {
		counts[fmt.Sprintf("%s %d", request.Verb, request.Code)]++
	}
	return counts
}

// report prints what came of the story.
func (s *stage) report(recovery time.Duration, counts map[string]int) {
	s.t.Helper()
	var lines strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&lines, "\n%4d  %s", counts[kind], kind)
	}
	s.t.Logf("%d Deployments, all well %s after the faults were over; writes by the API server's answer:%s",
		deployments, recovery.Round(time.Millisecond), lines.String())
}

func TestWithTheGuardsEachConfigMapIsCreatedOnceThoughTheCacheIsOldAndAnAnswerIsLost(t *testing.T) {
	t.Parallel()
	metrics := freshness.NewMetrics()
	s := newStage(t, func(ctx context.Context, config *rest.Config, namespace string) error {
		return run(ctx, config, namespace, metrics)
	})
	recovery := s.tell()
	got := s.count()
	s.report(recovery, got)
	if want := map[string]int{"create 201": deployments, "patch 200": deployments}; !maps.Equal(got, want) {
		t.Errorf("got the writes %v, want %v: one creation and one change for each Deployment", got, want)
	}
	if got := firings(t, metrics, "backlog", "parked_in_doubt"); got != 1 {
		t.Errorf("%v keys waited for what became of a creation without an answer, want 1", got)
	}
	if got := firings(t, metrics, "backlog", "parked_behind"); got < deployments-1 {
		t.Errorf("%v keys waited for their ConfigMap to be in the cache, want %d or more", got, deployments-1)
	}
}

func TestWithoutTheGuardsTheSameFaultsMakeItDoItsWorkTwice(t *testing.T) {
	t.Parallel()
	s := newStage(t, runPlain)
	recovery := s.tell()
	got := s.count()
	s.report(recovery, got)
	if got["create 201"] < 2*deployments {
		t.Errorf("%d ConfigMaps were created, so the story is too gentle: want %d or more", got["create 201"], 2*deployments)
	}
	if surplus := got["create 201"] - deployments; got["delete 200"] != surplus {
		t.Errorf("%d ConfigMaps were deleted, want %d: those that were too many", got["delete 200"], surplus)
	}
}
