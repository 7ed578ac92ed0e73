package history

// I4: a claimed Pod isn't touched.

import (
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/test/faultproxy"
)

// I4 judges that nothing is ever done to a claimed Pod.
//
// From the version on in which a PodClaim is a Pod's controller owner:
//
//   - The controller owner never changes, and the labels warmpool.dev/pool, state and
//     claim keep their values, as long as the Pod exists.
//   - The Pod isn't deleted, nor does its deletion begin (the first version with a
//     deletionTimestamp), while the claim lives, that is, exists under that UID and
//     isn't being deleted. With logs, this is judged of the controller only: it is a
//     violation if a delete or an eviction of the Pod passed through a proxy that may
//     have done it: sent to the API server before the version, with preconditions that
//     held, not refused, and not answered with another version. Without logs, every
//     such deletion is one.
//
// Excepted is a Pod whose claim's status names another Pod, the loser of two leaders'
// overlap: it is to be deleted. Versions that Terms.Others knows are excepted too.
func I4(h *History, terms Terms) []Violation {
	v := &verdict{rule: "I4"}
	requests := allRequests(terms.Logs)
	h.replay(func(s step) {
		if s.pod == nil || s.old == nil || terms.others(s.Version) {
			return
		}
		before := OwnerOf(s.old.pod)
		if before.Kind != kindClaim {
			return
		}
		if !s.Deleted {
			judgeMarks(v, s, before)
		}
		if !s.beginsToEnd() || !s.world.living(before) || s.world.isLoser(s.pod.UID, before) {
			return
		}
		if len(terms.Logs) == 0 {
			v.at(s.Version, "deleted while claim %s has it", before.Name)
			return
		}
		for _, r := range requests {
			if mayHaveDeleted(r, s) {
				v.at(s.Version, "deleted while claim %s has it, by request %d of %q", before.Name, r.ID, r.Who)
			}
		}
	})
	return v.found
}

// judgeMarks judges what a claimed Pod is known by.
func judgeMarks(v *verdict, s step, before Owner) {
	if after := OwnerOf(s.pod); after.UID != before.UID || after.Kind != before.Kind {
		v.at(s.Version, "belonged to claim %s (%s) and belongs to %s %s (%s)", before.Name, before.UID, after.Kind, after.Name, after.UID)
	}
	for _, label := range []string{labelPool, labelState, labelClaim} {
		if was, is := s.old.pod.Labels[label], s.pod.Labels[label]; was != is {
			v.at(s.Version, "claimed by %s, had the label %s=%s and has %q", before.Name, label, was, is)
		}
	}
}

// mayHaveDeleted tells whether a request may be what deleted the object in a version.
func mayHaveDeleted(r *faultproxy.Request, s step) bool {
	evicts := r.Verb == "create" && r.Subresource == "eviction"
	deletes := r.Verb == "delete" && r.Subresource == ""
	whole := r.Verb == "deletecollection"
	named := r.Name == s.Object.GetName() && (deletes || evicts)
	switch {
	case r.GroupResource() != s.Resource || r.Namespace != s.Object.GetNamespace(),
		!whole && !named,
		!r.Committed() && !r.InDoubt(),
		r.Forwarded.After(s.Time):
		return false
	case r.Preconditions.UID != nil && *r.Preconditions.UID != s.UID(),
		r.Preconditions.ResourceVersion != nil && *r.Preconditions.ResourceVersion != s.old.Object.GetResourceVersion():
		return false
	}
	return whole || r.AnswerRV == "" || r.Code == http.StatusCreated || r.AnswerRV == s.Object.GetResourceVersion()
}

// isLoser tells whether a Pod was handed out in vain: its claim's status names another, or
// the claim was finished without one. Nobody was told of it, since clients act on the status
// alone.
func (w *World) isLoser(pod types.UID, owner Owner) bool {
	claim := w.Claims[owner.UID]
	if claim == nil {
		return false
	}
	if named := claim.Status.Pod; named != nil {
		return named.UID != pod
	}
	return meta.IsStatusConditionTrue(claim.Status.Conditions, "Finished")
}
