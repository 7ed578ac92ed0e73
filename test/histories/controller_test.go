package histories

// The controller: a snapshot from a cache, a plan, and the writes, as the product's own
// controller makes them, but one after the other.

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/pool"
)

// fault is what befalls a write.
type fault string

const (
	noFault     fault = "none"
	unavailable fault = "not carried out"
	conflicting fault = "refused by a precondition"
	answerLost  fault = "carried out, and the answer lost"
)

func noFaults(string) fault { return noFault }

// reconcile is one turn of the controller.
type reconcile struct {
	t        *rapid.T
	server   *server
	snapshot pool.Snapshot
	actions  pool.Actions
	outcome  pool.Outcome
	// fault chooses what befalls a write.
	fault func(what string) fault
	// before is called before each write.
	before func()
	// created is called after each creation.
	created func()

	answersLost bool
	writes      int
	failures    int
	status      v1alpha1.WarmPoolStatus
}

func (s *server) newReconcile(t *rapid.T, v view) *reconcile {
	return &reconcile{
		t: t, server: s, snapshot: s.snapshotOf(v),
		fault:   noFaults,
		before:  func() {},
		created: func() {},
	}
}

// snapshotOf is a view as the controller plans on it, with the nodes as they are.
func (s *server) snapshotOf(v view) pool.Snapshot {
	snapshot := v.snapshot()
	snapshot.Nodes = maps.Clone(s.nodes)
	return snapshot
}

// snapshot takes from a view what the product's controller takes from its caches.
func (v view) snapshot() pool.Snapshot {
	snapshot := pool.Snapshot{Pool: v.pools[poolName], Claims: sorted(v.claims)}
	owners := map[types.UID]bool{}
	if snapshot.Pool != nil {
		owners[snapshot.Pool.UID] = true
	}
	for _, claim := range snapshot.Claims {
		owners[claim.UID] = true
	}
	for _, pod := range sorted(v.pods) {
		owner := controllerOf(pod)
		labelled := (owner.Kind == "PodClaim" && pod.Labels[v1alpha1.LabelPool] == poolName) || (owner.Kind == "WarmPool" && owner.Name == poolName)
		if owners[owner.UID] || labelled {
			snapshot.Pods = append(snapshot.Pods, pod)
		}
	}
	return snapshot
}

// plan plans, and checks that the order of the snapshot doesn't matter.
func (r *reconcile) plan() {
	r.actions = pool.Plan(r.snapshot, r.server.now)
	order := rand.New(rand.NewPCG(rapid.Uint64().Draw(r.t, "order of the snapshot"), 0))
	shuffled := pool.Snapshot{Pool: r.snapshot.Pool, Nodes: r.snapshot.Nodes, Claims: slices.Clone(r.snapshot.Claims), Pods: slices.Clone(r.snapshot.Pods)}
	order.Shuffle(len(shuffled.Claims), func(i, j int) {
		shuffled.Claims[i], shuffled.Claims[j] = shuffled.Claims[j], shuffled.Claims[i]
	})
	order.Shuffle(len(shuffled.Pods), func(i, j int) {
		shuffled.Pods[i], shuffled.Pods[j] = shuffled.Pods[j], shuffled.Pods[i]
	})
	if got, want := describe(pool.Plan(shuffled, r.server.now)), describe(r.actions); !slices.Equal(got, want) {
		r.t.Fatalf("the plan depends on the order of the snapshot:\n got %q\nwant %q", got, want)
	}
}

// planAndCarryOut is the whole turn, and judges I11: the snapshot stays as it was.
func (r *reconcile) planAndCarryOut(check func()) {
	before := deepCopy(r.snapshot)
	r.plan()
	check()
	r.carryOut()
	if !reflect.DeepEqual(r.snapshot, before) {
		r.t.Fatalf("I11: the snapshot was changed:\n got %+v\nwant %+v", r.snapshot, before)
	}
}

func deepCopy(s pool.Snapshot) pool.Snapshot {
	c := pool.Snapshot{Pool: s.Pool.DeepCopy(), Nodes: map[string]*corev1.Node{}}
	for name, node := range s.Nodes {
		c.Nodes[name] = node.DeepCopy()
	}
	for _, claim := range s.Claims {
		c.Claims = append(c.Claims, claim.DeepCopy())
	}
	for _, pod := range s.Pods {
		c.Pods = append(c.Pods, pod.DeepCopy())
	}
	return c
}

// describe writes a plan down without its times, one action a line, in an order that
// doesn't tell how the snapshot was ordered.
func describe(actions pool.Actions) []string {
	var lines []string
	for _, h := range actions.HandOuts {
		lines = append(lines, fmt.Sprintf("hand out %s to %s", h.Pod.Name, h.Claim.Name))
	}
	for _, s := range actions.ClaimStatuses {
		line := fmt.Sprintf("claim %s: pod %v on %q %v, confirm %t", s.Claim.Name, s.Status.Pod, s.Status.NodeName, s.Status.PodIPs, s.ConfirmGone)
		for _, c := range s.Status.Conditions {
			line += fmt.Sprintf("; %s=%s %s %s", c.Type, c.Status, c.Reason, c.Message)
		}
		lines = append(lines, line)
	}
	for _, claim := range actions.ExpiredClaims {
		lines = append(lines, "delete claim "+claim.Name)
	}
	for _, d := range actions.Deletions {
		lines = append(lines, fmt.Sprintf("delete %s: %s", d.Pod.Name, d.Reason))
	}
	slices.Sort(lines)
	return append(lines, fmt.Sprintf("create %d, at capacity %t", actions.Creations, actions.AtCapacity))
}

