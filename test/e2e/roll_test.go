package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

const (
	// rolledPods is how many Pods are rolled.
	rolledPods = 60
	// claimEvery and claimFor say how claims come meanwhile: five a second.
	claimEvery = 200 * time.Millisecond
	claimFor   = 30 * time.Second
	// rollAfter is when the template is changed.
	rollAfter = 3 * time.Second
	// rollLag is how old the controller's knowledge may be for no fault of its own. It is
	// judged by what its proxy has sent to it, so that a busy machine is all it forgives.
	rollLag = time.Second
)

// Sixty Pods roll, on nodes that kwok plays, while five claims come a second. Every claim
// is bound. What each of them gets, and what the roll takes away, is judged on the recorded
// history, by what the controller had been sent.
func TestSixtyPodsRollUnderClaims(t *testing.T) {
	t.Parallel()
	own := environment.ForTestInstalled(t, controlplane.Options{Nodes: 4, Scheduler: true})
	for _, strategy := range []v1alpha1.UpdateStrategyType{v1alpha1.RollingUpdate, v1alpha1.Recreate} {
		t.Run(string(strategy), func(t *testing.T) {
			r := startRoll(t, own, strategy)
			names := r.claimMeanwhile(func() { r.ns.PatchTemplate("runners", "2") })
			r.ns.WaitBound(names...)
			r.wait("the roll to be over", func(w *history.World) bool { return len(w.Unsettled()) == 0 })
			r.controller.Stop()
			r.judge(strategy, len(names))
		})
	}
}

// roll is a pool whose template changes, and all that is recorded of it.
type roll struct {
	t          *testing.T
	env        *environment.Environment
	ns         *environment.Namespace
	proxy      *faultproxy.Proxy
	controller *environment.Controller
	recorder   *history.Recorder
}

// startRoll fills a pool, behind a proxy, while a recorder runs.
func startRoll(t *testing.T, env *environment.Environment, strategy v1alpha1.UpdateStrategyType) *roll {
	t.Helper()
	r := &roll{t: t, env: env, ns: env.Namespace(t)}
	recorder, err := history.Record(t.Context(), history.Recording{
		Endpoints: []string{env.ControlPlane.EtcdURL}, Namespaces: []string{r.ns.Name},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(recorder.Close)
	r.recorder = recorder
	server := env.ControlPlane.APIServers[0]
	r.proxy = environment.StartProxy(t, server, "controller")
	r.controller = r.ns.StartController(environment.ThroughProxy(t, server, r.proxy))
	r.ns.CreatePool(environment.Pool("runners", rolledPods, func(p *v1alpha1.WarmPool) {
		p.Spec.UpdateStrategy.Type = strategy
		p.Spec.Template.Spec.SchedulerName = ""
		p.Spec.Template.Spec.NodeSelector = map[string]string{"type": "kwok"}
	}))
	r.ns.WaitPool("runners", rolledPods, 0)
	return r
}

// claimMeanwhile creates claims for a while, has the template changed in the midst of it,
// and returns the claims' names.
func (r *roll) claimMeanwhile(change func()) (names []string) {
	r.t.Helper()
	ticker := time.NewTicker(claimEvery)
	defer ticker.Stop()
	for i := range int(claimFor / claimEvery) {
		if i == int(rollAfter/claimEvery) {
			change()
		}
		names = append(names, fmt.Sprintf("claim-%d", i))
		r.ns.CreateClaim(environment.Claim(names[i], "runners"))
		<-ticker.C
	}
	return names
}

// wait waits until what is recorded is as check wants it.
func (r *roll) wait(what string, check func(*history.World) bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), environment.Timeout)
	defer cancel()
	if err := r.recorder.WaitFor(ctx, what, check); err != nil {
		r.t.Fatal(err)
	}
}

// judge judges the history, and checks that there was something to judge.
func (r *roll) judge(strategy v1alpha1.UpdateStrategyType, claims int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), environment.Timeout)
	defer cancel()
	h, err := r.recorder.History(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	logs := []faultproxy.Log{r.proxy.Log()}
	for _, violation := range append(history.Judge(h, history.Terms{Logs: logs, Lag: rollLag, GarbageCollector: true}), history.I6(h)...) {
		r.t.Error(violation)
	}
	deleted := len(logs[0].Select(faultproxy.Match{Verb: "delete", Resource: "pods"}))
	old, updated := r.handedOut()
	r.t.Logf("%s: %d versions; %d claims got an old Pod and %d an updated one; the controller deleted %d Pods; at least %d were ready",
		strategy, len(h.Versions), old, updated, deleted, fewestReady(h))
	if deleted == 0 || updated == 0 || old+updated != claims {
		r.t.Errorf("%d claims have Pods, %d of them updated ones, and %d Pods were deleted: want %d, and some of each", old+updated, updated, deleted, claims)
	}
}

