package faultproxy

// Time travel: the world as it was, served again.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/dynamic"
)

// Snapshot is what the API server held at one resourceVersion. It doesn't change.
type Snapshot struct {
	// ResourceVersion is the moment.
	ResourceVersion string
	lists           map[schema.GroupResource]*unstructured.UnstructuredList
}

// Record takes a snapshot of resources, all at the same resourceVersion, in a namespace
// or, if that is empty, in all. It asks the API server directly.
func (p *Proxy) Record(ctx context.Context, namespace string, resources ...schema.GroupVersionResource) (*Snapshot, error) {
	client, err := dynamic.NewForConfig(p.options.Target)
	if err != nil {
		return nil, fmt.Errorf("record a snapshot: %w", err)
	}
	s := &Snapshot{lists: map[schema.GroupResource]*unstructured.UnstructuredList{}}
	for _, resource := range resources {
		options := metav1.ListOptions{}
		if s.ResourceVersion != "" {
			options = metav1.ListOptions{ResourceVersion: s.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
		}
		list, err := client.Resource(resource).Namespace(namespace).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("record a snapshot of %s: %w", resource.GroupResource(), err)
		}
		s.ResourceVersion = list.GetResourceVersion()
		s.lists[resource.GroupResource()] = list
	}
	return s, nil
}

// OldWorld serves lists, watches and gets of the snapshot's resources from the
// snapshot, whatever freshness they ask for: an etcd that was restored from a backup,
// or a broken cache. Watches stay silent after what is in the snapshot. Lists of one
// name and writes pass. When the fault is released, requests reach the API server
// again, and watches that are open catch up.
func OldWorld(s *Snapshot) Action { return timeTravel("OldWorld", s, false) }

// LaggingServer does what an API server does that is cut off from etcd: it serves from
// the snapshot what may be old (resourceVersion=0, or one that the snapshot has
// reached), says 504 to who asks for the newest state, and keeps silent in watches
// until the fault is released. Writes pass, as if another API server took them.
func LaggingServer(s *Snapshot) Action { return timeTravel("LaggingServer", s, true) }

func timeTravel(name string, s *Snapshot, honest bool) Action {
	return Action{name: name, request: func(f *Fault, x *Exchange, forward func() *Answer) *Answer {
		list, ok := s.lists[x.GroupResource()]
		if !ok || x.IsWrite() || x.Subresource != "" {
			return forward()
		}
		t := &traveller{snapshot: s, list: list, honest: honest, x: x, f: f, forward: forward}
		switch x.Verb {
		case "get":
			return t.get()
		case "list":
			return t.serveList()
		default:
			return t.watch()
		}
	}}
}

// traveller answers one request from a snapshot.
type traveller struct {
	snapshot *Snapshot
	list     *unstructured.UnstructuredList
	honest   bool
	x        *Exchange
	f        *Fault
	forward  func() *Answer
}

// refusal is what an honest server that is behind says to a request for the state at a
// resourceVersion. The zero Reply: it may serve its own.
func (t *traveller) refusal() (Reply, bool) {
	asked := t.x.Query.Get("resourceVersion")
	switch {
	case !t.honest || asked == "0":
		return Reply{}, false
	case asked == "":
		return Timeout(), true
	}
	if order, err := resourceversion.CompareResourceVersion(asked, t.snapshot.ResourceVersion); err != nil || order > 0 {
		return TooLargeResourceVersion(), true
	}
	return Reply{}, false
}

func (t *traveller) get() *Answer {
	if reply, refused := t.refusal(); refused {
		return reply.answer(&t.x.Request)
	}
	for i := range t.list.Items {
		item := &t.list.Items[i]
		if item.GetNamespace() == t.x.Namespace && item.GetName() == t.x.Name {
			return jsonAnswer(t.as(item))
		}
	}
	return NotFound().answer(&t.x.Request)
}

func (t *traveller) serveList() *Answer {
	if reply, refused := t.refusal(); refused {
		return reply.answer(&t.x.Request)
	}
	if t.x.Name != "" {
		return t.forward()
	}
	items, err := t.items()
	if err != nil {
		return statusAnswer(apierrors.NewInternalError(err).Status())
	}
	kind, apiVersion := t.list.GetKind(), t.list.GetAPIVersion()
	if t.metadataOnly() {
		kind, apiVersion = "PartialObjectMetadataList", metav1.SchemeGroupVersion.String()
	}
	return jsonAnswer(map[string]any{
		"kind":       kind,
		"apiVersion": apiVersion,
		"metadata":   map[string]any{"resourceVersion": t.snapshot.ResourceVersion},
		"items":      items,
	})
}

