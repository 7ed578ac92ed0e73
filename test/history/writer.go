package history

// I10 and O18: only the leader writes, and only while it leads.

import (
	"encoding/json"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/test/faultproxy"
)

// skew is how much later than the API server the recorder may be told of a version.
const skew = time.Second

// I10 judges that nobody sends a write unless he holds the lease.
//
// Who holds it when is read from the versions of Leases in the history (record the
// Lease's namespace too), and under which identity a process is a candidate, from its
// own writes of Leases in its log. A write, but of Leases, events and reviews, that
// arrives at a proxy breaks the rule if
//
//   - its sender didn't hold the lease at that time, by the latest version that was
//     there a second before or since (the recorder may be told late), or
//   - it arrived later than Terms.Deadline, or else the lease's duration, after the
//     sender's last renewal.
//
// What arrives right after its sender was thawed (Terms.Woken) is excepted, here and in
// O18: it was on its way before. That it does no harm the other rules judge.
//
// Without logs, or without a Lease in the history, nothing is judged.
func I10(h *History, terms Terms) []Violation {
	v := &verdict{rule: "I10"}
	tenures := tenuresOf(h)
	requests := allRequests(terms.Logs)
	identities := identitiesOf(requests)
	if len(tenures) == 0 {
		return nil
	}
	for _, r := range requests {
		if !IsGuarded(r) || terms.wasUnderWay(r) {
			continue
		}
		if !tenures.covers(r.Arrived, identities[r.Who], terms.Deadline) {
			v.inLog(r, "%s by a process that doesn't hold the lease", r.Verb)
		}
	}
	return v.found
}

// O18 judges that no write takes effect outside its sender's term: that the lease, in
// its last version before the write's, named the sender. A deposed leader's write is
// to fail by its precondition. A creation is excepted: it has none, and its Pod is
// surplus, which I3 and I6 judge.
//
// Writes are those in the logs that the API server has answered with success and a
// resourceVersion, but of Leases and events.
func O18(h *History, terms Terms) []Violation {
	v := &verdict{rule: "O18"}
	tenures := tenuresOf(h)
	requests := allRequests(terms.Logs)
	identities := identitiesOf(requests)
	for _, r := range requests {
		revision := revisionOf(r.AnswerRV)
		if !IsGuarded(r) || !r.Committed() || revision == 0 || r.Verb == "create" || terms.wasUnderWay(r) {
			continue
		}
		if holder, ok := tenures.at(revision); ok && !slices.Contains(identities[r.Who], holder) {
			v.inLog(r, "%s took effect at revision %d, in the term of %q", r.Verb, revision, holder)
		}
	}
	return v.found
}

// IsGuarded tells whether a request is one that only a leader may send: a write, but not of
// events, which nobody depends on, nor of leases, nor a review, which stores nothing.
func IsGuarded(r *faultproxy.Request) bool {
	return isStored(r) && !isEvent(r) && r.GroupResource() != Leases
}

// tenure is one version of the lease.
type tenure struct {
	revision int64
	since    time.Time // when the recorder was told
	holder   string
	renewed  time.Time
	duration time.Duration
}

// tenures are the versions of the lease, in order.
type tenures []tenure

func tenuresOf(h *History) tenures {
	var all tenures
	for i := range h.Versions {
		v := &h.Versions[i]
		if v.lease == nil {
			continue
		}
		t := tenure{revision: v.Revision, since: v.Time}
		if spec := v.lease.Spec; !v.Deleted {
			t.holder = ptr.Deref(spec.HolderIdentity, "")
			t.duration = time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0)) * time.Second
			if spec.RenewTime != nil {
				t.renewed = spec.RenewTime.Time
			}
		}
		all = append(all, t)
	}
	return all
}

// at returns who held the lease at a revision. ok is false before the first version.
func (all tenures) at(revision int64) (holder string, ok bool) {
	for _, t := range all {
		if t.revision >= revision {
			break
		}
		holder, ok = t.holder, true
	}
	return holder, ok
}

// covers tells whether one of the identities may have held the lease at a time.
func (all tenures) covers(at time.Time, identities []string, deadline time.Duration) bool {
	for i, t := range all {
		begun := !t.since.Add(-skew).After(at)
		over := slices.ContainsFunc(all[i+1:], func(next tenure) bool {
			return next.holder != t.holder && !next.since.Add(skew).After(at)
		})
		limit := deadline
		if limit == 0 {
			limit = t.duration
		}
		if begun && !over && slices.Contains(identities, t.holder) && !at.After(t.renewed.Add(limit)) {
			return true
		}
	}
	return false
}

// identitiesOf returns the names under which each process has written Leases.
func identitiesOf(requests []*faultproxy.Request) map[string][]string {
	all := map[string][]string{}
	for _, r := range requests {
		if r.GroupResource() != Leases || r.Verb != "create" && r.Verb != "update" {
			continue
		}
		if holder := holderIn(r.Body); holder != "" && !slices.Contains(all[r.Who], holder) {
			all[r.Who] = append(all[r.Who], holder)
		}
	}
	return all
}

// holderIn reads the holder from the body of a write of a Lease.
func holderIn(body []byte) string {
	lease := &coordinationv1.Lease{}
	if json.Unmarshal(body, lease) != nil {
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, lease); err != nil {
			return ""
		}
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}
