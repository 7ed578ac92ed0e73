package freshness

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// serve puts a source behind HTTP, with as much of the API as clients of ConfigMaps need,
// in JSON. Faults, if it isn't nil, may answer a write instead.
func serve(t *testing.T, src *source, faults func(rw http.ResponseWriter, r *http.Request) bool) *rest.Config {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		switch {
		case r.Method == http.MethodGet && query.Get("watch") != "":
			serveWatch(rw, r, src)
		case r.Method == http.MethodGet:
			serveList(rw, r, src)
		case faults != nil && faults(rw, r):
		case r.Method == http.MethodPost:
			var object corev1.ConfigMap
			if err := json.NewDecoder(r.Body).Decode(&object); err != nil {
				panic(err)
			}
			respond(rw, http.StatusCreated, src.put(object.Name))
		case r.Method == http.MethodDelete:
			src.remove(r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
			respond(rw, http.StatusOK, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
		default:
			rw.WriteHeader(http.StatusMethodNotAllowed)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &rest.Config{
		Host:            server.URL,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		ContentConfig:   rest.ContentConfig{ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON},
		QPS:             -1,
	}
}

func respond(rw http.ResponseWriter, code int, object any) {
	if configMap, ok := object.(*corev1.ConfigMap); ok {
		configMap.TypeMeta = metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}
	}
	rw.Header().Set("Content-Type", runtime.ContentTypeJSON)
	rw.WriteHeader(code)
	if err := json.NewEncoder(rw).Encode(object); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func serveList(rw http.ResponseWriter, r *http.Request, src *source) {
	found, err := src.ListWithContext(r.Context(), metav1.ListOptions{ResourceVersion: r.URL.Query().Get("resourceVersion")})
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	list := found.(*corev1.ConfigMapList)
	list.TypeMeta = metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}
	if r.URL.Query().Get("fieldSelector") != "" {
		list.Items = nil // nothing has the name that is asked for
	}
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		list.TypeMeta = metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}
	}
	respond(rw, http.StatusOK, list)
}

func serveWatch(rw http.ResponseWriter, r *http.Request, src *source) {
	query := r.URL.Query()
	timeout, err := strconv.ParseInt(query.Get("timeoutSeconds"), 10, 64)
	if err != nil {
		panic(err)
	}
	w, err := src.WatchWithContext(r.Context(), metav1.ListOptions{
		ResourceVersion:   query.Get("resourceVersion"),
		SendInitialEvents: ptr.To(query.Get("sendInitialEvents") == "true"),
		TimeoutSeconds:    &timeout,
	})
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer w.Stop()
	rw.Header().Set("Content-Type", runtime.ContentTypeJSON)
	rw.WriteHeader(http.StatusOK)
	rw.(http.Flusher).Flush()
	encoder := json.NewEncoder(rw)
	end := time.After(time.Duration(timeout) * time.Second)
	for {
		select {
		case event := <-w.ResultChan():
			if !send(encoder, event) {
				return
			}
			rw.(http.Flusher).Flush()
		case <-end:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func send(encoder *json.Encoder, event watch.Event) bool {
	if configMap, ok := event.Object.(*corev1.ConfigMap); ok {
		configMap = configMap.DeepCopy()
		configMap.TypeMeta = metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}
		event.Object = configMap
	}
	return encoder.Encode(map[string]any{"type": event.Type, "object": event.Object}) == nil
}
