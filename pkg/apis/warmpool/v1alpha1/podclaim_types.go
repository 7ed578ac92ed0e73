package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodClaim takes one Pod of a WarmPool of its namespace, exclusively. Once it is
// Bound the claim owns the Pod: deleting the claim deletes the Pod, deleting the
// pool does not. Act on status.pod alone: it is written once, and the API server
// refuses to change it.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=pclaim,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.poolName`
// +kubebuilder:printcolumn:name="Bound",type=string,JSONPath=`.status.conditions[?(@.type=="Bound")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Bound")].reason`
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.status.pod.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Finished",type=string,JSONPath=`.status.conditions[?(@.type=="Finished")].reason`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeName`,priority=1
// +kubebuilder:printcolumn:name="Expires",type=date,JSONPath=`.status.expirationTime`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="metadata.name: choose a name of at most 63 characters, it becomes the label warmpool.dev/claim of the Pod"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.pod) || (has(self.status) && has(self.status.pod) && self.status.pod == oldSelf.status.pod)",message="status.pod is written once and can't be changed or removed: create a new PodClaim to get another Pod"
type PodClaim struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is asked for. It can't be changed.
	// +required
	Spec PodClaimSpec `json:"spec"`
	// status is what was given; only the controller writes it.
	// +optional
	Status PodClaimStatus `json:"status,omitempty"`
}

// PodClaimSpec is what a claim asks for.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec can't be changed: delete this PodClaim and create a new one"
// +kubebuilder:validation:XValidation:rule="has(self.poolName) && self.poolName.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",message="set spec.poolName to the name of a WarmPool of this namespace"
type PodClaimSpec struct {
	// poolName names the WarmPool, in the claim's namespace, to take a Pod from.
	// The claim waits while there is no such pool. Required: the rule of spec
	// says so, with more words than the schema can. Can't be changed.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	PoolName string `json:"poolName,omitempty"`

	// priority orders the claims that wait for the same pool: higher first;
	// equal ones in the order of their creation, to the second, then by name. A
	// claim whose hand-out was refused (HandOutRefused) comes after all others.
	// Default 0. Can't be changed.
	// +optional
	Priority int32 `json:"priority,omitempty"`

	// timeoutSeconds finishes a claim, with reason TimedOut, that has waited for
	// so many seconds since its creation. 0, the default, waits for ever. Can't
	// be changed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// lifetime is how long the claim keeps its Pod, from status.boundTime on, such as
	// "30m"; then the claim is deleted, and with it the Pod. The pool's claimLifetime
	// caps it, and fills in for a claim that names none. Can't be changed.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms)){1,4}$') && duration(self) >= duration('1s') && duration(self) <= duration('99999h')",message="set spec.lifetime to hours, minutes and seconds, such as 1h30m, from 1s to 99999h"
	Lifetime *metav1.Duration `json:"lifetime,omitempty"`

	// podMetadata is set on the Pod in the very write that hands it out. The
	// downward API shows it inside the Pod. Can't be changed.
	// +optional
	PodMetadata *PodMetadata `json:"podMetadata,omitempty"`
}

// PodMetadata is what a claim sets on its Pod. A key that the Pod has already is
// overwritten.
type PodMetadata struct {
	// labels to set. Keys that begin with warmpool.dev/ are reserved. Where the
	// API server takes no Pod with them, the claim's condition Bound says so
	// (HandOutRefused).
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('warmpool.dev/'))",message="labels that begin with warmpool.dev/ are reserved: choose another prefix"
	Labels map[string]string `json:"labels,omitempty"`
	// annotations to set. Keys that begin with warmpool.dev/ are reserved.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('warmpool.dev/'))",message="annotations that begin with warmpool.dev/ are reserved: choose another prefix"
	Annotations map[string]string `json:"annotations,omitempty"`
}

// PodClaimStatus is what a claim was given.
type PodClaimStatus struct {
	// pod is the Pod that the claim has. Written once; the API server refuses
	// another Pod and its removal.
	// +optional
	Pod *PodReference `json:"pod,omitempty"`
	// podIPs are the Pod's addresses.
	// +optional
	// +listType=atomic
	PodIPs []corev1.PodIP `json:"podIPs,omitempty"`
	// nodeName is the node that the Pod runs on.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// boundTime is when the controller recorded the hand-out.
	// +optional
	BoundTime *metav1.Time `json:"boundTime,omitempty"`
	// expirationTime is when the claim is deleted, and with it the Pod. Set with
	// boundTime, from the claim's lifetime and the pool's claimLifetime; nothing
	// changes it later. Empty: never.
	// +optional
	ExpirationTime *metav1.Time `json:"expirationTime,omitempty"`
	// observedGeneration is the metadata.generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions: Bound, Ready and Finished.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// PodReference names one Pod of the claim's namespace for good: another Pod of
// the same name has another uid.
type PodReference struct {
	// name of the Pod.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid of the Pod.
	// +required
	UID types.UID `json:"uid"`
}

// Condition types of a PodClaim.
const (
	// ClaimBound is True when status.pod names the claim's Pod.
	ClaimBound = "Bound"
	// ClaimReady follows the Pod's own Ready condition.
	ClaimReady = "Ready"
	// ClaimFinished is True when nothing more will come of the claim. The claim
	// stays until somebody deletes it.
	ClaimFinished = "Finished"
)

// Reasons of a PodClaim's conditions.
const (
	// ReasonHandedOut: Bound is True.
	ReasonHandedOut = "HandedOut"
	// ReasonPending: a Pod is being started for the claim.
	ReasonPending = "Pending"
	// ReasonPoolNotFound: there is no pool of that name, or it is being deleted.
	ReasonPoolNotFound = "PoolNotFound"
	// ReasonPoolExhausted: the pool has no Pod to give and starts none now: it is
	// paused, its creations are refused, or its Pods end as soon as they start.
	ReasonPoolExhausted = "PoolExhausted"
	// ReasonAtCapacity: the pool has reached its maxSize.
	ReasonAtCapacity = "AtCapacity"
	// ReasonHandOutRefused: the API server takes no Pod with the claim's
	// podMetadata, because of an admission policy, say.
	ReasonHandOutRefused = "HandOutRefused"
	// ReasonTimedOut: the claim waited for timeoutSeconds.
	ReasonTimedOut = "TimedOut"

	// ReasonPodReady and ReasonPodNotReady: the Pod's Ready condition.
	ReasonPodReady    = "PodReady"
	ReasonPodNotReady = "PodNotReady"

	// ReasonPodSucceeded: all containers of the Pod ended well.
	ReasonPodSucceeded = "PodSucceeded"
	// ReasonPodFailed: the Pod ended with a failure.
	ReasonPodFailed = "PodFailed"
	// ReasonPodLost: the Pod was deleted.
	ReasonPodLost = "PodLost"
	// ReasonExpired: the claim's lifetime is over; it is being deleted.
	ReasonExpired = "Expired"
)

// PodClaimList is a list of PodClaims.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type PodClaimList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PodClaim `json:"items"`
}
