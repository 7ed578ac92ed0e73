package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WarmPool keeps a number of Pods running and Ready before anybody asks for
// them. A PodClaim in the same namespace takes one; the pool refills.
//
// +genclient
// +genclient:method=GetScale,verb=get,subresource=scale,result=k8s.io/api/autoscaling/v1.Scale
// +genclient:method=UpdateScale,verb=update,subresource=scale,input=k8s.io/api/autoscaling/v1.Scale,result=k8s.io/api/autoscaling/v1.Scale
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=wp,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`,description="Idle Pods to keep"
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.replicas`,description="Idle Pods that exist"
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`,description="Idle Pods that can be handed out now"
// +kubebuilder:printcolumn:name="Claimed",type=integer,JSONPath=`.status.claimedReplicas`,description="Pods that claims have"
// +kubebuilder:printcolumn:name="Pending",type=integer,JSONPath=`.status.pendingClaims`,description="Claims that wait for a Pod"
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`,description="True when as many Pods are ready as asked"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="metadata.name: choose a name of at most 63 characters, it becomes the label warmpool.dev/pool of every Pod"
type WarmPool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the pool shall be.
	// +required
	Spec WarmPoolSpec `json:"spec"`
	// status is what the controller last saw; only the controller writes it.
	// +optional
	Status WarmPoolStatus `json:"status,omitempty"`
}

// WarmPoolSpec is what a pool shall be.
type WarmPoolSpec struct {
	// replicas is the number of idle Pods to keep; Pods that were handed out
	// don't count. 0 keeps none: each claim then starts a Pod of its own.
	// Default 1. Can be changed at any time, also through the scale subresource.
	// +optional
	// +default=1
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// maxSize limits all Pods of the pool, idle, claimed and terminating ones
	// together; those that ended (Succeeded, Failed) don't count. A claim that
	// would need one more waits. 0, the default, is no limit. Lowering it
	// removes surplus idle Pods and never a claimed one. Can be changed at any
	// time.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxSize int32 `json:"maxSize,omitempty"`

	// minReadySeconds is how long, in seconds, a Pod must have been Ready before
	// it may be handed out. 0, the default, hands it out as soon as it is Ready.
	// Can be changed at any time.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`

	// readinessTimeoutSeconds is how long, in seconds, an idle Pod may be not
	// Ready before it is replaced. 0 waits for ever. Default 300. Can be changed
	// at any time.
	// +optional
	// +default=300
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=0
	ReadinessTimeoutSeconds *int32 `json:"readinessTimeoutSeconds,omitempty"`

	// paused stops the creation and the deletion of Pods by the pool; the
	// hand-out of the Pods that are there goes on. Default false. Can be changed
	// at any time.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// template is what the pool's Pods are made from: metadata.labels,
	// metadata.annotations and spec. Labels and annotations that begin with
	// warmpool.dev/ are reserved. A change applies to the Pods made after it;
	// those that exist stay as they are.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.spec) && has(self.spec.containers) && self.spec.containers.size() > 0",message="name at least one container in spec.template.spec.containers"
	Template corev1.PodTemplateSpec `json:"template"`
}

// WarmPoolStatus is what the controller last saw of a pool.
type WarmPoolStatus struct {
	// replicas counts the idle Pods, those that are still starting included and
	// those that are terminating not.
	// +optional
	Replicas int32 `json:"replicas"`
	// readyReplicas counts the idle Pods that could be handed out: Ready for at
	// least minReadySeconds.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`
	// claimedReplicas counts the Pods that claims have.
	// +optional
	ClaimedReplicas int32 `json:"claimedReplicas"`
	// pendingClaims counts the claims that wait for a Pod of this pool.
	// +optional
	PendingClaims int32 `json:"pendingClaims"`
	// selector selects the idle Pods, in the form that the scale subresource
	// and kubectl get pods -l take.
	// +optional
	Selector string `json:"selector,omitempty"`
	// observedGeneration is the metadata.generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions: Available, ReplicaFailure, AtCapacity and Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// Condition types of a WarmPool.
const (
	// PoolAvailable is True when as many Pods are ready to be handed out as
	// spec.replicas asks for.
	PoolAvailable = "Available"
	// PoolReplicaFailure is True when the API server refuses to create a Pod
	// (quota, admission, an invalid template); its message is the refusal.
	PoolReplicaFailure = "ReplicaFailure"
	// PoolAtCapacity is True when maxSize keeps the pool from creating a Pod
	// that is asked for.
	PoolAtCapacity = "AtCapacity"
	// PoolPaused is True when spec.paused is.
	PoolPaused = "Paused"
)

// Reasons of a WarmPool's conditions.
const (
	ReasonEnoughReady    = "EnoughReady"
	ReasonTooFewReady    = "TooFewReady"
	ReasonFailedCreate   = "FailedCreate"
	ReasonCreateAccepted = "CreateAccepted"
	ReasonMaxSize        = "MaxSize"
	ReasonRoom           = "Room"
	ReasonPaused         = "Paused"
	ReasonNotPaused      = "NotPaused"
)

// WarmPoolList is a list of WarmPools.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type WarmPoolList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []WarmPool `json:"items"`
}
