package history

// I1: a Pod has one claim. I2: a claim has one Pod.

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// I1 judges that a Pod is never given to two claims, at any revision.
//
// A claim is said to have a Pod, by UID, at a version in which it is the Pod's
// controller owner, or in which its status.pod names the Pod. Two claims (by UID) that
// are ever said to have the same Pod (by UID) break the rule, whether at the same time
// or one after the other, living or not: a Pod that was used is never given again.
func I1(h *History) []Violation {
	v := &verdict{rule: "I1"}
	has := map[types.UID]types.UID{} // claim by Pod
	given := func(s step, pod, claim types.UID) {
		if first, ok := has[pod]; ok && first != claim {
			v.at(s.Version, "Pod %s is given to claim %s, and was to claim %s", pod, claim, first)
			return
		}
		has[pod] = claim
	}
	h.replay(func(s step) {
		if s.pod != nil {
			if owner := OwnerOf(s.pod); owner.Kind == kindClaim {
				given(s, s.pod.UID, owner.UID)
			}
		}
		if s.claim != nil && s.claim.Status.Pod != nil {
			given(s, s.claim.Status.Pod.UID, s.claim.UID)
		}
	})
	return v.found
}

// I2 judges that a claim never has a second Pod.
//
// A claim's status.pod, once it is there, never changes and never goes. And a claim is
// the controller owner of one Pod only, in the whole history: a second one breaks the
// rule even if the first is gone.
//
// Where two leaders overlapped on purpose (Terms.Overlap), a second Pod is forgiven if
// no client could see it, that is, the claim's status never named it, and if it was
// being deleted, or gone, no later than Overlap after it was handed out.
func I2(h *History, terms Terms) []Violation {
	v := &verdict{rule: "I2"}
	handedOut := handOuts{first: map[types.UID]types.UID{}, visible: map[types.UID]bool{}}
	h.replay(func(s step) {
		switch {
		case s.claim != nil:
			judgeWriteOnce(v, s)
			if s.claim.Status.Pod != nil {
				handedOut.visible[s.claim.Status.Pod.UID] = true
			}
		case s.pod != nil:
			handedOut.note(s)
		}
	})
	for _, second := range handedOut.second {
		if !handedOut.forgiven(second, terms.Overlap) {
			v.at(second.handedOut, "a second Pod is handed to claim %s, which has Pod %s", second.claim, second.first)
		}
	}
	return v.found
}

// judgeWriteOnce judges one write of a claim.
func judgeWriteOnce(v *verdict, s step) {
	if s.old == nil || s.old.claim.Status.Pod == nil || s.Deleted {
		return
	}
	before, after := s.old.claim.Status.Pod, s.claim.Status.Pod
	switch {
	case after == nil:
		v.at(s.Version, "status.pod named Pod %s and is gone", before.UID)
	case *after != *before:
		v.at(s.Version, "status.pod named Pod %s (%s) and names %s (%s)", before.Name, before.UID, after.Name, after.UID)
	}
}

// handOuts are the Pods that claims were handed.
type handOuts struct {
	first   map[types.UID]types.UID // Pod by claim
	visible map[types.UID]bool      // Pods that a claim's status has named
	second  []*secondPod
}

// secondPod is a Pod that was handed to a claim that had one.
type secondPod struct {
	claim     types.UID
	first     types.UID
	handedOut *Version
	// When the deletion of either began. Zero: never.
	firstGone, secondGone time.Time
}

// note follows one version of a Pod.
func (o *handOuts) note(s step) {
	if owner := OwnerOf(s.pod); owner.Kind == kindClaim {
		switch first, ok := o.first[owner.UID]; {
		case !ok:
			o.first[owner.UID] = s.pod.UID
		case first != s.pod.UID && !slices.ContainsFunc(o.second, func(p *secondPod) bool { return p.handedOut.UID() == s.pod.UID }):
			o.second = append(o.second, &secondPod{claim: owner.UID, first: first, handedOut: s.Version})
		}
	}
	if !s.Deleted && s.pod.DeletionTimestamp == nil {
		return
	}
	for _, p := range o.second {
		if p.handedOut.UID() == s.pod.UID && p.secondGone.IsZero() {
			p.secondGone = s.Time
		}
		if p.first == s.pod.UID && p.firstGone.IsZero() {
			p.firstGone = s.Time
		}
	}
}

// forgiven tells whether one of the two Pods was never seen, and gone in time.
func (o *handOuts) forgiven(p *secondPod, overlap time.Duration) bool {
	inTime := func(gone time.Time) bool { return !gone.IsZero() && gone.Sub(p.handedOut.Time) <= overlap }
	return overlap > 0 &&
		(inTime(p.secondGone) && !o.visible[p.handedOut.UID()] || inTime(p.firstGone) && !o.visible[p.first])
}
