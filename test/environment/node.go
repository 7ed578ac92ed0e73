package environment

// The node that Pods run on. It must exist, and show signs of life, or
// kube-controller-manager takes its Pods for lost and deletes them.

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
)

const (
	// leaseNamespace is where kubelets renew their leases.
	leaseNamespace = "kube-node-lease"
	// heartbeat is how often; kube-controller-manager's patience is several times
	// as long.
	heartbeat = 5 * time.Second
)

// startNode registers a node, as a kubelet does, and renews its lease until ctx ends.
func (e *Environment) startNode(ctx context.Context) error {
	e.node = "test-kubelet-" + utilrand.String(5)
	// The lease comes first: on a control plane that is shared somebody may play the
	// kubelet of every node that has none.
	lease, err := e.Kube.CoordinationV1().Leases(leaseNamespace).Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: e.node},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &e.node, LeaseDurationSeconds: ptr.To[int32](40), RenewTime: ptr.To(metav1.NowMicro())},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the lease of node %s: %w", e.node, err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: e.node}}
	if _, err := e.Kube.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("register a node: %w", err)
	}
	// A patch, since kube-controller-manager writes to new nodes too.
	ready := []byte(`{"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Simulated"}]}}`)
	if _, err := e.Kube.CoreV1().Nodes().PatchStatus(ctx, e.node, ready); err != nil {
		return fmt.Errorf("make node %s ready: %w", e.node, err)
	}
	go wait.UntilWithContext(ctx, func(ctx context.Context) {
		lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
		// A renewal that fails is made up for by the next one.
		if renewed, err := e.Kube.CoordinationV1().Leases(leaseNamespace).Update(ctx, lease, metav1.UpdateOptions{}); err == nil {
			lease = renewed
		}
	}, heartbeat)
	return nil
}

// removeNode takes the node off a control plane that others go on using.
func (e *Environment) removeNode(ctx context.Context) error {
	if err := e.Kube.CoreV1().Nodes().Delete(ctx, e.node, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("remove node %s: %w", e.node, err)
	}
	if err := e.Kube.CoordinationV1().Leases(leaseNamespace).Delete(ctx, e.node, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("remove the lease of node %s: %w", e.node, err)
	}
	return nil
}
