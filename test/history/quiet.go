package history

// I7: at rest nothing is written.

import (
	"time"

	"warmpool.dev/controller/test/faultproxy"
)

// I7 judges that nothing was written from one time to another, both included, which
// the caller has chosen to be a time of rest: no version but of Leases in the history,
// which holds what the recorder was told to record, whoever wrote it.
func I7(h *History, from, to time.Time) []Violation {
	v := &verdict{rule: "I7"}
	for i := range h.Versions {
		version := &h.Versions[i]
		if version.Resource != Leases && !version.Initial && !version.Time.Before(from) && !version.Time.After(to) {
			v.at(version, "written at rest")
		}
	}
	return v.found
}

// I7OnWire judges the same by what controllers sent, refused or not, events included:
// no write arrived at a proxy from one time to another but of Leases, and of reviews,
// which store nothing.
func I7OnWire(from, to time.Time, logs ...faultproxy.Log) []Violation {
	v := &verdict{rule: "I7"}
	for _, r := range allRequests(logs) {
		if isStored(r) && r.GroupResource() != Leases && !r.Arrived.Before(from) && !r.Arrived.After(to) {
			v.inLog(r, "%s at rest", r.Verb)
		}
	}
	return v.found
}

// isStored tells whether a request would store something.
func isStored(r *faultproxy.Request) bool {
	return r.IsWrite() && r.Group != "authorization.k8s.io" && r.Group != "authentication.k8s.io"
}

// isEvent tells whether a request is about an Event, which nobody depends on.
func isEvent(r *faultproxy.Request) bool { return r.Resource == "events" }

// Writes counts the writes of logs by kind, refused ones too: "patch pods",
// "update podclaims/status". Reviews store nothing and don't count.
func Writes(logs ...faultproxy.Log) map[string]int {
	counts := map[string]int{}
	for _, r := range allRequests(logs) {
		if !isStored(r) {
			continue
		}
		kind := r.Verb + " " + r.Resource
		if r.Subresource != "" {
			kind += "/" + r.Subresource
		}
		counts[kind]++
	}
	return counts
}