// items are the snapshot's objects that the request selects.
func (t *traveller) items() ([]map[string]any, error) {
	byLabel, err := labels.Parse(t.x.Query.Get("labelSelector"))
	if err != nil {
		return nil, err
	}
	byField, err := fields.ParseSelector(t.x.Query.Get("fieldSelector"))
	if err != nil {
		return nil, err
	}
	for _, r := range byField.Requirements() {
		if !strings.HasPrefix(r.Field, "metadata.name") { // and metadata.namespace
			return nil, fmt.Errorf("a snapshot can't select by the field %s", r.Field)
		}
	}
	chosen := []map[string]any{}
	for i := range t.list.Items {
		item := &t.list.Items[i]
		if t.x.Namespace != "" && item.GetNamespace() != t.x.Namespace ||
			!byLabel.Matches(labels.Set(item.GetLabels())) ||
			!byField.Matches(fields.Set{"metadata.name": item.GetName(), "metadata.namespace": item.GetNamespace()}) {
			continue
		}
		chosen = append(chosen, t.as(item))
	}
	return chosen, nil
}

// metadataOnly tells whether the client wants no more than metadata.
func (t *traveller) metadataOnly() bool {
	return strings.Contains(t.x.header.Get("Accept"), "as=PartialObjectMetadata")
}

// as is an object in the form that the client asks for.
func (t *traveller) as(item *unstructured.Unstructured) map[string]any {
	if !t.metadataOnly() {
		return item.Object
	}
	return map[string]any{
		"kind":       "PartialObjectMetadata",
		"apiVersion": metav1.SchemeGroupVersion.String(),
		"metadata":   item.Object["metadata"],
	}
}

// watch answers a watch: what the snapshot holds, if the client asks for that, then
// silence until the fault is released, then what the API server has to tell.
func (t *traveller) watch() *Answer {
	wantsItems := t.x.Query.Get("sendInitialEvents") == "true"
	asked := t.x.Query.Get("resourceVersion")
	from := t.snapshot.ResourceVersion
	var refused *Reply
	if wantsItems || asked == "" || asked == "0" {
		wantsItems = true
		if reply, no := t.refusal(); no {
			refused = &reply
		}
	} else if order, err := resourceversion.CompareResourceVersion(asked, from); err != nil || order < 0 {
		return Expired().answer(&t.x.Request) // what happened before isn't in the snapshot
	} else {
		// A version of the future is no error: nothing has happened since.
		from = asked
	}
	s := &source{framing: jsonFraming{}, stop: func() {}}
	s.run = func(ctx context.Context, emit func(*Event) bool) error {
		if refused != nil {
			// Once a watch is open, errors come as events.
			t.emit(emit, "ERROR", refused.status(&t.x.Request))
			return nil
		}
		if wantsItems && !t.emitItems(emit) {
			return nil
		}
		select {
		case <-t.f.ticket():
			return t.catchUp(ctx, from, emit)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return &Answer{Code: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, source: s}
}

// emitItems sends what the snapshot holds.
func (t *traveller) emitItems(emit func(*Event) bool) bool {
	items, err := t.items()
	if err != nil {
		t.emit(emit, "ERROR", apierrors.NewInternalError(err).Status())
		return false
	}
	for _, item := range items {
		if !t.emit(emit, "ADDED", item) {
			return false
		}
	}
	if t.x.Query.Get("sendInitialEvents") != "true" {
		return true
	}
	kind := strings.TrimSuffix(t.list.GetKind(), "List")
	return t.emit(emit, "BOOKMARK", t.as(&unstructured.Unstructured{Object: map[string]any{
		"kind":       kind,
		"apiVersion": t.list.GetAPIVersion(),
		"metadata": map[string]any{
			"resourceVersion": t.snapshot.ResourceVersion,
			"annotations":     map[string]any{initialEventsEnd: "true"},
		},
	}}))
}

func (t *traveller) emit(emit func(*Event) bool, kind string, object any) bool {
	frame, err := jsonFrame(kind, object)
	if err != nil {
		panic(err) // of what was read from JSON
	}
	event, err := jsonFraming{}.decode(frame)
	if err != nil {
		panic(err)
	}
	return emit(event)
}

// catchUp passes on what the API server has to tell since a resourceVersion.
func (t *traveller) catchUp(ctx context.Context, from string, emit func(*Event) bool) error {
	query := url.Values{}
	for name, values := range t.x.Query {
		query[name] = values
	}
	for _, name := range []string{"sendInitialEvents", "resourceVersionMatch"} {
		query.Del(name)
	}
	query.Set("resourceVersion", from)
	header := t.x.header.Clone()
	header.Set("Accept", "application/json") // as the stream has begun
	if t.metadataOnly() {
		header.Set("Accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
	}
	x := &Exchange{Request: t.x.Request, method: t.x.method, rawQuery: query.Encode(), header: header, ctx: ctx}
	t.f.p.mu.Lock()
	target := t.f.p.upstream
	t.f.p.mu.Unlock()
	answer := target.send(ctx, x)
	switch {
	case answer == nil:
		return errors.New("the API server doesn't answer")
	case answer.source != nil:
		return answer.source.run(ctx, emit)
	default:
		t.emit(emit, "ERROR", readStatus(answer.Body))
		return nil
	}
}

func jsonAnswer(object any) *Answer {
	body, err := json.Marshal(object)
	if err != nil {
		panic(err) // of what was read from JSON
	}
	return &Answer{Code: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}
