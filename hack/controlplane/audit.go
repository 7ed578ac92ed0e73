package controlplane

// What was written to the API servers, and by whom, from their audit logs.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// auditPolicy has each write logged once, when it has been answered. Reads are left
// out, and so are reviews, which are POST requests that store nothing.
const auditPolicy = `{
  "apiVersion": "audit.k8s.io/v1",
  "kind": "Policy",
  "omitStages": ["RequestReceived", "ResponseStarted", "Panic"],
  "rules": [
    {"level": "None", "verbs": ["get", "list", "watch"]},
    {"level": "None", "nonResourceURLs": ["*"]},
    {"level": "None", "resources": [{"group": "authentication.k8s.io"}, {"group": "authorization.k8s.io"}]},
    {"level": "Metadata"}
  ]
}
`

// Write is one mutating request that an API server has answered, refused ones too.
type Write struct {
	Time        time.Time // when the request arrived
	Server      string    // which API server: its Process.Name
	User        string    // who asked; if he acted for another, that other
	UserAgent   string
	Verb        string // create, update, patch, delete, deletecollection
	Group       string // empty: core
	Resource    string // plural, for example pods
	Subresource string // for example status; empty: none
	Namespace   string
	Name        string // empty where the request named none: deletecollection, generateName refused
	Code        int    // HTTP status of the answer
	DryRun      bool   // nothing was to be stored
}

// Kind is what sort of write it is, for counting: "patch podclaims/status".
func (w Write) Kind() string {
	if w.Subresource == "" {
		return w.Verb + " " + w.Resource
	}
	return w.Verb + " " + w.Resource + "/" + w.Subresource
}

// Writes returns the writes of user, at all API servers, oldest first. An empty user
// means everybody's. A write is there a few milliseconds after its answer was sent,
// so whoever counts waits for the count that he expects. A write whose API server was
// killed before it answered isn't there, though it may have happened.
func (cp *ControlPlane) Writes(user string) ([]Write, error) {
	var all []Write
	for _, s := range cp.APIServers {
		if s.AuditLog == "" {
			return nil, errors.New("reading the audit log: it is off (Options.NoAudit)")
		}
		writes, err := s.audit.read(s.AuditLog, s.Name)
		if err != nil {
			return nil, fmt.Errorf("reading the audit log of %s: %w", s.Name, err)
		}
		all = append(all, writes...)
	}
	if user != "" {
		all = slices.DeleteFunc(all, func(w Write) bool { return w.User != user })
	}
	slices.SortStableFunc(all, func(a, b Write) int { return a.Time.Compare(b.Time) })
	return all, nil
}

// CountByKind says how many writes there are of each Kind.
func CountByKind(writes []Write) map[string]int {
	counts := map[string]int{}
	for _, w := range writes {
		counts[w.Kind()]++
	}
	return counts
}

// auditEvent is the part of an audit.k8s.io/v1 Event that a Write is made of.
type auditEvent struct {
	Verb             string    `json:"verb"`
	RequestURI       string    `json:"requestURI"`
	UserAgent        string    `json:"userAgent"`
	ReceivedAt       time.Time `json:"requestReceivedTimestamp"`
	User             auditUser `json:"user"`
	ImpersonatedUser auditUser `json:"impersonatedUser"`
	ObjectRef        struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

type auditUser struct {
	Username string `json:"username"`
}

// auditReader reads one server's log, each entry once, however often it is asked. The
// zero value has read nothing. It is safe for concurrent use.
type auditReader struct {
	mu     sync.Mutex
	offset int64 // of the first entry that isn't read yet
	writes []Write
}

// read returns what the log holds up to the last whole line: the server may be
// writing, or may have been killed in the middle of, the next.
func (r *auditReader) read(path, server string) ([]Write, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // made with the first entry
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(r.offset, io.SeekStart); err != nil {
		return nil, err
	}
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return slices.Clone(r.writes), nil
		}
		if err != nil {
			return nil, err
		}
		var e auditEvent
		if err := json.Unmarshal(bytes.TrimSpace(line), &e); err != nil {
			return nil, fmt.Errorf("%s, entry %d: %w", path, len(r.writes)+1, err)
		}
		r.offset += int64(len(line))
		r.writes = append(r.writes, e.write(server))
	}
}

func (e *auditEvent) write(server string) Write {
	user := e.User.Username
	if e.ImpersonatedUser.Username != "" {
		user = e.ImpersonatedUser.Username
	}
	return Write{
		Time:        e.ReceivedAt,
		Server:      server,
		User:        user,
		UserAgent:   e.UserAgent,
		Verb:        e.Verb,
		Group:       e.ObjectRef.APIGroup,
		Resource:    e.ObjectRef.Resource,
		Subresource: e.ObjectRef.Subresource,
		Namespace:   e.ObjectRef.Namespace,
		Name:        e.ObjectRef.Name,
		Code:        e.ResponseStatus.Code,
		DryRun:      strings.Contains(e.RequestURI, "dryRun="),
	}
}
