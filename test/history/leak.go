package history

// I5: nothing is left behind, nothing comes back.

import corev1 "k8s.io/api/core/v1"

// I5 judges that no Pod is lost and that none that was claimed comes back.
//
// At each revision: a Pod that a PodClaim has owned is never owned by a WarmPool, and
// never carries the label warmpool.dev/state with another value than claimed, again.
//
// At the end of the history, which the caller has chosen to be one of quiet: each Pod
// that carries the label warmpool.dev/pool, or has an owner of this API, and isn't being
// deleted, has a controller owner that is a living pool or claim of that UID. An owner
// that is dead is held against it only if Terms.GarbageCollector says that somebody
// would have deleted the Pod; a Pod without any owner always is.
func I5(h *History, terms Terms) []Violation {
	v := &verdict{rule: "I5"}
	was := map[string]bool{} // claimed, by Pod UID
	h.replay(func(s step) {
		if s.pod == nil || s.Deleted {
			return
		}
		uid := string(s.pod.UID)
		switch owner := OwnerOf(s.pod); {
		case owner.Kind == kindClaim:
			was[uid] = true
		case was[uid] && owner.Kind == kindPool:
			v.at(s.Version, "was claimed, and is the pool %s's again", owner.Name)
		case was[uid] && s.pod.Labels[labelState] != claimed:
			v.at(s.Version, "was claimed, and has the label %s=%s", labelState, s.pod.Labels[labelState])
		}
	})
	end := h.end()
	for _, pod := range choose(end.Pods, func(pod *corev1.Pod) bool { return ours(pod) && pod.DeletionTimestamp == nil }) {
		owner, version := OwnerOf(pod), end.versions[pod.UID]
		_, pool := end.Pools[owner.UID]
		_, claim := end.Claims[owner.UID]
		switch {
		case owner.Kind == "":
			v.at(version, "at the end it belongs to nobody")
		case terms.GarbageCollector && !pool && !claim:
			v.at(version, "at the end it belongs to the %s %s (%s), which is gone", owner.Kind, owner.Name, owner.UID)
		}
	}
	return v.found
}
