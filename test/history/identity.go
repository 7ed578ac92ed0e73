package history

// I12: an object is its UID.

import "k8s.io/apimachinery/pkg/types"

// I12 judges that names are never taken for objects. At each version:
//
//   - of a Pod whose controller owner is of this API: an owner of that kind, name and
//     UID exists, or has existed, in the Pod's namespace.
//   - of a Pod that changes owners: from one WarmPool it never goes to another.
//   - of a Pod that a claim owns: its label warmpool.dev/claim is that claim's name.
//   - of a claim whose status.pod is new: that Pod has existed under that name and
//     UID, and it is, or has been, this claim's by UID, not by name.
//
// The recording must have begun before the owners were deleted.
func I12(h *History) []Violation {
	v := &verdict{rule: "I12"}
	known := map[Owner]string{}     // namespaces of all that has existed
	names := map[types.UID]string{} // of Pods, with namespace
	had := map[[2]types.UID]bool{}  // claim and Pod
	h.replay(func(s step) {
		namespace := s.Object.GetNamespace()
		switch {
		case s.pool != nil:
			known[Owner{kindPool, s.pool.Name, s.pool.UID}] = namespace
		case s.claim != nil:
			known[Owner{kindClaim, s.claim.Name, s.claim.UID}] = namespace
			if pod := s.claim.Status.Pod; pod != nil && (s.old == nil || s.old.claim.Status.Pod == nil) && !s.Initial {
				switch {
				case names[pod.UID] != namespace+"/"+pod.Name:
					v.at(s.Version, "status.pod names %s (%s), and no such Pod has existed", pod.Name, pod.UID)
				case !had[[2]types.UID{s.claim.UID, pod.UID}]:
					v.at(s.Version, "status.pod names %s (%s), which has never been this claim's (%s)", pod.Name, pod.UID, s.claim.UID)
				}
			}
		case s.pod != nil && !s.Deleted:
			names[s.pod.UID] = namespace + "/" + s.pod.Name
			if owner := OwnerOf(s.pod); owner.Kind == kindClaim {
				had[[2]types.UID{owner.UID, s.pod.UID}] = true
			}
			judgeOwner(v, s, known)
		}
	})
	return v.found
}

// judgeOwner judges one version of a Pod.
func judgeOwner(v *verdict, s step, known map[Owner]string) {
	owner := OwnerOf(s.pod)
	if owner.Kind == "" || s.Initial {
		return
	}
	if known[owner] != s.pod.Namespace {
		v.at(s.Version, "belongs to the %s %s (%s), and no such object has existed in the namespace", owner.Kind, owner.Name, owner.UID)
	}
	if owner.Kind == kindClaim && s.pod.Labels[labelClaim] != owner.Name {
		v.at(s.Version, "belongs to claim %s, and its label %s is %q", owner.Name, labelClaim, s.pod.Labels[labelClaim])
	}
	if s.old == nil {
		return
	}
	if before := OwnerOf(s.old.pod); before.Kind == kindPool && owner.Kind == kindPool && before.UID != owner.UID {
		v.at(s.Version, "belonged to pool %s (%s) and belongs to pool %s (%s)", before.Name, before.UID, owner.Name, owner.UID)
	}
}