// fewestReady is how many idle Pods were ready at least, once there were rolledPods.
func fewestReady(h *history.History) int {
	fewest, filled := rolledPods, false
	h.Replay(func(_ *history.Version, w *history.World) {
		for uid := range w.Pools {
			ready := len(slices.DeleteFunc(w.Idle(uid), func(pod *corev1.Pod) bool { return !history.IsReady(pod) }))
			filled = filled || ready == rolledPods
			if filled {
				fewest = min(fewest, ready)
			}
		}
	})
	return fewest
}

// handedOut counts the claimed Pods by whether they were made from the first template.
func (r *roll) handedOut() (old, updated int) {
	r.t.Helper()
	for _, pod := range r.ns.Pods() {
		owner := metav1.GetControllerOf(pod)
		switch {
		case owner == nil || !strings.HasPrefix(owner.Name, "claim-"):
		case pod.Annotations["version"] == "2":
			updated++
		default:
			old++
		}
	}
	return old, updated
}

// A template that never gets ready costs as many Pods as the budget lets go, and no more.
func TestATemplateThatNeverGetsReadyStopsTheRoll(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.Judge()
	ns.StartKubeletFor(func(pod *corev1.Pod) bool { return pod.Annotations["version"] != "broken" })
	ns.StartController()
	pool := ns.CreatePool(environment.Pool("runners", 4, func(p *v1alpha1.WarmPool) { p.Spec.ProgressDeadlineSeconds = ptr.To[int32](2) }))
	ns.WaitPool("runners", 4, 0)
	before := ns.Pods()
	ns.PatchTemplate("runners", "broken")
	var broken *corev1.Pod
	ns.Eventually("a Pod of the new template", func() error {
		for _, pod := range ns.PodsOf(pool.UID) {
			if pod.Annotations["version"] == "broken" {
				broken = pod
				return nil
			}
		}
		return errors.New("there is none")
	})
	ns.SetWaiting(broken, "ImagePullBackOff", "Back-off pulling image: not found")

	stopped := ns.WaitPoolCondition("runners", "Progressing", "False", "ProgressDeadlineExceeded")
	for _, words := range []string{"within 2 s (progressDeadlineSeconds)", `image "registry.k8s.io/pause:3.10"`, "can't be pulled", "not found"} {
		if !strings.Contains(stopped.Message, words) {
			t.Errorf("the pool says %q, want it to say %q", stopped.Message, words)
		}
	}
	environment.For(t, 3*time.Second, "the roll is stopped", func() error {
		stay := 0
		for _, pod := range ns.PodsOf(pool.UID) {
			if before[pod.UID] != nil {
				stay++
			}
		}
		if stay != 3 {
			return fmt.Errorf("%d of the old Pods stay, want 3", stay)
		}
		return nil
	})
	ns.CreateClaim(environment.Claim("build", "runners"))
	if uid := ns.WaitBound("build")["build"]; before[uid] == nil {
		t.Error("the claim hasn't got an old Pod")
	}
	ns.PatchTemplate("runners", "2")
	ns.WaitRolled("runners", 4)
	ns.WaitPoolCondition("runners", "Progressing", "True", "Complete")
}

func TestOnHandOutLeavesOldPodsUntilTheyAreTaken(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.Judge()
	ns.StartKubelet()
	ns.StartController()
	pool := ns.CreatePool(environment.Pool("runners", 2, func(p *v1alpha1.WarmPool) { p.Spec.UpdateStrategy.Type = v1alpha1.OnHandOut }))
	ns.WaitPool("runners", 2, 0)
	before := ns.Pods()
	ns.PatchTemplate("runners", "2")
	ns.WaitPool("runners", 2, 0)
	ns.SettledWrites()
	if after := ns.Pods(); !maps.EqualFunc(before, after, func(a, b *corev1.Pod) bool { return a.UID == b.UID }) {
		t.Errorf("the Pods are %v after the template was changed, want %v", namesOf(after), namesOf(before))
	}
	for i, claim := range []string{"first", "second", "third"} {
		ns.CreateClaim(environment.Claim(claim, "runners"))
		old := before[ns.WaitBound(claim)[claim]] != nil
		if want := i < 2; old != want {
			t.Errorf("the claim %s has an old Pod: %t, want %t", claim, old, want)
		}
		ns.WaitPool("runners", 2, int32(i+1))
	}
	if status := ns.Pool("runners").Status; status.UpdatedReadyReplicas != 2 || len(ns.PodsOf(pool.UID)) != 2 {
		t.Errorf("the pool's status is %+v, want two updated Pods", status)
	}
}

