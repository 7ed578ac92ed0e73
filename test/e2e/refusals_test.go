package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/test/environment"
)

// refusedFor is how long the causes last, and mostAttempts how many creations that may
// cost: up to 4 in the first try, and then one in each; the pauses between the tries double
// from 5 ms on. An internal error leaves it open whether the Pod was made, and is looked
// into first, which takes some seconds.
const (
	refusedFor   = 10 * time.Second
	mostAttempts = 4 + 13
)

// refusal is a cause for which the API server takes no more Pods of a pool.
type refusal struct {
	name string
	// begin brings it about, and end takes it away.
	begin    func(*testing.T, *environment.Environment, *environment.Namespace)
	end      func(*environment.Namespace)
	change   func(*v1alpha1.WarmPool)
	want     string // what the pool says
	replicas int32  // how many Pods it lets through
}

func refusals() []refusal {
	return []refusal{{
		name: "quota", begin: beginQuota, replicas: 3,
		end: func(ns *environment.Namespace) {
			ns.Kubectl("patch", "resourcequota", "few", `--patch={"spec": {"hard": {"pods": "20"}}}`)
		},
		want: `pods "NAME" is forbidden: exceeded quota: few, requested: pods=1, used: pods=3, limited: pods=3`,
	}, {
		name: "limit range",
		begin: func(t *testing.T, e *environment.Environment, ns *environment.Namespace) {
			limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
			}}}}
			if _, err := e.Kube.CoreV1().LimitRanges(ns.Name).Create(t.Context(), limits, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		},
		end: func(ns *environment.Namespace) {
			ns.Kubectl("delete", "limitrange", "small")
		},
		change: func(p *v1alpha1.WarmPool) {
			p.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
		},
		want: `pods "NAME" is forbidden: maximum cpu usage per Container is 1, but limit is 2`,
	}, {
		name: "pod security",
		begin: func(_ *testing.T, _ *environment.Environment, ns *environment.Namespace) {
			ns.Kubectl("label", "namespace", ns.Name, "pod-security.kubernetes.io/enforce=restricted")
		},
		end: func(ns *environment.Namespace) {
			ns.Kubectl("label", "namespace", ns.Name, "pod-security.kubernetes.io/enforce-")
		},
		want: `pods "NAME" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "runner" must set securityContext.allowPrivilegeEscalation=false)`,
	}, {
		name: "policy", begin: beginPolicy,
		end: func(ns *environment.Namespace) {
			ns.PatchPool("runners", `{"spec": {"template": {"metadata": {"labels": {"team": "blue"}}}}}`)
		},
		want: `denied request: set the label team in the template`,
	}, {
		name: "webhook", begin: beginWebhook, end: endWebhook,
		want: `admission webhook "team.example.com" denied the request: set the label team in the template`,
	}, {
		name: "webhook that is down", begin: beginDeadWebhook, end: endWebhook,
		want: `failed calling webhook "team.example.com"`,
	}}
}

func beginQuota(t *testing.T, e *environment.Environment, ns *environment.Namespace) {
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "few"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("3")}},
	}
	quotas := e.Kube.CoreV1().ResourceQuotas(ns.Name)
	if _, err := quotas.Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ns.Eventually("the quota to be in force", func() error {
		q, err := quotas.Get(t.Context(), "few", metav1.GetOptions{})
		if err == nil && len(q.Status.Hard) == 0 {
			err = errors.New("its status is empty")
		}
		return err
	})
}

// beginPolicy demands a label of the Pods of the namespace.
func beginPolicy(t *testing.T, e *environment.Environment, ns *environment.Namespace) {
	api := e.Kube.AdmissionregistrationV1()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "team"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: "'team' in object.metadata.?labels.orValue({})", Message: "set the label team in the template"}},
		},
	}
	if _, err := api.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "team"},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        "team",
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns.Name},
			}},
		},
	}
	if _, err := api.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ns.Eventually("the policy to be in force", func() error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: environment.Pool("x", 0).Spec.Template.Spec}
		_, err := e.Kube.CoreV1().Pods(ns.Name).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			return errors.New("a Pod without the label is answered with: " + fmt.Sprint(err))
		}
		return nil
	})
}

// Whatever the API server refuses Pods for, it is told once, in its own words, and tried
// again ever more rarely; other pools don't notice; and when the cause is gone the pool
// fills. One controller serves all namespaces here.
func TestRefusalsAreReportedAndNotFought(t *testing.T) {
	t.Parallel()
	e := environment.ForTestInstalled(t, controlplane.Options{})
	controller := e.LaunchController(t, "--leader-elect=false")
	controller.WaitReady()
	t.Run("causes", func(t *testing.T) {
		for _, r := range refusals() {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				testRefusal(t, e, r)
			})
		}
	})
	t.Run("terminating namespace", func(t *testing.T) { testTerminatingNamespace(t, e, controller) })
}

