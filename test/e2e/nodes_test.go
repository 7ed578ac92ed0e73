package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/test/environment"
)

// Pods on a cordoned node are handed out when there are no others, and replaced.
func TestPodsOnACordonedNodeAreHandedOutLastAndReplaced(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	// The test is the scheduler: what it has bound gets Ready, in that order.
	ns.StartKubeletFor(func(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" })
	ns.StartController()
	leaving, staying := createNode(t), createNode(t)

	pool := ns.CreatePool(environment.Pool("runners", 4))
	sentinel := ns.CreatePool(environment.Pool("sentinel", 1))
	ns.WaitPods(5)
	seen := ns.PodsOf(sentinel.UID)[0]
	bind(t, seen, leaving)
	// The longest Ready is the first to be handed out, if nothing speaks against it.
	for i, pod := range ns.PodsOf(pool.UID) {
		bind(t, pod, []string{leaving, leaving, staying, staying}[i])
		ns.Eventually("the Pod to be counted", func() error {
			if ready := ns.Pool("runners").Status.ReadyReplicas; ready != int32(i)+1 {
				return fmt.Errorf("%d are", ready)
			}
			return nil
		})
	}
	// While it is paused nothing is replaced.
	ns.PatchPool("runners", `{"spec": {"paused": true}}`)
	ns.WaitPoolCondition("runners", "Paused", "True", "Paused")
	ns.Kubectl("cordon", leaving)
	ns.Eventually("the controller to know of it, by the Pod of the other pool", func() error {
		if ns.Pods()[seen.UID] != nil {
			return fmt.Errorf("it isn't replaced")
		}
		return nil
	})

	for i, want := range []string{staying, staying, leaving} {
		name := fmt.Sprintf("build-%d", i)
		ns.CreateClaim(environment.Claim(name, "runners"))
		ns.WaitBound(name)
		if got := ns.Claim(name).Status.NodeName; got != want {
			t.Errorf("claim %d got a Pod on node %s, want %s", i, got, want)
		}
	}
	// The last idle Pod is on the cordoned node, and goes.
	ns.PatchPool("runners", `{"spec": {"paused": false, "replicas": 1}}`)
	ns.Eventually("the idle Pod on the cordoned node to be replaced", func() error {
		idle := ns.PodsOf(pool.UID)
		for _, pod := range idle {
			switch pod.Spec.NodeName {
			case "":
				bind(t, pod, staying)
			case leaving:
				return fmt.Errorf("pod %s is there", pod.Name)
			}
		}
		if len(idle) == 0 {
			return fmt.Errorf("there is none")
		}
		return nil
	})
	ns.WaitPool("runners", 1, 3)
}

// Who serves one namespace may have no rights beyond it. Everything works but for what
// nodes are for, the log says once what is missing, and when it is granted it is used.
func TestWithoutTheRightToReadNodesEverythingElseWorks(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartKubelet()
	user := grantWithinNamespace(t, ns)
	controller := ns.StartController("--kubeconfig=" + kubeconfigAs(t, user))
	ns.CreatePool(environment.Pool("runners", 2))
	ns.WaitPool("runners", 2, 0)
	ns.CreateClaim(environment.Claim("build", "runners"))
	ns.WaitBound("build")
	ns.WaitPool("runners", 2, 1)
	ns.DeleteClaim("build")
	ns.WaitPods(2)

	const missing = `"Optional cache is not there, going on without it" resource="nodes" reason="forbidden"`
	log := controller.Log()
	if got := strings.Count(log, missing); got != 1 {
		t.Errorf("the log says %d times that nodes can't be read, want once", got)
	}
	if want := `mend="grant list and watch: kubectl apply -f artifacts/deploy"`; !strings.Contains(log, want) {
		t.Errorf("the log doesn't say what helps: %s", want)
	}
	grantNodes(t, user)
	ns.Eventually("the cache of nodes to be filled", func() error {
		if !strings.Contains(controller.Log(), `"Caches populated" type="*v1.Node"`) {
			return fmt.Errorf("it isn't")
		}
		return nil
	})
	if got := strings.Count(controller.Log(), missing); got != 1 {
		t.Errorf("the log says %d times that nodes can't be read, want once", got)
	}
}

// createNode registers a node that is Ready, and stays so for as long as a test takes.
func createNode(t *testing.T) string {
	t.Helper()
	name := "test-node-" + utilrand.String(5)
	leases, nodes := env.Kube.CoordinationV1().Leases("kube-node-lease"), env.Kube.CoreV1().Nodes()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: ptr.To[int32](600), RenewTime: ptr.To(metav1.NowMicro())},
	}
	if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := nodes.PatchStatus(t.Context(), name, []byte(`{"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Simulated"}]}}`)); err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() { // others may go on using the control plane
		if err := errors.Join(nodes.Delete(ctx, name, metav1.DeleteOptions{}), leases.Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
			t.Error(err)
		}
	})
	return name
}

// bind does what a scheduler does.
func bind(t *testing.T, pod *corev1.Pod, node string) {
	t.Helper()
	err := env.Kube.CoreV1().Pods(pod.Namespace).Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// grantWithinNamespace makes a user who has, in the namespace alone, the rights that
// artifacts/deploy gives the controller.
func grantWithinNamespace(t *testing.T, ns *environment.Namespace) (user string) {
	t.Helper()
	user = "controller-of-" + ns.Name
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "controller"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "warmpool-controller"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := env.Kube.RbacV1().RoleBindings(ns.Name).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return user
}

// grantNodes lets a user read nodes.
func grantNodes(t *testing.T, user string) {
	t.Helper()
	roles, bindings := env.Kube.RbacV1().ClusterRoles(), env.Kube.RbacV1().ClusterRoleBindings()
	meta := metav1.ObjectMeta{Name: "nodes-for-" + user}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list", "watch"}}}}
	if _, err := roles.Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := errors.Join(bindings.Delete(ctx, meta.Name, metav1.DeleteOptions{}), roles.Delete(ctx, meta.Name, metav1.DeleteOptions{})); err != nil {
			t.Error(err)
		}
	})
}

// kubeconfigAs is the administrator's, who acts for the user.
func kubeconfigAs(t *testing.T, user string) string {
	t.Helper()
	admin, err := env.ControlPlane.Kubeconfig(controlplane.Admin)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(admin)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range config.AuthInfos {
		info.Impersonate = user
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