func (r *reconcile) carryOut() {
	for _, h := range r.actions.HandOuts {
		r.handOut(h)
	}
	for _, s := range r.actions.ClaimStatuses {
		r.updateClaimStatus(s)
	}
	for _, claim := range r.actions.ExpiredClaims {
		_ = r.write("delete claim", func() error { return r.server.deleteClaim(claim) })
	}
	for _, d := range r.actions.Deletions {
		if !r.deletePod(d) {
			break
		}
	}
	for range r.actions.Creations {
		if !r.createPod() {
			break
		}
	}
	if r.snapshot.Pool != nil {
		r.updatePoolStatus()
	}
}

// write sends one write, whatever befalls it.
func (r *reconcile) write(what string, commit func() error) error {
	r.before()
	r.writes++
	var err error
	switch r.fault(what) {
	case unavailable:
		err = errUnavailable
	case conflicting:
		err = errConflict
	case answerLost:
		r.answersLost = true
		reached("answer lost: " + what)
		_ = commit()
		err = errUnavailable
	default:
		err = commit()
	}
	reached(what + ": " + class(err))
	if err != nil {
		r.failures++
	}
	return err
}

// class is what kind of answer an error is.
func class(err error) string {
	if err == nil {
		return "done"
	}
	for _, known := range []error{errConflict, errNotFound, errUnavailable, errWriteOnce} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "refused"
}

func isRefusal(err error) bool { return class(err) == "refused" }

func (r *reconcile) handOut(h pool.HandOut) {
	patch, err := pool.HandOutPatch(h.Pod, h.Claim)
	if err != nil {
		r.t.Fatalf("a Pod was planned to be handed out that can't be: %v", err)
	}
	var pod *corev1.Pod
	err = r.write("hand out", func() error {
		pod, err = r.server.patchPod(h.Pod.Name, patch)
		return err
	})
	switch {
	case err == nil:
		r.outcome.Pods = append(r.outcome.Pods, pod)
		r.updateClaimStatus(pool.ClaimStatus{Claim: h.Claim, Status: pool.BoundStatus(h.Claim, pod, r.snapshot.Pool, r.server.now)})
	case isRefusal(err):
		if status, changed := pool.RefusedStatus(h.Claim, h.Pod, err, r.server.now); changed {
			r.updateClaimStatus(pool.ClaimStatus{Claim: h.Claim, Status: status})
		}
	}
}

func (r *reconcile) updateClaimStatus(s pool.ClaimStatus) {
	if s.ConfirmGone && r.server.podByUID(s.Claim.Status.Pod.UID) != nil {
		reached("a Pod that was said to be gone is there")
		r.failures++
		return
	}
	changed := s.Claim.DeepCopy()
	changed.Status = s.Status
	var updated *v1alpha1.PodClaim
	err := r.write("claim status", func() (err error) {
		updated, err = r.server.updateClaimStatus(changed)
		return err
	})
	if err == nil {
		r.outcome.Claims = append(r.outcome.Claims, updated)
	}
}

func (r *reconcile) deletePod(d pool.Deletion) (goOn bool) {
	err := r.write("delete Pod", func() error { return r.server.deletePod(theController, d.Pod) })
	if err == nil || errors.Is(err, errNotFound) {
		r.outcome.Deleted = append(r.outcome.Deleted, d.Pod.UID)
	}
	return err == nil || errors.Is(err, errNotFound) || errors.Is(err, errConflict)
}

func (r *reconcile) createPod() (goOn bool) {
	name := pool.PodName(poolName, fmt.Sprintf("%08d", r.server.version))
	var pod *corev1.Pod
	err := r.write("create Pod", func() (err error) {
		pod, err = r.server.createPod(pool.NewPod(r.snapshot.Pool, name))
		return err
	})
	r.created()
	switch {
	case err == nil:
		r.outcome.Pods = append(r.outcome.Pods, pod)
		r.outcome.Created++
	case !errors.Is(err, errConflict) && r.outcome.CreateError == nil:
		r.outcome.CreateError, r.outcome.CreateName = err, name
	}
	return err == nil || errors.Is(err, errConflict)
}

func (r *reconcile) updatePoolStatus() {
	status, change := pool.Status(r.snapshot, r.actions, r.outcome, r.server.now)
	r.status = status
	if change == pool.Unchanged {
		return
	}
	warmPool := r.snapshot.Pool.DeepCopy()
	warmPool.Status = status
	_ = r.write("pool status", func() error { return r.server.updatePoolStatus(warmPool) })
}
