package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
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
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.updatedReplicas`,description="Idle Pods made from the template as it is now",priority=1
// +kubebuilder:printcolumn:name="Claimed",type=integer,JSONPath=`.status.claimedReplicas`,description="Pods that claims have"
// +kubebuilder:printcolumn:name="Pending",type=integer,JSONPath=`.status.pendingClaims`,description="Claims that wait for a Pod"
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`,description="True when as many Pods are ready as asked"
// +kubebuilder:printcolumn:name="Progressing",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].reason`,description="What the pool is at, or why it doesn't get on",priority=1
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
//
// +kubebuilder:validation:XValidation:rule="!has(self.progressDeadlineSeconds) || self.progressDeadlineSeconds == 0 || self.progressDeadlineSeconds > (has(self.minReadySeconds) ? self.minReadySeconds : 0)",message="set spec.progressDeadlineSeconds to more than spec.minReadySeconds, or no Pod can be ready in time"
// +kubebuilder:validation:XValidation:rule="!has(self.maxIdleSeconds) || self.maxIdleSeconds == 0 || self.maxIdleSeconds > (has(self.minReadySeconds) ? self.minReadySeconds : 0)",message="set spec.maxIdleSeconds to more than spec.minReadySeconds, or each Pod is replaced before it may be handed out"
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

	// tolerance is how many idle Pods more than asked for are left alone: a number,
	// or a share of replicas such as "10%", rounded up. When there are more of them
	// all go. It never stands above maxSize. Default 0. Can be changed at any time.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? self.matches('^(100|[1-9]?[0-9])%$') : self >= 0 && self <= 2147483647",message="set spec.tolerance to a number such as 2, or to a share such as \"10%\""
	Tolerance *intstr.IntOrString `json:"tolerance,omitempty"`

	// minReadySeconds is how long, in seconds, a Pod must have been Ready before
	// it may be handed out. 0, the default, hands it out as soon as it is Ready.
	// Can be changed at any time.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`

	// readinessTimeoutSeconds is how long, in seconds, an idle Pod may be not
	// Ready before it is replaced. Where no Pod gets Ready each one is given as
	// long as none has, up to an hour, so that a template that is broken doesn't
	// churn. A Pod that can't be scheduled is kept: another one would fare no
	// better. 0 waits for ever. Default 300. Can be changed at any time.
	// +optional
	// +default=300
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=0
	ReadinessTimeoutSeconds *int32 `json:"readinessTimeoutSeconds,omitempty"`

	// progressDeadlineSeconds is how long, in seconds, the pool may take until one
	// more Pod of the present template is ready. Past it the condition Progressing is
	// False and says why, and a roll takes away no more ready Pods until one is. 0
	// waits for ever. Default 600. Can be changed at any time.
	// +optional
	// +default=600
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=0
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`

	// maxIdleSeconds is the age, in seconds since its creation, at which an idle Pod
	// is replaced, as far as updateStrategy lets ready ones go: for fresh images and
	// tokens. From then on it is handed out after the younger ones. 0, the default,
	// keeps Pods however old they are. Can be changed at any time.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxIdleSeconds int32 `json:"maxIdleSeconds,omitempty"`

	// updateStrategy is what a changed template does to the idle Pods. Claimed Pods
	// are never touched. Can be changed at any time.
	// +optional
	// +kubebuilder:default={}
	UpdateStrategy UpdateStrategy `json:"updateStrategy,omitempty"`

	// claimLifetime limits how long claims keep their Pods. Without it a claim keeps
	// its Pod for as long as its own lifetime says, or for ever. A change applies to
	// the Pods handed out after it.
	// +optional
	ClaimLifetime *ClaimLifetime `json:"claimLifetime,omitempty"`

	// paused stops the creation and the deletion of Pods by the pool,
	// and with them any roll; the hand-out of the Pods that are there goes on.
	// Default false. Can be changed at any time.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// template is what the pool's Pods are made from: metadata.labels,
	// metadata.annotations and spec. Labels and annotations that begin with
	// warmpool.dev/ are reserved. What a change does to the Pods that exist is said
	// in updateStrategy.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.metadata) || !has(self.metadata.labels) || self.metadata.labels.all(k, !k.startsWith('warmpool.dev/'))",message="labels that begin with warmpool.dev/ are reserved: choose another prefix in spec.template.metadata.labels"
	// +kubebuilder:validation:XValidation:rule="!has(self.metadata) || !has(self.metadata.annotations) || self.metadata.annotations.all(k, !k.startsWith('warmpool.dev/'))",message="annotations that begin with warmpool.dev/ are reserved: choose another prefix in spec.template.metadata.annotations"
	// +kubebuilder:validation:XValidation:rule="has(self.spec) && has(self.spec.containers) && self.spec.containers.size() > 0",message="name at least one container in spec.template.spec.containers"
	Template corev1.PodTemplateSpec `json:"template"`
}

// UpdateStrategyType names what a changed template does to the idle Pods.
//
// +kubebuilder:validation:Enum=RollingUpdate;Recreate;OnHandOut
type UpdateStrategyType string

// The ways to bring a changed template to the idle Pods.
const (
	// RollingUpdate replaces them a few at a time. Claims get an updated Pod if one
	// is ready, else an old one.
	RollingUpdate UpdateStrategyType = "RollingUpdate"
	// Recreate deletes all old ones at once, and hands none of them out any more:
	// claims wait.
	Recreate UpdateStrategyType = "Recreate"
	// OnHandOut leaves the old ones until they are taken. They are handed out like
	// all others, the longest Ready first.
	OnHandOut UpdateStrategyType = "OnHandOut"
)

// UpdateStrategy is what a changed template does to the idle Pods.
//
// +kubebuilder:validation:XValidation:rule="!has(self.rollingUpdate) || !has(self.type) || self.type == 'RollingUpdate'",message="remove spec.updateStrategy.rollingUpdate, or set spec.updateStrategy.type to RollingUpdate"
type UpdateStrategy struct {
	// type is RollingUpdate (a few at a time), Recreate (all old ones at once, none
	// of them is handed out any more) or OnHandOut (old ones stay until taken).
	// Default RollingUpdate.
	// +optional
	// +default="RollingUpdate"
	// +kubebuilder:default=RollingUpdate
	Type UpdateStrategyType `json:"type,omitempty"`
	// rollingUpdate says how many at a time. It also bounds the replacement of Pods
	// that are older than maxIdleSeconds or sit on a node that is cordoned or not
	// ready. Only with type RollingUpdate; the other types replace those as its
	// defaults would.
	// +optional
	RollingUpdate *RollingUpdateSettings `json:"rollingUpdate,omitempty"`
}

// RollingUpdateSettings says how many Pods are replaced at a time.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxUnavailable) || !has(self.maxSurge) || !(string(self.maxUnavailable) in ['0', '0%'] && string(self.maxSurge) in ['0', '0%'])",message="set maxUnavailable or maxSurge of spec.updateStrategy.rollingUpdate to more than 0, or no Pod can ever be replaced"
type RollingUpdateSettings struct {
	// maxUnavailable is how many ready Pods fewer than replicas there may be because
	// of the roll: a number, or a share of replicas such as "25%", rounded down; 1 if
	// it and maxSurge come to nothing, or maxSize leaves no room for a surge.
	// Default 25%.
	// +optional
	// +kubebuilder:default="25%"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? self.matches('^(100|[1-9]?[0-9])%$') : self >= 0 && self <= 2147483647",message="set maxUnavailable to a number such as 2, or to a share such as \"25%\""
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// maxSurge is how many idle Pods more than replicas there may be because of the
	// roll: a number, or a share of replicas such as "25%", rounded up. Default 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? self.matches('^(100|[1-9]?[0-9])%$') : self >= 0 && self <= 2147483647",message="set maxSurge to a number such as 2, or to a share such as \"25%\""
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
}

// ClaimLifetime limits how long claims keep their Pods.
//
// +kubebuilder:validation:XValidation:rule="!has(self.default) || !has(self.maximum) || [self.default, self.maximum].exists(d, !d.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms)){1,4}$')) || duration(self.default) <= duration(self.maximum)",message="set default of spec.claimLifetime to at most its maximum"
type ClaimLifetime struct {
	// default is the lifetime of claims that name none, such as "1h". Without it such
	// a claim gets the maximum; without that too it keeps its Pod until it is deleted.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms)){1,4}$') && duration(self) >= duration('1s') && duration(self) <= duration('99999h')",message="set it to hours, minutes and seconds, such as 1h30m, from 1s to 99999h"
	Default *metav1.Duration `json:"default,omitempty"`
	// maximum is the longest lifetime, such as "8h"; a claim that asks for more gets
	// this.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms)){1,4}$') && duration(self) >= duration('1s') && duration(self) <= duration('99999h')",message="set it to hours, minutes and seconds, such as 8h, from 1s to 99999h"
	Maximum *metav1.Duration `json:"maximum,omitempty"`
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
	// updatedReplicas counts those of replicas that were made from the template as
	// it is now.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`
	// updatedReadyReplicas counts those of readyReplicas that were made from the
	// template as it is now.
	// +optional
	UpdatedReadyReplicas int32 `json:"updatedReadyReplicas"`
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
	// updateRevision is the hash of the template that this status speaks of; the
	// Pods made from it carry it as the label warmpool.dev/template-hash.
	// +optional
	UpdateRevision string `json:"updateRevision,omitempty"`
	// lastProgressTime is when the pool last got on: the number of ready Pods of the
	// present template changed, one was handed out as soon as it was ready, the pool
	// became complete or ceased to be, or its spec changed.
	// progressDeadlineSeconds counts from it.
	// +optional
	LastProgressTime *metav1.Time `json:"lastProgressTime,omitempty"`
	// observedGeneration is the metadata.generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions: Available, Progressing, ReplicaFailure, AtCapacity and Paused.
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
	// PoolProgressing is True while the pool gets on, or is complete: all Pods are
	// there that are asked for, ready and made from the present template. It is False
	// when no Pod got ready within progressDeadlineSeconds, and says why.
	PoolProgressing = "Progressing"
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
	ReasonComplete       = "Complete"
	ReasonFilling        = "Filling"
	ReasonRolling        = "Rolling"
	ReasonDeadline       = "ProgressDeadlineExceeded"
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
