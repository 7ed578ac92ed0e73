package controlplane

// The simulated nodes, and the last wait before Pods can run on them.

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// node is what is said, and asked, about a Node.
type node struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       struct {
		Taints []any `json:"taints,omitempty"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions,omitempty"`
	} `json:"status"`
}

type metadata struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

// createNodes registers the nodes, as kubelets would.
func (cp *ControlPlane) createNodes(ctx context.Context) error {
	for i := range cp.options.Nodes {
		n := node{APIVersion: "v1", Kind: "Node", Metadata: metadata{
			Name:   nodeName(i),
			Labels: map[string]string{"kubernetes.io/hostname": nodeName(i), "kubernetes.io/os": "linux", "type": "kwok"},
		}}
		if _, err := cp.request(ctx, http.MethodPost, cp.APIServers[0].URL+"/api/v1/nodes", n); err != nil {
			return fmt.Errorf("creating the node %s: %w", nodeName(i), err)
		}
	}
	return nil
}

// waitUsable waits until Pods can be created and will run: every node is Ready and
// has lost the taint that it was registered with, and the namespace default has its
// service account.
func (cp *ControlPlane) waitUsable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cp.options.ReadyTimeout)
	defer cancel()
	var missing error
	err := poll(ctx, 50*time.Millisecond, func() (bool, error) {
		missing = cp.usable(ctx)
		return missing == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the control plane runs, but isn't usable yet: %w (%w)\n%s", missing, err, cp.LogTails(tailLines))
	}
	return nil
}

// usable says what is still missing.
func (cp *ControlPlane) usable(ctx context.Context) error {
	api := cp.APIServers[0].URL + "/api/v1"
	if cp.options.ControllerManager {
		if _, err := cp.request(ctx, http.MethodGet, api+"/namespaces/default/serviceaccounts/default", nil); err != nil {
			return err
		}
	}
	for i := range cp.options.Nodes {
		answer, err := cp.request(ctx, http.MethodGet, api+"/nodes/"+nodeName(i), nil)
		if err != nil {
			return err
		}
		var n node
		if err := json.Unmarshal(answer, &n); err != nil {
			return fmt.Errorf("reading the node %s: %w", nodeName(i), err)
		}
		if !n.ready() {
			return fmt.Errorf("the node %s isn't ready: conditions %v, taints %v", nodeName(i), n.Status.Conditions, n.Spec.Taints)
		}
	}
	return nil
}

func (n *node) ready() bool {
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" && c.Status == "True" {
			return len(n.Spec.Taints) == 0
		}
	}
	return false
}
