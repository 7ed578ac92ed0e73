package faultproxy

// What happened, for judges.

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Request is one request and what became of it. A zero time says that it hasn't
// happened, or never did.
type Request struct {
	// ID numbers the requests in the order in which they arrived, from 1.
	ID int64
	// Who is Options.Name of the proxy.
	Who       string
	UserAgent string

	// Verb is get, list, watch, create, update, patch, delete or
	// deletecollection; empty for what isn't about a resource (/healthz).
	Verb        string
	Group       string // empty: core
	Version     string
	Resource    string
	Subresource string
	Namespace   string
	// Name is the object's; of a creation it is read from the body.
	Name  string
	Path  string
	Query url.Values

	// Accept is what the client wants to be answered with: metadata alone, for one.
	Accept string
	// ContentType and Body are as the client sent them; a typed client of core
	// resources sends protobuf.
	ContentType string
	Body        []byte
	// Meta is the metadata in the body of a create, an update, a merge or an apply
	// patch, as far as the body has it.
	Meta metav1.ObjectMeta
	// Preconditions are those of a delete.
	Preconditions metav1.Preconditions
	// Tests are the paths that a JSON patch tests, in order.
	Tests []string

	Arrived   time.Time // the client's request was read
	Forwarded time.Time // it was sent to the API server
	Answered  time.Time // the API server answered, or the connection to it broke
	Replied   time.Time // the client was told something

	// Code is the API server's answer. 0: none; if Forwarded isn't zero, nobody
	// knows whether it happened.
	Code int
	// Told is the code that the client was told. 0: none.
	Told int
	// ToldRV is the resourceVersion of the list that the client was told.
	ToldRV string
	// AnswerRV, AnswerUID and AnswerName are the object's in the API server's
	// answer; of a list, AnswerRV is the list's. AnswerReason is a failure's.
	AnswerRV     string
	AnswerUID    types.UID
	AnswerName   string
	AnswerReason metav1.StatusReason
	// Items is the number of objects in the answer to a list.
	Items int

	// Faults are the names of the rules that fired, in the order of their adding.
	Faults []string
}

// IsWrite tells whether the request would change something.
func (r *Request) IsWrite() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	default:
		return false
	}
}

// Committed tells whether the API server said that it was done.
func (r *Request) Committed() bool { return r.Code >= 200 && r.Code < 300 }

// InDoubt tells whether nobody knows if it was done: it was sent, and no answer came,
// or one that leaves it open (5xx).
func (r *Request) InDoubt() bool {
	return !r.Forwarded.IsZero() && (r.Code == 0 || r.Code >= 500)
}

// GroupResource is the resource that the request is about.
func (r *Request) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Resource}
}

// Delivery is one event of a watch that was sent to the client.
type Delivery struct {
	Time time.Time
	Who  string
	// Watch is the ID of the request that opened the watch.
	Watch     int64
	Resource  schema.GroupResource
	Type      string // ADDED, MODIFIED, DELETED, BOOKMARK or ERROR
	Namespace string
	Name      string
	UID       types.UID
	// ResourceVersion is the object's; of a bookmark, that up to which the client
	// has seen everything.
	ResourceVersion string
	// Initial tells that the event is one of a WatchList's initial ones, which count
	// when the bookmark has come that ends them: InitialEnd.
	Initial    bool
	InitialEnd bool
}

// Log is what happened at a proxy. It is the caller's.
type Log struct {
	// Requests are in the order in which they arrived.
	Requests []Request
	// Deliveries are in the order in which they were sent.
	Deliveries []Delivery
}

// Log returns what has happened so far.
func (p *Proxy) Log() Log {
	p.mu.Lock()
	defer p.mu.Unlock()
	log := Log{Deliveries: slices.Clone(p.events)}
	for _, x := range p.log {
		log.Requests = append(log.Requests, x.copy())
	}
	return log
}

func (r *Request) copy() Request {
	c := *r
	c.Faults = slices.Clone(r.Faults)
	return c
}

// Select returns the requests that m chooses, in the order of their arrival.
func (l Log) Select(m Match) []Request {
	var chosen []Request
	for i := range l.Requests {
		if m.request(&l.Requests[i]) {
			chosen = append(chosen, l.Requests[i])
		}
	}
	return chosen
}

// WaitRequests waits until n requests that m chooses have satisfied state, which is
// one of (*Request).Committed, say, or nil for any. It returns them.
func (p *Proxy) WaitRequests(ctx context.Context, n int, m Match, state func(*Request) bool) ([]Request, error) {
	var found []Request
	err := p.wait(ctx, func() (bool, string) {
		found = nil
		for _, x := range p.log {
			if m.request(&x.Request) && (state == nil || state(&x.Request)) {
				found = append(found, x.copy())
			}
		}
		return len(found) >= n, "waiting for requests " + m.String()
	})
	return found, err
}

// WaitDeliveries waits until n events that match satisfies have been sent to the
// client.
func (p *Proxy) WaitDeliveries(ctx context.Context, n int, match func(Delivery) bool) error {
	return p.wait(ctx, func() (bool, string) {
		count := 0
		for _, d := range p.events {
			if match(d) {
				count++
			}
		}
		return count >= n, "waiting for events"
	})
}

// SeenAt returns the resourceVersion up to which all of a resource had been sent to the
// client at a time, by lists and watches of the whole. Empty: none of it.
func (l Log) SeenAt(resource schema.GroupResource, at time.Time) string {
	seen := ""
	for i := range l.Requests {
		r := &l.Requests[i]
		if r.Verb == "list" && r.Name == "" && r.GroupResource() == resource && r.Told == http.StatusOK && !r.Replied.After(at) {
			seen = newer(seen, r.ToldRV)
		}
	}
	for _, d := range l.Deliveries {
		if d.Resource == resource && (!d.Initial || d.InitialEnd) && !d.Time.After(at) {
			seen = newer(seen, d.ResourceVersion)
		}
	}
	return seen
}

// newer returns the higher of two resourceVersions; one that can't be compared loses.
func newer(a, b string) string {
	order, err := resourceversion.CompareResourceVersion(a, b)
	switch {
	case err == nil && order >= 0:
		return a
	case err == nil:
		return b
	}
	if _, err := resourceversion.CompareResourceVersion(b, b); err == nil {
		return b
	}
	return a
}
