package pool

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

// Outcome is what carrying Actions out brought about: the objects that the API
// server answered with, and its first refusal of a creation.
type Outcome struct {
	// Pods were created or handed out.
	Pods []*corev1.Pod
	// Claims were given a new status.
	Claims []*v1alpha1.PodClaim
	// Deleted are the Pods whose deletion was accepted.
	Deleted []types.UID
	// Created is how many of Pods are new.
	Created int
	// CreateError is the first refusal of a creation, or nil.
	CreateError error
	// CreateName is the name of the Pod that was refused.
	CreateName string
}

// Change is what is new in a status.
type Change int

// The kinds of change, the most urgent last.
const (
	// Unchanged: there is nothing to write.
	Unchanged Change = iota
	// CountsChanged: only numbers and times are new. They may be written a little
	// later, together with those that follow.
	CountsChanged
	// ConditionsChanged: a condition is new, or has turned, or has another reason or
	// message, or the status speaks of another generation. Somebody may wait for it.
	ConditionsChanged
)

// Status returns the status of the snapshot's pool and how it differs from what the
// pool has. It counts what the snapshot holds with the outcome applied, so that the
// events which will soon tell of the outcome change nothing more.
func Status(snapshot Snapshot, actions Actions, outcome Outcome, now time.Time) (status v1alpha1.WarmPoolStatus, change Change) {
	pool := snapshot.Pool
	status = *pool.Status.DeepCopy()
	status.ObservedGeneration = pool.Generation
	status.Selector = IdleSelector(pool.Name)
	p := newPlanner(snapshot.with(outcome), now)
	p.projectClaims()
	p.count(&status)

	set := func(kind string, isTrue bool, reason, message string) {
		meta.SetStatusCondition(&status.Conditions, newCondition(pool.Generation, now, kind, isTrue, reason, message))
	}
	if replicas := ptr.Deref(pool.Spec.Replicas, 1); status.ReadyReplicas >= replicas {
		set(v1alpha1.PoolAvailable, true, v1alpha1.ReasonEnoughReady, "as many Pods are ready as spec.replicas asks for")
	} else {
		set(v1alpha1.PoolAvailable, false, v1alpha1.ReasonTooFewReady, "fewer Pods are ready than spec.replicas asks for")
	}
	if actions.AtCapacity {
		set(v1alpha1.PoolAtCapacity, true, v1alpha1.ReasonMaxSize,
			fmt.Sprintf("spec.maxSize (%d) leaves no room for all Pods that are asked for: delete claims, or raise it", pool.Spec.MaxSize))
	} else {
		set(v1alpha1.PoolAtCapacity, false, v1alpha1.ReasonRoom, "spec.maxSize keeps no Pod from being created")
	}
	if pool.Spec.Paused {
		set(v1alpha1.PoolPaused, true, v1alpha1.ReasonPaused, "no Pod is created or deleted until spec.paused is false")
	} else {
		set(v1alpha1.PoolPaused, false, v1alpha1.ReasonNotPaused, "spec.paused is false")
	}
	setReplicaFailure(pool, set, actions, outcome)
	p.setProgressing(&status)
	return status, compare(pool.Status, status)
}

func compare(before, after v1alpha1.WarmPoolStatus) Change {
	switch {
	case equality.Semantic.DeepEqual(before, after):
		return Unchanged
	case before.ObservedGeneration == after.ObservedGeneration && equality.Semantic.DeepEqual(before.Conditions, after.Conditions):
		return CountsChanged
	default:
		return ConditionsChanged
	}
}

// setReplicaFailure follows the last attempt. Where nothing was tried the
// condition stays as it is, unless nothing had to be.
func setReplicaFailure(pool *v1alpha1.WarmPool, set func(kind string, isTrue bool, reason, message string), actions Actions, outcome Outcome) {
	switch {
	case outcome.CreateError != nil:
		told := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.PoolReplicaFailure)
		set(v1alpha1.PoolReplicaFailure, true, v1alpha1.ReasonFailedCreate, refusalMessage(told, outcome.CreateError, outcome.CreateName))
	case outcome.Created > 0 || actions.Creations == 0:
		set(v1alpha1.PoolReplicaFailure, false, v1alpha1.ReasonCreateAccepted, "the API server accepts the Pods")
	}
}

// count sets the numbers of a status.
func (p *planner) count(status *v1alpha1.WarmPoolStatus) {
	status.UpdateRevision = p.revision
	status.PendingClaims = int32(len(p.waiting))
	status.ClaimedReplicas = 0
	for _, pods := range p.owned {
		for _, pod := range pods {
			if pod.DeletionTimestamp == nil {
				status.ClaimedReplicas++
			}
		}
	}
	status.ReadyReplicas = int32(len(p.idle))
	all := slices.Concat(p.idle, p.starting, p.failed, p.retired)
	status.Replicas = int32(len(all))
	status.UpdatedReplicas = p.countUpdated(all)
	status.UpdatedReadyReplicas = p.countUpdated(p.idle)
}

func (p *planner) countUpdated(pods []*corev1.Pod) (n int32) {
	for _, pod := range pods {
		if !p.outdated(pod) {
			n++
		}
	}
	return n
}

// with returns the snapshot as it will be once the cache shows the outcome.
func (s Snapshot) with(outcome Outcome) Snapshot {
	pods := map[types.UID]*corev1.Pod{}
	for _, pod := range slices.Concat(s.Pods, outcome.Pods) {
		pods[pod.UID] = pod
	}
	for _, uid := range outcome.Deleted {
		delete(pods, uid)
	}
	claims := map[types.UID]*v1alpha1.PodClaim{}
	for _, claim := range slices.Concat(s.Claims, outcome.Claims) {
		claims[claim.UID] = claim
	}
	return Snapshot{
		Pool:   s.Pool,
		Nodes:  s.Nodes,
		Pods:   slices.Collect(maps.Values(pods)),
		Claims: slices.Collect(maps.Values(claims)),
	}
}

// IdleSelector selects the idle Pods of a pool.
func IdleSelector(poolName string) string {
	return labels.Set{
		v1alpha1.LabelPool:  poolName,
		v1alpha1.LabelState: v1alpha1.StateIdle,
	}.String()
}
