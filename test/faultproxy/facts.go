package faultproxy

// What is read out of a request and of an answer: enough to choose by and to judge on,
// in JSON and in protobuf.

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// parseRequest reads the facts of a request. What it doesn't understand it leaves
// empty; the API server will say what is wrong.
func parseRequest(r *http.Request, body []byte) Request {
	q := Request{
		UserAgent:   r.UserAgent(),
		Path:        r.URL.Path,
		Query:       r.URL.Query(),
		Accept:      r.Header.Get("Accept"),
		ContentType: r.Header.Get("Content-Type"),
		Body:        body,
	}
	if !q.parsePath() {
		return q
	}
	q.Verb = verbOf(r.Method, q.Name, q.Query)
	if selector, err := fields.ParseSelector(q.Query.Get("fieldSelector")); err == nil && q.Name == "" {
		q.Name, _ = selector.RequiresExactMatch("metadata.name")
	}
	q.readBody()
	return q
}

// parsePath splits /api/v1/namespaces/NS/pods/NAME/status and its like. It returns
// false for paths that aren't about a resource.
func (r *Request) parsePath() bool {
	parts := strings.Split(strings.Trim(r.Path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		r.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		r.Group, r.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return false
	}
	if parts[0] == "namespaces" && len(parts) >= 3 && parts[2] != "status" && parts[2] != "finalize" {
		r.Namespace, parts = parts[1], parts[2:]
	}
	r.Resource = parts[0]
	if len(parts) > 1 {
		r.Name = parts[1]
	}
	if len(parts) > 2 {
		r.Subresource = strings.Join(parts[2:], "/")
	}
	return true
}

func verbOf(method, name string, query url.Values) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if name == "" {
			return "deletecollection"
		}
		return "delete"
	}
	watch := query.Get("watch")
	switch {
	case watch == "true" || watch == "1":
		return "watch"
	case name == "":
		return "list"
	default:
		return "get"
	}
}

// readBody reads the facts in the body of a write.
func (r *Request) readBody() {
	switch r.Verb {
	case "create", "update":
		r.Meta = readMeta(r.Body)
		if r.Name == "" {
			r.Name = r.Meta.Name
		}
	case "patch":
		if strings.HasPrefix(r.ContentType, string(types.JSONPatchType)) {
			r.Tests = testsOf(r.Body)
		} else if !strings.HasSuffix(r.ContentType, "+yaml") {
			r.Meta = readMeta(r.Body)
		}
	case "delete", "deletecollection":
		if p := readDeleteOptions(r.Body).Preconditions; p != nil {
			r.Preconditions = *p
		}
	}
}

// testsOf returns the paths that a JSON patch tests.
func testsOf(patch []byte) []string {
	var operations []struct{ Op, Path string }
	if json.Unmarshal(patch, &operations) != nil {
		return nil
	}
	var tests []string
	for _, o := range operations {
		if o.Op == "test" {
			tests = append(tests, o.Path)
		}
	}
	return slices.Clip(tests)
}

// protobufPrefix begins every object that is written in protobuf: k8s and a zero.
var protobufPrefix = []byte{'k', '8', 's', 0}

// unwrap returns the protobuf of an object without its envelope, and the kind that the
// envelope tells. ok is false if it isn't protobuf.
func unwrap(data []byte) (raw []byte, kind metav1.TypeMeta, ok bool) {
	data, ok = bytes.CutPrefix(data, protobufPrefix)
	if !ok {
		return nil, kind, false
	}
	var unknown runtime.Unknown
	if unknown.Unmarshal(data) != nil {
		return nil, kind, false
	}
	return unknown.Raw, metav1.TypeMeta{Kind: unknown.Kind, APIVersion: unknown.APIVersion}, true
}

// readMeta returns the metadata of an object. In protobuf it is field 1 of every kind.
func readMeta(object []byte) metav1.ObjectMeta {
	var partial metav1.PartialObjectMetadata
	if raw, _, ok := unwrap(object); ok {
		if partial.Unmarshal(raw) != nil {
			return metav1.ObjectMeta{}
		}
		return partial.ObjectMeta
	}
	if json.Unmarshal(object, &partial) != nil {
		return metav1.ObjectMeta{}
	}
	return partial.ObjectMeta
}

func readDeleteOptions(body []byte) metav1.DeleteOptions {
	var options metav1.DeleteOptions
	if raw, _, ok := unwrap(body); ok {
		if options.Unmarshal(raw) != nil {
			return metav1.DeleteOptions{}
		}
		return options
	}
	if json.Unmarshal(body, &options) != nil {
		return metav1.DeleteOptions{}
	}
	return options
}

// readAnswer enters the facts of the API server's answer.
func (r *Request) readAnswer(a *Answer) {
	r.Code = a.Code
	switch {
	case a.source != nil || r.Verb == "":
	case a.Code >= 400:
		r.AnswerReason = readStatus(a.Body).Reason
	case r.Verb == "list":
		r.AnswerRV, r.Items = readList(a.Body)
	default:
		meta := readMeta(a.Body)
		r.AnswerRV, r.AnswerUID, r.AnswerName = meta.ResourceVersion, meta.UID, meta.Name
		if details := readStatus(a.Body).Details; r.AnswerUID == "" && details != nil {
			// A delete of a kind that isn't returned: no version, but the UID.
			r.AnswerUID, r.AnswerName = details.UID, details.Name
		}
	}
}

// readStatus reads a Status, in either encoding. Of another object it is of no use.
func readStatus(body []byte) metav1.Status {
	var status metav1.Status
	if raw, kind, ok := unwrap(body); ok {
		if kind.Kind != "Status" || status.Unmarshal(raw) != nil {
			return metav1.Status{}
		}
		return status
	}
	if json.Unmarshal(body, &status) != nil || status.Kind != "Status" {
		return metav1.Status{}
	}
	return status
}

// readList returns the resourceVersion of a list, and how many objects it holds.
func readList(body []byte) (resourceVersion string, items int) {
	if raw, _, ok := unwrap(body); ok {
		var list metav1.PartialObjectMetadataList
		if list.Unmarshal(raw) != nil {
			return "", 0
		}
		return list.ResourceVersion, len(list.Items)
	}
	var list struct {
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if json.Unmarshal(body, &list) != nil {
		return "", 0
	}
	return list.Metadata.ResourceVersion, len(list.Items)
}
