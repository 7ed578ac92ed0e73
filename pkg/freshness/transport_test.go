package freshness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

var pods = schema.GroupResource{Resource: "pods"}

// wireTest is a client whose writes are recorded, in front of a server that answers as
// the test says.
type wireTest struct {
	*book
	pods      cache.Store
	transport *Transport[string]
	config    *rest.Config
	client    kubernetes.Interface
	// ctx carries the key "key".
	ctx context.Context

	mu       sync.Mutex
	answer   http.HandlerFunc
	requests int
}

// newWireTest returns one whose client accepts and sends contentType.
func newWireTest(t *testing.T, contentType string) *wireTest {
	t.Helper()
	w := &wireTest{book: newBook(), pods: cache.NewStore(cache.MetaNamespaceKeyFunc)}
	w.Track(pods, w.pods)
	w.pods.Bookmark("100")
	w.ctx = WithKey(t.Context(), "key")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		answer := w.answer
		w.requests++
		w.mu.Unlock()
		answer(rw, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	w.config = &rest.Config{
		Host:            server.URL + "/prefix",
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		ContentConfig:   rest.ContentConfig{ContentType: contentType, AcceptContentTypes: contentType},
	}
	w.transport = &Transport[string]{Ledger: w.Ledger, Metrics: w.metrics}
	w.build(t)
	return w
}

// build makes the client from the config.
func (w *wireTest) build(t *testing.T) {
	t.Helper()
	config := rest.CopyConfig(w.config)
	if err := w.transport.Wrap(config); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w.client = client
}

// answers makes the server give these answers, one after the other, the last for good.
func (w *wireTest) answers(answers ...http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	given := 0
	w.requests = 0
	w.answer = func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		answer := answers[min(given, len(answers)-1)]
		given++
		w.mu.Unlock()
		answer(rw, r)
	}
}

// with answers with an object, in the encoding that the client accepts.
func with(code int, object runtime.Object) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		mediaType, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
		info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
		if !ok {
			panic("unknown media type " + mediaType)
		}
		body, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, schema.GroupVersions{corev1.SchemeGroupVersion}), object)
		if err != nil {
			panic(err)
		}
		rw.Header().Set("Content-Type", mediaType)
		rw.WriteHeader(code)
		_, _ = rw.Write(body)
	}
}

// failing answers with a Status and, if after isn't empty, with Retry-After.
func failing(code int, reason metav1.StatusReason, after string) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if after != "" {
			rw.Header().Set("Retry-After", after)
		}
		with(code, &metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reason})(rw, r)
	}
}

// refusing answers 422 with such details.
func refusing(details *metav1.StatusDetails) http.HandlerFunc {
	return with(422, &metav1.Status{Status: metav1.StatusFailure, Code: 422, Reason: metav1.StatusReasonInvalid, Details: details})
}

// lost breaks the connection without an answer.
func lost(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func pod(name, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: version}}
}

var encodings = []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf}

