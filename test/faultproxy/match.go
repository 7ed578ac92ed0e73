package faultproxy

// Which requests and events a rule is about.

import (
	"path"
	"strings"
)

// Verbs that stand for several.
const (
	// Reads are get, list and watch.
	Reads = "read"
	// Writes are create, update, patch, delete and deletecollection.
	Writes = "write"
)

// Any matches every subresource, and none.
const Any = "*"

// Match chooses requests, or events of watches. Each field narrows the choice; the
// zero value chooses everything.
type Match struct {
	// Verb is get, list, watch, create, update, patch, delete or deletecollection,
	// or Reads or Writes.
	Verb string
	// Group is the API group; empty: any. The core group is "core".
	Group string
	// Resource is the plural name, for example pods.
	Resource string
	// Subresource is for example status. Empty means none if Resource is set, and
	// any if it isn't. Any means any.
	Subresource string
	Namespace   string
	// Name is the object's, and may be a pattern: "runners-*". A creation has the
	// name in its body; a list or a watch has one if its field selector says so.
	Name string
	// Labels must be on the object: that of the event, or that in the body of a
	// create or update.
	Labels map[string]string

	// Event is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR. Of events only.
	Event string

	// Where is asked last, about the request; for an event, about its watch.
	Where func(*Request) bool
	// WhereEvent is asked last, about the event.
	WhereEvent func(*Event) bool
}

// InPages chooses the second and further pages of a list, as Match.Where.
func InPages(r *Request) bool { return r.Query.Get("continue") != "" }

// FromCache chooses lists and watches that say resourceVersion=0, which an API server
// may answer from a cache of any age. As Match.Where.
func FromCache(r *Request) bool { return r.Query.Get("resourceVersion") == "0" }

// request tells whether a request is chosen.
func (m *Match) request(r *Request) bool {
	return m.verb(r.Verb) && m.target(r) &&
		m.object(r.Namespace, r.Name, r.Meta.Labels) &&
		(m.Where == nil || m.Where(r))
}

// event tells whether an event is chosen.
func (m *Match) event(e *Event) bool {
	return m.watch(e.Watch) &&
		(m.Event == "" || m.Event == e.Type) &&
		m.object(e.Namespace, e.Name, e.Labels) &&
		(m.WhereEvent == nil || m.WhereEvent(e))
}

// watch tells whether events of a watch may be chosen.
func (m *Match) watch(r *Request) bool {
	return m.verb("watch") && m.target(r) && (m.Where == nil || m.Where(r))
}

// openWatch tells whether the watch as a whole is chosen.
func (m *Match) openWatch(r *Request) bool {
	return m.watch(r) && (m.Namespace == "" || r.Namespace == "" || m.Namespace == r.Namespace)
}

func (m *Match) verb(verb string) bool {
	read := verb == "get" || verb == "list" || verb == "watch"
	switch m.Verb {
	case "", verb:
		return true
	case Reads:
		return read
	case Writes:
		return verb != "" && !read
	default:
		return false
	}
}

func (m *Match) target(r *Request) bool {
	if m.Group != "" && m.Group != r.Group && (m.Group != "core" || r.Group != "") {
		return false
	}
	if m.Resource != "" && m.Resource != r.Resource {
		return false
	}
	switch {
	case m.Subresource == Any, m.Subresource == "" && m.Resource == "":
		return true
	default:
		return m.Subresource == r.Subresource
	}
}

func (m *Match) object(namespace, name string, labels map[string]string) bool {
	if m.Namespace != "" && m.Namespace != namespace {
		return false
	}
	if m.Name != "" {
		if ok, err := path.Match(m.Name, name); err != nil || !ok {
			return false
		}
	}
	for key, value := range m.Labels {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// String is the choice in a few words, for messages.
func (m *Match) String() string {
	words := []string{orAny(m.Verb), orAny(m.Resource)}
	if m.Subresource != "" {
		words[1] += "/" + m.Subresource
	}
	if m.Namespace != "" || m.Name != "" {
		words = append(words, orAny(m.Namespace)+"/"+orAny(m.Name))
	}
	if m.Event != "" {
		words = append(words, m.Event)
	}
	return strings.Join(words, " ")
}

func orAny(s string) string {
	if s == "" {
		return Any
	}
	return s
}
