package freshness

// Wire: what a request and its answer say about an object, read from the path and from
// the few fields of the body that matter, in JSON and in protobuf. Anything that can't
// be read, CBOR for one, is left empty, which the ledger takes for "not known" and
// settles by a quorum read.

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// protobufMagic starts each protobuf body of the Kubernetes API.
var protobufMagic = []byte("k8s\x00")

// parseTarget reads from a request's path what it is about. It returns false for what
// is no write of a resource, a dry run included. base is the path under which the API
// server's own paths begin.
func parseTarget(request *http.Request, base string) (Intent, bool) {
	if slices.Contains(request.URL.Query()["dryRun"], metav1.DryRunAll) {
		return Intent{}, false
	}
	path := strings.TrimPrefix(strings.Trim(request.URL.Path, "/"), strings.Trim(base, "/"))
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var group string
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		group, parts = parts[1], parts[3:]
	default:
		return Intent{}, false
	}
	var namespace string
	// namespaces/x/status is the status of a namespace, and not a resource in one.
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		namespace, parts = parts[1], parts[2:]
	}
	intent := Intent{Resource: schema.GroupResource{Group: group, Resource: parts[0]}, Namespace: namespace}
	if len(parts) > 1 {
		intent.Name = parts[1]
	}
	var subresource string
	if len(parts) > 2 {
		subresource = parts[2]
	}
	intent.Verb = verbOf(request.Method, intent.Name, subresource)
	return intent, intent.Verb != ""
}

func verbOf(method, name, subresource string) string {
	switch {
	case method == http.MethodPost && subresource == "eviction":
		return "delete"
	case method == http.MethodPost && name == "":
		return "create"
	case method == http.MethodPost, method == http.MethodPut:
		return "update"
	case method == http.MethodPatch:
		return "patch"
	case method == http.MethodDelete && name == "":
		return "deletecollection"
	case method == http.MethodDelete:
		return "delete"
	default:
		return ""
	}
}

// described are the fields of a request's body that matter.
type described struct {
	Metadata struct {
		Name            string    `json:"name"`
		UID             types.UID `json:"uid"`
		ResourceVersion string    `json:"resourceVersion"`
	} `json:"metadata"`
	Preconditions metav1.Preconditions `json:"preconditions"`
	DeleteOptions struct {
		Preconditions metav1.Preconditions `json:"preconditions"`
	} `json:"deleteOptions"`
}

// describeBody adds the preconditions, and for a creation the name, to an intent.
func describeBody(intent *Intent, contentType string, body []byte) {
	mediaType, _, _ := mime.ParseMediaType(contentType)
	switch {
	case len(body) == 0:
	case mediaType == string(types.JSONPatchType):
		describeJSONPatch(intent, body)
	case bytes.HasPrefix(body, protobufMagic):
		describeProtobuf(intent, body)
	default:
		var d described
		if json.Unmarshal(body, &d) != nil {
			return
		}
		intent.expect(d.Metadata.Name, d.Metadata.UID, d.Metadata.ResourceVersion)
		intent.precondition(d.Preconditions)
		intent.precondition(d.DeleteOptions.Preconditions)
	}
}

func describeProtobuf(intent *Intent, body []byte) {
	var envelope runtime.Unknown
	if envelope.Unmarshal(body[len(protobufMagic):]) != nil {
		return
	}
	if envelope.Kind == "DeleteOptions" {
		var options metav1.DeleteOptions
		if options.Unmarshal(envelope.Raw) == nil && options.Preconditions != nil {
			intent.precondition(*options.Preconditions)
		}
		return
	}
	// The metadata are the first field of every object.
	var object metav1.PartialObjectMetadata
	if object.Unmarshal(envelope.Raw) == nil {
		intent.expect(object.Name, object.UID, object.ResourceVersion)
	}
}

// describeJSONPatch finds the tests of a JSON patch that are preconditions.
func describeJSONPatch(intent *Intent, body []byte) {
	var operations []struct {
		Op    string          `json:"op"`
		Path  string          `json:"path"`
		Value json.RawMessage `json:"value"`
	}
	if json.Unmarshal(body, &operations) != nil {
		return
	}
	for _, operation := range operations {
		var value string
		if operation.Op != "test" {
			continue
		}
		intent.Tests = true
		if json.Unmarshal(operation.Value, &value) != nil {
			continue
		}
		switch operation.Path {
		case "/metadata/uid":
			intent.UID = types.UID(value)
		case "/metadata/resourceVersion":
			intent.ResourceVersion = value
		}
	}
}

// expect takes the name, and what of an object's metadata the API server treats as a
// precondition.
func (i *Intent) expect(name string, uid types.UID, version string) {
	if i.Name == "" && i.Verb == "create" {
		i.Name = name
	}
	if i.Verb == "update" || i.Verb == "patch" {
		i.UID, i.ResourceVersion = uid, version
	}
}

func (i *Intent) precondition(p metav1.Preconditions) {
	if p.UID != nil {
		i.UID = *p.UID
	}
	if p.ResourceVersion != nil {
		i.ResourceVersion = *p.ResourceVersion
	}
}

// versionIn returns the resourceVersion of the object in an answer, "" if there is none:
// a Status has none, and is what deletions of most resources are answered with.
func versionIn(contentType string, body []byte) string {
	if bytes.HasPrefix(body, protobufMagic) {
		var envelope runtime.Unknown
		if envelope.Unmarshal(body[len(protobufMagic):]) != nil || envelope.Kind == "Status" {
			return ""
		}
		var object metav1.PartialObjectMetadata
		if object.Unmarshal(envelope.Raw) != nil {
			return ""
		}
		return object.ResourceVersion
	}
	if mediaType, _, _ := mime.ParseMediaType(contentType); mediaType != runtime.ContentTypeJSON {
		return ""
	}
	var object struct {
		Kind     string `json:"kind"`
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if json.Unmarshal(body, &object) != nil || object.Kind == "Status" {
		return ""
	}
	return object.Metadata.ResourceVersion
}

// statusIn returns the Status that a body holds; the zero value if it holds none.
func statusIn(body []byte) metav1.Status {
	var status metav1.Status
	if bytes.HasPrefix(body, protobufMagic) {
		var envelope runtime.Unknown
		if envelope.Unmarshal(body[len(protobufMagic):]) != nil || status.Unmarshal(envelope.Raw) != nil {
			return metav1.Status{}
		}
		return status
	}
	if json.Unmarshal(body, &status) != nil {
		return metav1.Status{}
	}
	return status
}

// isTestFailed reports whether a Status with code 422 is the answer to a JSON patch of
// which a test failed: its details are there and empty. An object that doesn't validate
// is answered 422 too, with details that name it and the causes.
func isTestFailed(status metav1.Status) bool {
	return status.Details != nil && status.Details.Name == "" && len(status.Details.Causes) == 0
}