func TestEveryKindOfWriteIsRecordedAtTheVersionInItsAnswer(t *testing.T) {
	writes := map[string]func(w *wireTest) error{
		"create": func(w *wireTest) error {
			_, err := w.client.CoreV1().Pods("ns").Create(w.ctx, pod("a", ""), metav1.CreateOptions{})
			return err
		},
		"update": func(w *wireTest) error {
			_, err := w.client.CoreV1().Pods("ns").Update(w.ctx, pod("a", "90"), metav1.UpdateOptions{})
			return err
		},
		"update of the status": func(w *wireTest) error {
			_, err := w.client.CoreV1().Pods("ns").UpdateStatus(w.ctx, pod("a", "90"), metav1.UpdateOptions{})
			return err
		},
		"patch": func(w *wireTest) error {
			_, err := w.client.CoreV1().Pods("ns").Patch(w.ctx, "a", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
			return err
		},
		"delete": func(w *wireTest) error {
			return w.client.CoreV1().Pods("ns").Delete(w.ctx, "a", metav1.DeleteOptions{})
		},
	}
	for _, encoding := range encodings {
		for name, write := range writes {
			t.Run(name+" as "+encoding, func(t *testing.T) {
				w := newWireTest(t, encoding)
				w.answers(with(200, pod("a", "105")))
				if err := write(w); err != nil {
					t.Fatal(err)
				}
				if got, want := w.want(t, "key", Behind), (Verdict{Behind, pods, "105"}); got != want {
					t.Errorf("got verdict %+v, want %+v", got, want)
				}
				w.pods.Bookmark("105")
				w.want(t, "key", Fresh)
			})
		}
	}
}

func TestTheClientReadsTheSameAnswerAsWithoutTheTransport(t *testing.T) {
	for _, encoding := range encodings {
		w := newWireTest(t, encoding)
		w.answers(with(201, pod("a", "105")))
		got, err := w.client.CoreV1().Pods("ns").Create(w.ctx, pod("a", ""), metav1.CreateOptions{})
		if err != nil || got.UID != "uid-a" || got.ResourceVersion != "105" {
			t.Errorf("%s: got %v, %v", encoding, got, err)
		}
		w.answers(failing(409, metav1.StatusReasonAlreadyExists, ""))
		if _, err := w.client.CoreV1().Pods("ns").Create(w.ctx, pod("b", ""), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			t.Errorf("%s: got %v, want AlreadyExists", encoding, err)
		}
	}
}

func TestTheDynamicClientIsRecordedToo(t *testing.T) {
	w := newWireTest(t, runtime.ContentTypeJSON)
	config := rest.CopyConfig(w.config)
	if err := w.transport.Wrap(config); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w.answers(with(200, pod("a", "105")))
	resource := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	if _, err := client.Resource(resource).Namespace("ns").Patch(w.ctx, "a", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.want(t, "key", Behind)
}

func TestADeletionAnsweredWithAStatusIsUnconfirmed(t *testing.T) {
	for _, encoding := range encodings {
		w := newWireTest(t, encoding)
		w.answers(with(200, &metav1.Status{
			ListMeta: metav1.ListMeta{ResourceVersion: "999"}, // not the object's
			Status:   metav1.StatusSuccess,
			Details:  &metav1.StatusDetails{Name: "a", UID: "u1"},
		}))
		if err := w.client.CoreV1().ConfigMaps("ns").Delete(w.ctx, "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.want(t, "key", Unconfirmed)
	}
}

func TestTheAnswerDecidesWhatBecomesOfAWrite(t *testing.T) {
	for _, test := range []struct {
		name    string
		answers []http.HandlerFunc
		want    Cause
		tries   int
	}{
		{"it is refused as invalid", []http.HandlerFunc{failing(422, metav1.StatusReasonInvalid, "")}, Fresh, 1},
		{"it is forbidden, by a quota say", []http.HandlerFunc{failing(403, metav1.StatusReasonForbidden, "")}, Fresh, 1},
		{"a quota is in conflict", []http.HandlerFunc{failing(409, metav1.StatusReasonConflict, "")}, Fresh, 1},
		{"its name is taken", []http.HandlerFunc{failing(409, metav1.StatusReasonAlreadyExists, "")}, Outdated, 1},
		{"it is throttled", []http.HandlerFunc{failing(429, metav1.StatusReasonTooManyRequests, "")}, Fresh, 1},
		{"the server fails", []http.HandlerFunc{failing(500, metav1.StatusReasonInternalError, "")}, InDoubt, 1},
		{"the server is unavailable", []http.HandlerFunc{failing(503, metav1.StatusReasonServiceUnavailable, "")}, InDoubt, 1},
		{"the server's time is up", []http.HandlerFunc{failing(504, metav1.StatusReasonTimeout, "")}, InDoubt, 1},
		{"the request's time is up", []http.HandlerFunc{failing(408, metav1.StatusReasonTimeout, "")}, InDoubt, 1},
		{"the connection breaks", []http.HandlerFunc{lost}, InDoubt, 1},
		{"it is throttled, then accepted", []http.HandlerFunc{failing(429, metav1.StatusReasonTooManyRequests, "0"), with(201, pod("a", "105"))}, Behind, 2},
		{"it is throttled, then its name is taken", []http.HandlerFunc{failing(429, metav1.StatusReasonTooManyRequests, "0"), failing(409, metav1.StatusReasonAlreadyExists, "")}, Outdated, 2},
		{"the server fails, then accepts", []http.HandlerFunc{failing(500, metav1.StatusReasonInternalError, "0"), with(201, pod("a", "105"))}, Behind, 2},
		{"the server fails, then its name is taken", []http.HandlerFunc{failing(500, metav1.StatusReasonInternalError, "0"), failing(409, metav1.StatusReasonAlreadyExists, "")}, InDoubt, 2},
		{"the server fails, then throttles", []http.HandlerFunc{failing(500, metav1.StatusReasonInternalError, "0"), failing(429, metav1.StatusReasonTooManyRequests, "")}, InDoubt, 2},
	} {
		for _, encoding := range encodings {
			t.Run(test.name+" as "+encoding, func(t *testing.T) {
				w := newWireTest(t, encoding)
				w.answers(test.answers...)
				_, _ = w.client.CoreV1().Pods("ns").Create(w.ctx, pod("a", ""), metav1.CreateOptions{})
				w.want(t, "key", test.want)
				if w.requests != test.tries {
					t.Errorf("the server saw %d requests, want %d", w.requests, test.tries)
				}
			})
		}
	}
}

func TestAFailedTestOfAPatchMakesTheKeyWaitUntilTheCacheHasMoved(t *testing.T) {
	w := newWireTest(t, runtime.ContentTypeJSON)
	if err := w.pods.Update(pod("a", "90")); err != nil {
		t.Fatal(err)
	}
	w.pods.Bookmark("100")
	w.answers(refusing(&metav1.StatusDetails{}))
	for patch, want := range map[string]Cause{
		`[{"op":"add","path":"/metadata/labels","value":{}}]`:        Fresh, // it was no test that failed
		`[{"op":"test","path":"/metadata/uid","value":"uid-a"}]`:     Outdated,
		`[{"op":"test","path":"/metadata/uid","value":"uid-other"}]`: Fresh, // older than the cache
	} {
		if _, err := w.client.CoreV1().Pods("ns").Patch(w.ctx, "a", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err == nil {
			t.Fatal("the patch was not refused")
		}
		w.want(t, "key", want)
		if want == Outdated {
			if err := w.pods.Update(pod("a", "106")); err != nil {
				t.Fatal(err)
			}
			w.want(t, "key", Fresh)
		}
	}
}

// A label that isn't valid, say: no newer cache makes it so, and there is nothing to
// wait for.
func TestAPatchThatDoesNotValidateMakesNobodyWait(t *testing.T) {
	for _, encoding := range encodings {
		w := newWireTest(t, encoding)
		if err := w.pods.Update(pod("a", "90")); err != nil {
			t.Fatal(err)
		}
		w.pods.Bookmark("100")
		w.answers(refusing(&metav1.StatusDetails{
			Name: "a", Kind: "Pod",
			Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: "metadata.labels"}},
		}))
		patch := []byte(`[{"op":"test","path":"/metadata/uid","value":"uid-a"}]`)
		if _, err := w.client.CoreV1().Pods("ns").Patch(w.ctx, "a", types.JSONPatchType, patch, metav1.PatchOptions{}); err == nil {
			t.Fatal("the patch was not refused")
		}
		w.want(t, "key", Fresh)
	}
}

func TestAnAnswerThatBreaksOffIsASuccessAtAnUnknownVersion(t *testing.T) {
	w := newWireTest(t, runtime.ContentTypeJSON)
	w.answers(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", runtime.ContentTypeJSON)
		rw.WriteHeader(201)
		_, _ = rw.Write([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"105"}`))
		rw.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	if _, err := w.client.CoreV1().Pods("ns").Create(w.ctx, pod("a", ""), metav1.CreateOptions{}); err == nil {
		t.Error("the client got no error for an answer that broke off")
	}
	w.want(t, "key", Unconfirmed)
}

func TestAWriteThatNobodyListensToWasNotSent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close() // so that nobody does
	for _, secure := range []string{"http", "https"} {
		w := newWireTest(t, runtime.ContentTypeJSON)
		w.config.Host = secure + "://" + listener.Addr().String()
		w.build(t)
		if _, err := w.client.CoreV1().Pods("ns").Create(w.ctx, pod("a", ""), metav1.CreateOptions{}); err == nil {
			t.Error("got no error from a server that isn't there")
		}
		w.want(t, "key", Fresh)
	}
}

func TestAWriteWhoseTimeIsUpIsInDoubt(t *testing.T) {
	w := newWireTest(t, runtime.ContentTypeJSON)
	w.config.Timeout = time.Second
	w.build(t)
	w.answers(with(200, pod("a", "105")))
	if _, err := w.client.CoreV1().Pods("ns").Get(w.ctx, "a", metav1.GetOptions{}); err != nil {
		t.Fatal(err) // and from now on there is a connection
	}
	var timeout string
	release := make(chan struct{})
	defer close(release)
	w.answers(func(_ http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		timeout = r.URL.Query().Get("timeout")
		w.mu.Unlock()
		<-release
	})
	if _, err := w.client.CoreV1().Pods("ns").Create(w.ctx, pod("a", ""), metav1.CreateOptions{}); err == nil {
		t.Error("got no error although the time was up")
	}
	w.want(t, "key", InDoubt)
	w.mu.Lock()
	defer w.mu.Unlock()
	if timeout != "1s" {
		t.Errorf("the server was told a timeout of %q, want 1s", timeout)
	}
}

func TestASecondWriteOnAnObjectInDoubtReachesTheCallerAsAnError(t *testing.T) {
	w := newWireTest(t, runtime.ContentTypeJSON)
	w.answers(lost)
	_, _ = w.client.CoreV1().Pods("ns").Create(w.ctx, pod("a", ""), metav1.CreateOptions{})
	w.answers(with(200, pod("a", "105")))
	err := w.client.CoreV1().Pods("ns").Delete(w.ctx, "a", metav1.DeleteOptions{})
	var inDoubt *InDoubtError
	if !errors.As(err, &inDoubt) {
		t.Errorf("got %v, want an InDoubtError", err)
	}
	if w.requests != 0 {
		t.Errorf("the server saw %d requests, want none", w.requests)
	}
	// The very same write may be sent again.
	w.answers(with(201, pod("a", "106")))
	if _, err := w.client.CoreV1().Pods("ns").Create(w.ctx, pod("a", ""), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	w.want(t, "key", Behind)
}

func TestReadsDryRunsAndOtherResourcesAreNotRecorded(t *testing.T) {
	w := newWireTest(t, runtime.ContentTypeJSON)
	w.answers(with(200, pod("a", "105")))
	if _, err := w.client.CoreV1().Pods("ns").Get(w.ctx, "a", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.CoreV1().Pods("ns").Create(w.ctx, pod("a", ""), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	w.answers(with(201, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "e", ResourceVersion: "106"}}))
	if _, err := w.client.CoreV1().Events("ns").Create(w.ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "e"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.want(t, "key", Fresh)
	if got := w.Len(); got != 0 {
		t.Errorf("%d keys are kept, want none", got)
	}
}

func TestAWriteWithoutAKeyIsCountedButNotRecorded(t *testing.T) {
	w := newWireTest(t, runtime.ContentTypeJSON)
	w.answers(with(201, pod("a", "105")))
	if _, err := w.client.CoreV1().Pods("ns").Create(t.Context(), pod("a", ""), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.want(t, "key", Fresh)
	if got := counterValue(t, w.metrics.writes.WithLabelValues("pods", "create", "without_key")); got != 1 {
		t.Errorf("counted %v, want 1", got)
	}
}

func TestWithoutAPermitNothingIsWritten(t *testing.T) {
	deposed := errors.New("the term of this leader has ended")
	w := newWireTest(t, runtime.ContentTypeJSON)
	w.transport.Permit = func() error { return deposed }
	w.answers(with(200, pod("a", "105")))
	for _, ctx := range []context.Context{w.ctx, t.Context()} {
		if _, err := w.client.CoreV1().Pods("ns").Create(ctx, pod("a", ""), metav1.CreateOptions{}); !errors.Is(err, deposed) {
			t.Errorf("got %v, want the permit's error", err)
		}
	}
	if _, err := w.client.CoreV1().Pods("ns").Get(w.ctx, "a", metav1.GetOptions{}); err != nil {
		t.Errorf("a read needs no permit, got %v", err)
	}
	if w.requests != 1 {
		t.Errorf("the server saw %d requests, want 1, the read", w.requests)
	}
	w.want(t, "key", Fresh)
}

// A process that is frozen while a request waits for its turn may wake when its term is
// over.
func TestAPermitThatEndsBeforeTheRequestIsOnItsWayStopsIt(t *testing.T) {
	deposed := errors.New("the term of this leader has ended")
	for name, withKey := range map[string]bool{"with a key": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			w := newWireTest(t, runtime.ContentTypeJSON)
			var whole atomic.Int64
			w.answers(func(rw http.ResponseWriter, r *http.Request) {
				if _, err := io.ReadAll(r.Body); err != nil {
					return
				}
				whole.Add(1)
				with(201, pod("a", "105"))(rw, r)
			})
			ctx := t.Context()
			if withKey {
				ctx = w.ctx
			}
			stopped := 0
			for last := int64(1); ; last++ { // how often the permit is given
				var asked atomic.Int64
				w.transport.Permit = func() error {
					if asked.Add(1) > last {
						return deposed
					}
					return nil
				}
				// Each has a name of its own: of what was cut off it isn't known what became.
				_, err := w.client.CoreV1().Pods("ns").Create(ctx, pod(fmt.Sprint("a", last), ""), metav1.CreateOptions{})
				if err == nil {
					break
				}
				if stopped++; !errors.Is(err, deposed) || whole.Load() > 0 {
					t.Fatalf("with %d permits: got %v, want the permit's error, and the server has read %d requests, want none", last, err, whole.Load())
				}
			}
			if stopped == 0 {
				t.Error("the permit was asked for once only, long before the request is on its way")
			}
		})
	}
}

func TestShownByReachesTheLedger(t *testing.T) {
	w := newWireTest(t, runtime.ContentTypeJSON)
	w.answers(lost)
	ctx := ShownBy(w.ctx, func(o metav1.Object) bool { return o.GetLabels()["mark"] == "1" })
	_, _ = w.client.CoreV1().Pods("ns").Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"mark":"1"}}}`), metav1.PatchOptions{})
	w.want(t, "key", InDoubt)
	marked := pod("a", "105")
	marked.Labels = map[string]string{"mark": "1"}
	if err := w.pods.Update(marked); err != nil {
		t.Fatal(err)
	}
	w.want(t, "key", Fresh)
}

func TestParallelWritesUnderOneKeyAreAllWaitedFor(t *testing.T) {
	w := newWireTest(t, runtime.ContentTypeProtobuf)
	var version int
	w.answers(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		version++
		answer := with(201, pod("a", fmt.Sprint(200+version)))
		w.mu.Unlock()
		answer(rw, r)
	})
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if _, err := w.client.CoreV1().Pods("ns").Create(w.ctx, pod(fmt.Sprint("p", i), ""), metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got, want := w.want(t, "key", Behind), (Verdict{Behind, pods, "220"}); got != want {
		t.Errorf("got verdict %+v, want %+v", got, want)
	}
}

func TestTheNameAndThePreconditionsAreReadFromTheRequest(t *testing.T) {
	preconditions := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(types.UID("u1")), ResourceVersion: ptr.To("90")}}
	for _, test := range []struct {
		name  string
		write func(w *wireTest)
		want  Intent
		// only: it is read from this encoding alone.
		only string
	}{{
		name: "create",
		write: func(w *wireTest) {
			_, _ = w.client.CoreV1().Pods("ns").Create(w.ctx, pod("a", ""), metav1.CreateOptions{})
		},
		want: Intent{Verb: "create", Resource: pods, Namespace: "ns", Name: "a"},
	}, {
		name: "update",
		write: func(w *wireTest) {
			_, _ = w.client.CoreV1().Pods("ns").Update(w.ctx, pod("a", "90"), metav1.UpdateOptions{})
		},
		want: Intent{Verb: "update", Resource: pods, Namespace: "ns", Name: "a", UID: "uid-a", ResourceVersion: "90"},
	}, {
		name: "update of the status",
		write: func(w *wireTest) {
			_, _ = w.client.CoreV1().Pods("ns").UpdateStatus(w.ctx, pod("a", "90"), metav1.UpdateOptions{})
		},
		want: Intent{Verb: "update", Resource: pods, Namespace: "ns", Name: "a", UID: "uid-a", ResourceVersion: "90"},
	}, {
		name:  "delete",
		write: func(w *wireTest) { _ = w.client.CoreV1().Pods("ns").Delete(w.ctx, "a", preconditions) },
		want:  Intent{Verb: "delete", Resource: pods, Namespace: "ns", Name: "a", UID: "u1", ResourceVersion: "90"},
	}, {
		name: "delete of a collection",
		write: func(w *wireTest) {
			_ = w.client.CoreV1().Pods("ns").DeleteCollection(w.ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		},
		want: Intent{Verb: "deletecollection", Resource: pods, Namespace: "ns"},
	}, {
		name: "merge patch",
		write: func(w *wireTest) {
			_, _ = w.client.CoreV1().Pods("ns").Patch(w.ctx, "a", types.MergePatchType, []byte(`{"metadata":{"resourceVersion":"90","uid":"u1"}}`), metav1.PatchOptions{}, "status")
		},
		want: Intent{Verb: "patch", Resource: pods, Namespace: "ns", Name: "a", UID: "u1", ResourceVersion: "90"},
	}, {
		name: "JSON patch",
		write: func(w *wireTest) {
			_, _ = w.client.CoreV1().Pods("ns").Patch(w.ctx, "a", types.JSONPatchType, []byte(`[
				{"op":"test","path":"/metadata/uid","value":"u1"},
				{"op":"test","path":"/metadata/deletionTimestamp","value":null},
				{"op":"test","path":"/metadata/resourceVersion","value":"90"},
				{"op":"replace","path":"/metadata/resourceVersion","value":"1"},
				{"op":"replace","path":"/metadata/ownerReferences","value":[]}]`), metav1.PatchOptions{})
		},
		want: Intent{Verb: "patch", Resource: pods, Namespace: "ns", Name: "a", UID: "u1", ResourceVersion: "90", Tests: true},
	}, {
		name: "eviction",
		write: func(w *wireTest) {
			_ = w.client.CoreV1().Pods("ns").EvictV1(w.ctx, &policyv1.Eviction{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, DeleteOptions: &preconditions,
			})
		},
		want: Intent{Verb: "delete", Resource: pods, Namespace: "ns", Name: "a", UID: "u1", ResourceVersion: "90"},
		only: runtime.ContentTypeJSON,
	}} {
		for _, encoding := range encodings {
			if test.only != "" && test.only != encoding {
				continue
			}
			t.Run(test.name+" as "+encoding, func(t *testing.T) {
				w := newWireTest(t, encoding)
				w.answers(lost)
				test.write(w)
				w.mu.Lock()
				defer w.mu.Unlock()
				got := w.accounts["key"].open[0].intent
				if got.Fingerprint == 0 {
					t.Error("the request has no fingerprint")
				}
				got.Fingerprint, got.Shows = 0, nil
				if fmt.Sprint(got) != fmt.Sprint(test.want) {
					t.Errorf("got  %+v\nwant %+v", got, test.want)
				}
			})
		}
	}
}

func TestPathsOfTheAPIAreToldApart(t *testing.T) {
	for _, test := range []struct {
		method, path, base string
		want               string
	}{
		{"POST", "/api/v1/namespaces/ns/pods", "/", "create pods ns/"},
		{"POST", "/k8s/c1/api/v1/namespaces/ns/pods", "/k8s/c1/", "create pods ns/"},
		{"PUT", "/apis/apps/v1/namespaces/ns/deployments/d/scale", "/", "update deployments.apps ns/d"},
		{"PATCH", "/apis/warmpool.dev/v1alpha1/namespaces/ns/podclaims/c/status", "/", "patch podclaims.warmpool.dev ns/c"},
		{"DELETE", "/api/v1/nodes/n", "/", "delete nodes /n"},
		{"DELETE", "/api/v1/namespaces/ns", "/", "delete namespaces /ns"},
		{"PUT", "/api/v1/namespaces/ns/finalize", "/", "update namespaces /ns"},
		{"PUT", "/api/v1/namespaces/ns/status", "/", "update namespaces /ns"},
		{"POST", "/api/v1/namespaces", "/", "create namespaces /"},
		{"POST", "/api/v1/namespaces/ns/pods/p/eviction", "/", "delete pods ns/p"},
		{"POST", "/api/v1/namespaces/ns/pods/p/binding", "/", "update pods ns/p"},
		{"DELETE", "/api/v1/namespaces/ns/pods", "/", "deletecollection pods ns/"},
		{"POST", "/api/v1/namespaces/ns/pods?dryRun=All", "/", ""},
		{"POST", "/healthz", "/", ""},
		{"POST", "/api/v1", "/", ""},
		{"CONNECT", "/api/v1/namespaces/ns/pods/p/exec", "/", ""},
	} {
		request, err := http.NewRequest(test.method, "https://host"+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		if intent, ok := parseTarget(request, test.base); ok {
			got = fmt.Sprintf("%s %s %s/%s", intent.Verb, intent.Resource, intent.Namespace, intent.Name)
		}
		if got != test.want {
			t.Errorf("%s %s: got %q, want %q", test.method, test.path, got, test.want)
		}
	}
}

func TestABodyThatCannotBeReadSaysNothing(t *testing.T) {
	for _, body := range []string{"", "{", "k8s\x00\xff", "\xd9\xd9\xf7 CBOR"} {
		for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf, runtime.ContentTypeCBOR, string(types.JSONPatchType), ""} {
			intent := Intent{Verb: "update"}
			describeBody(&intent, contentType, []byte(body))
			if intent.ResourceVersion != "" || intent.UID != "" {
				t.Errorf("got %+v from %q as %q, want nothing", intent, body, contentType)
			}
			if got := versionIn(contentType, []byte(body)); got != "" {
				t.Errorf("got version %q from %q as %q, want none", got, body, contentType)
			}
			if got := statusIn([]byte(body)).Reason; got != "" {
				t.Errorf("got reason %q from %q, want none", got, body)
			}
		}
	}
}
