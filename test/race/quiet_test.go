package race

// A controller that wakes itself.

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/pool"
	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/history"
)

const quiet = "scenario: status storms"

// restLong is how long nothing may happen at rest: longer than a loop takes whose
// timestamps have a grain of a second.
const restLong = 4 * time.Second

// putOffFor is longer than new counts of a pool are put off for. By then they may have been
// written together with something more urgent, and nothing is left to do.
const putOffFor = 1500 * time.Millisecond

// reconciles are how often the current process has reconciled.
func (r *run) reconciles() (n int) {
	r.t.Helper()
	for _, result := range []string{"ok", "error", "parked"} {
		n += r.metric(fmt.Sprintf("freshness_reconcile_seconds_count{result=%q}", result))
	}
	return n
}

// rests waits until nothing is written any more, and checks that it stays so, and that
// nothing is looked at either.
func (r *run) rests(what string) {
	r.t.Helper()
	r.rest()
	before, since := r.reconciles(), time.Now()
	r.ns.Eventually("what was put off to be looked at", func() error {
		if n := r.reconciles(); n != before {
			before, since = n, time.Now()
		}
		if looked := time.Since(since); looked < putOffFor {
			return fmt.Errorf("the last reconcile was %s ago", looked)
		}
		return nil
	})
	r.sendsNothing(restLong, stored, what)
	if n := r.reconciles() - before; n > 0 {
		r.t.Errorf("%s: %d reconciles within %s", what, n, restLong)
	}
}

// writesOf does something, waits until it has its effect, and returns what the controller
// has written for it.
func (r *run) writesOf(do func(), what string, effect func(*history.World) bool) map[string]int {
	r.t.Helper()
	before := history.Writes(r.current().proxy.Log())
	do()
	r.waitFor(what, effect)
	r.rest()
	wrote := history.Writes(r.current().proxy.Log())
	for kind, n := range before {
		if wrote[kind] -= n; wrote[kind] == 0 {
			delete(wrote, kind)
		}
	}
	return wrote
}

// B71: a status with a new timestamp at each pass woke its own controller, for ever; with
// timestamps of a second some such loops begin only where there are many objects. Here one,
// ten and forty pools, each with a claim, are left alone: nothing is written and nothing
// looked at. Then Pods turn not Ready and Ready again, and each turn is one write.
func TestNothingHappensHoweverManyThereAre(t *testing.T) {
	r := scenario(t, quiet)
	have := 0
	for _, many := range []int{1, 10, 40} {
		for ; have < many; have++ {
			name := fmt.Sprintf("pool-%d", have)
			r.ns.CreatePool(environment.Pool(name, 1))
			r.ns.CreateClaim(environment.Claim(fmt.Sprintf("claim-%d", have), name))
		}
		r.settle()
		r.rests(fmt.Sprintf("%d pools are at rest", many))
	}
	r.want(deletions, 0, 0)

	poolOf := func(w *history.World) *history.Pool { return w.PoolNamed(r.ns.Name, "pool-0") }
	idle := r.ns.PodsOf(r.ns.Pool("pool-0").UID)[0]
	claimed := r.ns.PodsOf(r.ns.Claim("claim-0").UID)[0]
	for _, ready := range []bool{false, true} {
		want := int32(0)
		if ready {
			want = 1
		}
		wrote := r.writesOf(func() { r.ns.SetReady(idle, ready) }, "the pool to count its ready Pods",
			func(w *history.World) bool { return poolOf(w).Status.ReadyReplicas == want })
		if once := map[string]int{"update warmpools/status": 1}; !maps.Equal(wrote, once) {
			t.Errorf("an idle Pod's readiness turned to %t, and the controller wrote %v, want %v", ready, wrote, once)
		}
		wrote = r.writesOf(func() { r.ns.SetReady(claimed, ready) }, "the claim to follow its Pod",
			func(w *history.World) bool { return isReady(w, "claim-0") == ready })
		if once := map[string]int{"update podclaims/status": 1}; !maps.Equal(wrote, once) {
			t.Errorf("a claimed Pod's readiness turned to %t, and the controller wrote %v, want %v", ready, wrote, once)
		}
	}
	r.end(history.Terms{})
}