func testRefusal(t *testing.T, e *environment.Environment, r refusal) {
	ns, other := e.Namespace(t), e.Namespace(t)
	ns.StartKubelet()
	other.StartKubelet()
	r.begin(t, e, ns)
	pool := environment.Pool("runners", 10)
	if r.change != nil {
		r.change(pool)
	}
	ns.CreatePool(pool)
	begun := time.Now()
	condition := ns.WaitPoolCondition("runners", "ReplicaFailure", "True", "FailedCreate")
	if !strings.Contains(condition.Message, r.want) {
		t.Errorf("the pool says\n%s\nwant in it\n%s", condition.Message, r.want)
	}
	other.CreatePool(environment.Pool("runners", 5))
	other.WaitPool("runners", 5, 0)
	t.Logf("the other pool was full %s after the first refusal", time.Since(condition.LastTransitionTime.Time).Round(time.Second))
	environment.For(t, time.Until(begun.Add(refusedFor)), "the refusal holds", func() error {
		if pods := len(ns.Pods()); pods > int(r.replicas) {
			return fmt.Errorf("there are %d Pods", pods)
		}
		return nil
	})
	attempts := refusedCreations(ns)
	t.Logf("%d creations were refused in %s", attempts, refusedFor)
	if attempts == 0 || attempts > mostAttempts {
		t.Errorf("%d creations were refused in %s, want some, and at most %d", attempts, refusedFor, mostAttempts)
	}
	warnings := slices.DeleteFunc(eventsAbout(t, e, ns, "WarmPool", "runners"), func(event corev1.Event) bool { return event.Type != corev1.EventTypeWarning })
	if len(warnings) != 1 || warnings[0].Count != 1 || warnings[0].Message != condition.Message {
		t.Errorf("there are the warnings %v, want one that says what the condition does", warnings)
	}

	r.end(ns)
	ns.WaitPool("runners", 10, 0)
	ns.WaitPoolCondition("runners", "ReplicaFailure", "False", "CreateAccepted")
}

// In a namespace that is being deleted nothing can be created. That is no error, and no
// reason to try again: all that is in it goes. The controller manager is halted, so that it
// takes a while.
func testTerminatingNamespace(t *testing.T, e *environment.Environment, controller *environment.Controller) {
	ns, other := e.Namespace(t), e.Namespace(t)
	ns.StartKubelet()
	other.StartKubelet()
	pool := ns.CreatePool(environment.Pool("runners", 3))
	ns.WaitPool("runners", 3, 0)
	manager := e.ControlPlane.ControllerManager
	if err := manager.Freeze(); err != nil {
		t.Fatal(err)
	}
	frozen := true
	thaw := func() {
		if frozen {
			frozen = false
			if err := manager.Thaw(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(thaw)
	if err := e.Kube.CoreV1().Namespaces().Delete(t.Context(), ns.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	logged := len(controller.Log())
	for _, pod := range ns.PodsOf(pool.UID) {
		deletePod(t, e, pod)
	}
	ns.Eventually("the Pods to go", func() error {
		if pods := len(ns.Pods()); pods > 0 {
			return fmt.Errorf("there are %d", pods)
		}
		return nil
	})
	ns.Eventually("the controller to try to replace them", func() error {
		if refusedCreations(ns) == 0 {
			return errors.New("nothing was refused")
		}
		return nil
	})
	ns.SettledWrites()
	attempts := refusedCreations(ns)
	other.CreatePool(environment.Pool("runners", 2))
	other.WaitPool("runners", 2, 0)
	environment.For(t, 5*time.Second, "the pool", func() error {
		if pods := len(ns.Pods()); pods > 0 {
			return fmt.Errorf("it has %d Pods", pods)
		}
		return nil
	})
	t.Logf("%d creations were refused", attempts)
	if again := refusedCreations(ns); attempts > 3*3 || again != attempts {
		t.Errorf("%d creations were refused, and %d later on, want at most 3 for each Pod that went", attempts, again-attempts)
	}
	for _, line := range strings.Split(controller.Log()[logged:], "\n") {
		if strings.HasPrefix(line, "E") && strings.Contains(line, ns.Name) {
			t.Errorf("the log has the error\n%s", line)
		}
	}
	thaw()
	ns.Eventually("the namespace to go", func() error {
		_, err := e.Kube.CoreV1().Namespaces().Get(t.Context(), ns.Name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return errors.New("the answer is: " + fmt.Sprint(err))
		}
		return nil
	})
}

func deletePod(t *testing.T, e *environment.Environment, pod *corev1.Pod) {
	t.Helper()
	options := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &pod.UID}}
	if err := e.Kube.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, options); err != nil {
		t.Fatal(err)
	}
}

func refusedCreations(ns *environment.Namespace) int {
	return len(slices.DeleteFunc(environment.Refused(ns.Writes()), func(w controlplane.Write) bool { return w.Kind() != "create pods" }))
}

// eventsAbout are the events about one object.
func eventsAbout(t *testing.T, e *environment.Environment, ns *environment.Namespace, kind, name string) []corev1.Event {
	t.Helper()
	about := fields.Set{"involvedObject.kind": kind, "involvedObject.name": name}.String()
	events, err := e.Kube.CoreV1().Events(ns.Name).List(t.Context(), metav1.ListOptions{FieldSelector: about})
	if err != nil {
		t.Fatal(err)
	}
	return events.Items
}
