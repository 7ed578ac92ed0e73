// Package v1alpha1 holds the API of the warm pool: WarmPool keeps Pods running
// before anybody asks, PodClaim takes one of them, exclusively.
//
// The rules that the API server itself enforces (minimums, immutability, the
// write-once status.pod of a claim) stand here as markers, from which
// artifacts/crds is generated; there is no webhook.
//
// +k8s:deepcopy-gen=package
// +groupName=warmpool.dev
package v1alpha1
