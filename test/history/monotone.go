package history

// O19: statuses only move forward.

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// O19 judges, of each two following versions of a pool or a claim (by UID), that
//
//   - status.observedGeneration doesn't fall, and isn't ahead of the generation;
//   - a condition that was there is there still;
//   - a condition's lastTransitionTime doesn't go back, and moves if and only if its
//     status has changed. (It has a grain of one second, so that it may stay when the
//     status changes twice in one.)
//
// That status.pod is written once is I2's.
func O19(h *History) []Violation {
	v := &verdict{rule: "O19"}
	h.replay(func(s step) {
		if s.Deleted || s.pool == nil && s.claim == nil {
			return
		}
		after := statusOf(s.Version)
		if after.observed > s.Object.GetGeneration() {
			v.at(s.Version, "observedGeneration is %d, and the generation %d", after.observed, s.Object.GetGeneration())
		}
		if s.old == nil {
			return
		}
		before := statusOf(s.old)
		if after.observed < before.observed {
			v.at(s.Version, "observedGeneration fell from %d to %d", before.observed, after.observed)
		}
		for i := range before.conditions {
			judgeCondition(v, s, &before.conditions[i], after.conditions)
		}
	})
	return v.found
}

type status struct {
	observed   int64
	conditions []metav1.Condition
}

func statusOf(v *Version) status {
	if v.pool != nil {
		return status{v.pool.Status.ObservedGeneration, v.pool.Status.Conditions}
	}
	return status{v.claim.Status.ObservedGeneration, v.claim.Status.Conditions}
}

func judgeCondition(v *verdict, s step, was *metav1.Condition, conditions []metav1.Condition) {
	is := meta.FindStatusCondition(conditions, was.Type)
	switch {
	case is == nil:
		v.at(s.Version, "the condition %s is gone", was.Type)
	case is.LastTransitionTime.Time.Before(was.LastTransitionTime.Time):
		v.at(s.Version, "the lastTransitionTime of %s went back from %s to %s", was.Type, was.LastTransitionTime, is.LastTransitionTime)
	case is.Status == was.Status && !is.LastTransitionTime.Equal(&was.LastTransitionTime):
		v.at(s.Version, "the lastTransitionTime of %s moved, and its status didn't change", was.Type)
	}
}
