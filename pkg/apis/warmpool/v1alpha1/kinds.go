package v1alpha1

import "k8s.io/apimachinery/pkg/runtime/schema"

// The kinds of this group, as owner references name them.
var (
	WarmPoolKind = schema.GroupVersionKind{Group: GroupName, Version: "v1alpha1", Kind: "WarmPool"}
	PodClaimKind = schema.GroupVersionKind{Group: GroupName, Version: "v1alpha1", Kind: "PodClaim"}
)