func TestRecreateMakesAClaimWaitForTheNewTemplate(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.Judge()
	kubelet := ns.StartKubelet()
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", 2, func(p *v1alpha1.WarmPool) { p.Spec.UpdateStrategy.Type = v1alpha1.Recreate }))
	ns.WaitPool("runners", 2, 0)
	kubelet.Stop() // the old Pods are ready, and don't go
	ns.PatchTemplate("runners", "2")
	ns.Eventually("the controller to observe the template", func() error {
		if p := ns.Pool("runners"); p.Status.ObservedGeneration != p.Generation {
			return fmt.Errorf("it speaks of generation %d of %d", p.Status.ObservedGeneration, p.Generation)
		}
		return nil
	})
	ns.CreateClaim(environment.Claim("build", "runners"))
	ns.WaitCondition("build", "Bound", "False", "Pending")
	ns.StartKubelet()
	uid := ns.WaitBound("build")["build"]
	if pod := ns.Pods()[uid]; pod.Annotations["version"] != "2" {
		t.Errorf("the claim has a Pod with the annotations %v, want one of the new template", pod.Annotations)
	}
	ns.WaitPool("runners", 2, 1)
}

// With a surge and nothing unavailable there are never fewer ready Pods than replicas.
func TestARollWithASurgeNeverHasFewerReady(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.Judge()
	ns.StartKubelet()
	ns.StartController()
	pool := ns.CreatePool(environment.Pool("runners", 3, func(p *v1alpha1.WarmPool) {
		p.Spec.UpdateStrategy.RollingUpdate = &v1alpha1.RollingUpdateSettings{
			MaxUnavailable: ptr.To(intstr.FromInt32(0)), MaxSurge: ptr.To(intstr.FromString("30%")),
		}
	}))
	ns.WaitPool("runners", 3, 0)
	recorder, err := history.Record(t.Context(), history.Recording{Endpoints: []string{env.ControlPlane.EtcdURL}, Namespaces: []string{ns.Name}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(recorder.Close)
	ns.PatchTemplate("runners", "2")
	ns.WaitRolled("runners", 3)
	h, err := recorder.History(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	h.Replay(func(v *history.Version, w *history.World) {
		idle := w.Idle(pool.UID)
		most = max(most, len(idle))
		ready := slices.DeleteFunc(slices.Clone(idle), func(pod *corev1.Pod) bool { return !history.IsReady(pod) })
		if !v.Initial && len(ready) < 3 {
			t.Errorf("%d Pods are ready at revision %d, want 3 at least", len(ready), v.Revision)
		}
	})
	if most != 4 {
		t.Errorf("there were %d idle Pods at most, want 4: three, and a surge of 30%%, rounded up", most)
	}
}

func TestASmallSurplusIsTolerated(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.Judge()
	ns.StartKubelet()
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", 5, func(p *v1alpha1.WarmPool) { p.Spec.Tolerance = ptr.To(intstr.FromString("50%")) }))
	ns.WaitPool("runners", 5, 0)
	ns.Kubectl("scale", "warmpool", "runners", "--replicas=3") // of which half, rounded up, is 2
	ns.WaitPool("runners", 5, 0)
	ns.SettledWrites()
	ns.WaitPods(5)
	ns.Kubectl("scale", "warmpool", "runners", "--replicas=2") // and of these 1
	ns.WaitPool("runners", 2, 0)
	ns.WaitPods(2)
}

func TestPodsThatAreIdleForTooLongAreReplaced(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.Judge()
	ns.StartKubelet()
	ns.StartController()
	pool := ns.CreatePool(environment.Pool("runners", 2, func(p *v1alpha1.WarmPool) { p.Spec.MaxIdleSeconds = 3 }))
	ns.WaitPool("runners", 2, 0)
	before := ns.Pods()
	for _, pod := range before {
		ns.Eventually("Pod "+pod.Name+" to be replaced", func() error {
			if ns.Pods()[pod.UID] != nil {
				return errors.New("it is there")
			}
			if age := time.Since(pod.CreationTimestamp.Time); age < 3*time.Second {
				t.Errorf("Pod %s is gone, and only %s old", pod.Name, age)
			}
			return nil
		})
	}
	ns.PatchPool("runners", `{"spec": {"maxIdleSeconds": 0}}`)
	ns.WaitPool("runners", 2, 0)
	if idle := ns.PodsOf(pool.UID); len(idle) != 2 {
		t.Errorf("there are %d idle Pods, want 2", len(idle))
	}
}

func namesOf(pods map[types.UID]*corev1.Pod) []string {
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	return names
}
