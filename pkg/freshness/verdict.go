package freshness

// Verdict: what the check of a key says.

import "k8s.io/apimachinery/pkg/runtime/schema"

// Cause says why a key is stale.
type Cause string

// The causes. Fresh is the zero value.
const (
	// Fresh: the key may be worked on.
	Fresh Cause = ""
	// Behind: the store hasn't reached the version of a write under the key.
	Behind Cause = "behind"
	// InFlight: a write under the key was sent and isn't answered yet.
	InFlight Cause = "in_flight"
	// InDoubt: the answer to a write under the key was lost.
	InDoubt Cause = "in_doubt"
	// Unconfirmed: a write succeeded, but its answer had no version.
	Unconfirmed Cause = "unconfirmed"
	// Outdated: a write was refused since the cache is older than the API server.
	Outdated Cause = "outdated"
	// WentBack: the store is older than it was.
	WentBack Cause = "went_back"
	// Unordered: the store's version is missing or can't be compared.
	Unordered Cause = "unordered"
)

// Verdict is the result of a Check.
type Verdict struct {
	// Cause is why the key is stale, or Fresh.
	Cause Cause
	// Resource is whose store the key waits for.
	Resource schema.GroupResource
	// Version is what that store must reach, if it is known: if Cause is Behind,
	// and mostly if it is WentBack.
	Version string
}

// Fresh reports whether the key may be worked on.
func (v Verdict) Fresh() bool { return v.Cause == Fresh }