func isReady(w *history.World, claim string) bool {
	for _, c := range w.Claims {
		if c.Name != claim {
			continue
		}
		for _, condition := range c.Status.Conditions {
			if condition.Type == v1alpha1.ClaimReady {
				return condition.Status == metav1.ConditionTrue
			}
		}
	}
	return false
}

// B72: what the API server fills in was taken for a change, on every pass, and Pods were
// replaced for ever. Here templates say as little as they can, or say what is the default,
// or zero; an admission policy puts a sidecar into each Pod; and somebody puts a label on
// it. Nobody is woken by that, and no Pod is replaced.
func TestTheAPIServerFillsInWhatATemplateLeavesOut(t *testing.T) {
	r := scenario(t, quiet)
	bare := environment.Pool("bare", 1)
	r.injectSidecars(bare)
	explicit := environment.Pool("explicit", 1, func(p *v1alpha1.WarmPool) {
		p.Spec.Template.Labels, p.Spec.Template.Annotations = map[string]string{}, map[string]string{}
		spec := &p.Spec.Template.Spec
		spec.RestartPolicy, spec.DNSPolicy = corev1.RestartPolicyAlways, corev1.DNSClusterFirst
		spec.TerminationGracePeriodSeconds, spec.ActiveDeadlineSeconds = ptr.To[int64](0), nil
		spec.SecurityContext, spec.HostNetwork, spec.Volumes = &corev1.PodSecurityContext{}, false, []corev1.Volume{}
		spec.Containers[0].Resources, spec.Containers[0].Env = corev1.ResourceRequirements{}, []corev1.EnvVar{}
	})
	for _, p := range []*v1alpha1.WarmPool{bare, explicit} {
		r.ns.CreatePool(p)
		r.ns.CreateClaim(environment.Claim("on-"+p.Name, p.Name))
	}
	r.settle()
	for _, pod := range r.ns.Pods() {
		if !isInjected(pod) {
			t.Errorf("Pod %s has no sidecar: the policy didn't work", pod.Name)
		}
		r.patchPod(pod.Name, `{"metadata": {"labels": {"example.com/seen": "yes"}}}`)
	}
	r.settle()
	r.rests("pools whose Pods have more than their templates say are at rest")
	r.wantMade(4)
	r.want(deletions, 0, 0)
	r.end(history.Terms{})
}

func isInjected(pod *corev1.Pod) bool { return len(pod.Spec.InitContainers) == 1 }

// injectSidecars has the API server put a sidecar into each new Pod of the namespace, and
// waits until it does so to the Pods of a pool.
func (r *run) injectSidecars(of *v1alpha1.WarmPool) {
	r.t.Helper()
	const sidecar = `Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: "sidecar", image: "registry.k8s.io/pause:3.10", restartPolicy: "Always"}]}}`
	policies := r.env.Kube.AdmissionregistrationV1()
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: r.ns.Name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: r.ns.Name}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}}},
			},
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			Mutations: []admissionv1.Mutation{{
				PatchType:          admissionv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: sidecar},
			}},
		},
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: r.ns.Name},
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: r.ns.Name},
	}
	if _, err := policies.MutatingAdmissionPolicies().Create(r.t.Context(), policy, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	if _, err := policies.MutatingAdmissionPolicyBindings().Create(r.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		ctx := context.WithoutCancel(r.t.Context())
		for _, remove := range []func(context.Context, string, metav1.DeleteOptions) error{
			policies.MutatingAdmissionPolicyBindings().Delete, policies.MutatingAdmissionPolicies().Delete,
		} {
			if err := remove(ctx, r.ns.Name, metav1.DeleteOptions{}); err != nil {
				r.t.Error(err)
			}
		}
	})
	of = of.DeepCopy()
	of.Namespace, of.UID = r.ns.Name, "none"
	r.ns.Eventually("the policy to be in force", func() error {
		probe := pool.NewPod(of, "probe")
		probe.OwnerReferences = nil
		created, err := r.env.Kube.CoreV1().Pods(r.ns.Name).Create(r.t.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && !isInjected(created) {
			err = fmt.Errorf("a Pod has no sidecar")
		}
		return err
	})
}
