package main

// The checks: what was promised, judged by what the API server holds in the end.

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

// check is one promise.
type check struct {
	kept bool
	what string // in words, with the figures
}

func (c check) String() string {
	if c.kept {
		return "  PASS  " + c.what
	}
	return "  FAIL  " + c.what
}

// errBroken is the error of a story that ran to its end and came to something else.
var errBroken = errors.New("not everything holds that was promised: see the checks above")

// verdict shows the checks and returns an error if one of them fails.
func (s *stage) verdict(ctx context.Context, o *outcome) error {
	claims, err := s.warmpool.WarmpoolV1alpha1().PodClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the claims: %w", err)
	}
	pods, err := s.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelPool + "=" + poolName})
	if err != nil {
		return fmt.Errorf("list the pool's Pods: %w", err)
	}
	checks := []check{
		checkClaims(claims.Items, pods.Items),
		checkPool(pods.Items),
		checkCost(costOf(o.claiming), len(o.claims)),
	}
	if o.rest > 0 {
		checks = append(checks, checkRest(o))
	}
	kept, lines := true, []string{"Checks"}
	for _, c := range checks {
		kept = kept && c.kept
		lines = append(lines, c.String())
	}
	s.show(strings.Join(lines, "\n"))
	if !kept {
		return errBroken
	}
	return nil
}

// checkClaims: each claim is bound to a Pod of its own, which it owns.
func checkClaims(claims []v1alpha1.PodClaim, pods []corev1.Pod) check {
	owners := map[string]metav1.Object{}
	for i := range pods {
		owners[string(pods[i].UID)] = &pods[i]
	}
	bound, different := 0, map[string]bool{}
	for _, c := range claims {
		if c.Status.Pod == nil || !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ClaimBound) {
			continue
		}
		if pod := owners[string(c.Status.Pod.UID)]; pod != nil && metav1.IsControlledBy(pod, &c) {
			bound++
			different[string(c.Status.Pod.UID)] = true
		}
	}
	return check{
		kept: bound == claimCount && len(different) == claimCount,
		what: fmt.Sprintf("%d of %d claims are bound and own their Pod, on %d different Pods", bound, claimCount, len(different)),
	}
}

// checkPool: the pool has its idle Pods again, ready, and there is no Pod too many.
func checkPool(pods []corev1.Pod) check {
	ready := 0
	for i := range pods {
		owner := metav1.GetControllerOf(&pods[i])
		if owner != nil && owner.Kind == v1alpha1.WarmPoolKind.Kind && isReady(&pods[i]) {
			ready++
		}
	}
	return check{
		kept: ready == poolSize && len(pods) == poolSize+claimCount,
		what: fmt.Sprintf("the pool is back at %d of %d ready; with the claimed ones there are %d Pods of %d", ready, poolSize, len(pods), poolSize+claimCount),
	}
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// checkCost: a claim costs at most its Pod's patch, its status and the new Pod.
func checkCost(c cost, claims int) check {
	const most = 3
	return check{
		kept: c.claims() <= most*claims,
		what: fmt.Sprintf("a claim costs at most %d writes: %d for %d claims", most, c.claims(), claims),
	}
}

// checkRest: at rest nothing is written but the lease.
func checkRest(o *outcome) check {
	return check{
		kept: len(o.resting) == 0,
		what: fmt.Sprintf("at rest nothing is written but the lease: %d writes in %s", len(o.resting), o.rest),
	}
}
