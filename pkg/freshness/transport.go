package freshness

// Transport: fills the ledger, from the requests themselves.
//
// Closes: the forgotten bookkeeping call. A ledger that each call site must feed misses
// the write that somebody adds next year, the retry that a client makes on its own, and
// the error path that returns early.
//
// How: it wraps the round tripper of a rest.Config. A mutating request whose context
// carries a key (WithKey) is entered before it is sent and settled by its answer; so it
// works under any client, typed, dynamic or generated. client-go repeats writes silently
// when it is answered 429 or 5xx with Retry-After, up to ten times, and a 409 at the end
// of such a row may be due to one's own success: each attempt passes here.
//
// Costs: for each write, its answer is read into memory, as client-go does anyway, and
// its metadata are decoded.

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// keyOf is the key of a context under which a key of type K is found.
type keyOf[K comparable] struct{}

// effectKey is the key of a context under which ShownBy is found.
type effectKey struct{}

// WithKey returns a context whose writes are recorded under key. The middleware of a
// Backlog does this for each reconcile.
func WithKey[K comparable](ctx context.Context, key K) context.Context {
	return context.WithValue(ctx, keyOf[K]{}, key)
}

// KeyFrom returns the key that a context's writes are recorded under.
func KeyFrom[K comparable](ctx context.Context) (K, bool) {
	key, ok := ctx.Value(keyOf[K]{}).(K)
	return key, ok
}

// ShownBy returns a context for one write, with a function that tells whether an object
// shows its effect. If the answer to the write is lost, the cache settles within
// milliseconds whether it happened. Without it this takes a few seconds and a quorum
// read, for a patch that carries no resourceVersion; creations, deletions and updates
// need no such function. shows is called with objects of the cache, possibly under locks:
// it must change nothing, and return at once.
func ShownBy(ctx context.Context, shows func(metav1.Object) bool) context.Context {
	return context.WithValue(ctx, effectKey{}, shows)
}

// Transport records the writes of clients in a Ledger. It is safe for concurrent use.
// The zero value of the other fields is useful.
type Transport[K comparable] struct {
	Ledger *Ledger[K]
	// Permit, if it isn't nil, is asked before each mutating request, with or
	// without a key. If it returns an error the request isn't sent. It is where a
	// leader whose term has ended is stopped.
	Permit func() error
	// Metrics counts. Nil: nothing is counted.
	Metrics *Metrics

	seed atomic.Pointer[maphash.Seed]
}

// Wrap makes all clients that are built from config afterwards pass their requests
// through t.
func (t *Transport[K]) Wrap(config *rest.Config) error {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return fmt.Errorf("find the path of the API server at %q: %w", config.Host, err)
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &roundTripper[K]{transport: t, base: base.Path, next: next}
	})
	return nil
}

type roundTripper[K comparable] struct {
	transport *Transport[K]
	// base is the path under which the API server's own paths begin.
	base string
	next http.RoundTripper
}

var _ utilnet.RoundTripperWrapper = &roundTripper[string]{}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (r *roundTripper[K]) WrappedRoundTripper() http.RoundTripper { return r.next }

// RoundTrip implements http.RoundTripper.
func (r *roundTripper[K]) RoundTrip(request *http.Request) (*http.Response, error) {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return r.next.RoundTrip(request)
	}
	t := r.transport
	if err := t.permit(request); err != nil {
		closeBody(request)
		return nil, err
	}
	request = t.permitted(request)
	key, keyed := KeyFrom[K](request.Context())
	intent, ok := parseTarget(request, r.base)
	if !ok || t.Ledger.store(intent.Resource) == nil {
		return r.next.RoundTrip(request)
	}
	if !keyed {
		// Not an error, since the caller may know what it does; but a context
		// that got lost shows here.
		t.Metrics.wrote(intent.Resource, intent.Verb, "without_key")
		return r.next.RoundTrip(request)
	}
	if err := t.describe(&intent, request); err != nil {
		closeBody(request)
		return nil, err
	}
	entry, err := t.Ledger.Begin(key, intent)
	if err != nil {
		closeBody(request)
		return nil, err
	}
	return r.send(request, entry)
}

// permit asks for the permit to send a request.
func (t *Transport[K]) permit(request *http.Request) error {
	if t.Permit == nil {
		return nil
	}
	if err := t.Permit(); err != nil {
		t.Metrics.fired(GuardTransport, "write_without_permit_stopped")
		return fmt.Errorf("%s %s not sent: %w", request.Method, request.URL.Path, err)
	}
	return nil
}

// permitted returns a request that asks for the permit once more when its body is sent. A
// process that is frozen, or gets no processor, between the first question and the sending
// would else send when its term is over. Nothing can close that window, but what is left of
// it is a few instructions, and no queue.
func (t *Transport[K]) permitted(request *http.Request) *http.Request {
	if t.Permit == nil || request.Body == nil || request.Body == http.NoBody {
		return request
	}
	again := request.WithContext(request.Context()) // not to change the caller's
	ask := func() error { return t.permit(request) }
	again.Body = &permittedBody{request.Body, ask}
	if request.GetBody != nil {
		again.GetBody = func() (io.ReadCloser, error) {
			body, err := request.GetBody()
			return &permittedBody{body, ask}, err
		}
	}
	return again
}

// permittedBody is a body that is sent only with a permit.
type permittedBody struct {
	io.ReadCloser
	permit func() error
}

// Read implements io.Reader.
func (b *permittedBody) Read(p []byte) (int, error) {
	if err := b.permit(); err != nil {
		return 0, err
	}
	return b.ReadCloser.Read(p)
}

// describe adds to an intent what the request's body says of it.
func (t *Transport[K]) describe(intent *Intent, request *http.Request) error {
	body, err := peekBody(request)
	if err != nil {
		return fmt.Errorf("read the body of %s %s: %w", request.Method, request.URL.Path, err)
	}
	describeBody(intent, request.Header.Get("Content-Type"), body)
	intent.Fingerprint = t.fingerprint(request, body)
	intent.Shows, _ = request.Context().Value(effectKey{}).(func(metav1.Object) bool)
	return nil
}

// send sends a request that is entered, and settles the entry by its answer.
func (r *roundTripper[K]) send(request *http.Request, entry *Entry[K]) (*http.Response, error) {
	ledger := r.transport.Ledger
	var dialling, connected atomic.Bool
	ctx := httptrace.WithClientTrace(request.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { dialling.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	response, err := r.next.RoundTrip(request.WithContext(ctx))
	switch {
	case err != nil && dialling.Load() && !connected.Load():
		// It asked for a connection and got none: nothing was sent.
		ledger.Unsent(entry)
		return nil, err
	case err != nil:
		ledger.Doubt(entry)
		return nil, err
	case response.StatusCode >= 200 && response.StatusCode < 300:
		ledger.Settle(entry, versionIn(response.Header.Get("Content-Type"), readBody(response)))
	case outdated(response, entry.intent):
		ledger.Outdate(entry)
	case refused(response.StatusCode):
		ledger.Refuse(entry)
	default:
		ledger.Doubt(entry)
	}
	return response, nil
}

// refused reports whether an answer's code says that the write did not happen. All but
// 408 of the 4xx do; a 5xx says nothing, since the API server may be at it still.
func refused(code int) bool {
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout
}

// outdated reports whether an answer says that what the write was decided on is old: a
// precondition was not met, a test failed, the object is gone, or the name is taken. A
// creation is also answered 409 for reasons that have nothing to do with its name, by a
// quota say.
func outdated(response *http.Response, intent Intent) bool {
	switch response.StatusCode {
	case http.StatusConflict:
		return intent.Verb != "create" || statusIn(readBody(response)).Reason == metav1.StatusReasonAlreadyExists
	case http.StatusNotFound:
		return intent.Verb != "create"
	case http.StatusUnprocessableEntity:
		return intent.Tests && isTestFailed(statusIn(readBody(response)))
	default:
		return false
	}
}

// fingerprint identifies a request by its method, path, query and body.
func (t *Transport[K]) fingerprint(request *http.Request, body []byte) uint64 {
	seed := t.seed.Load()
	if seed == nil {
		fresh := maphash.MakeSeed()
		t.seed.CompareAndSwap(nil, &fresh)
		seed = t.seed.Load()
	}
	var hash maphash.Hash
	hash.SetSeed(*seed)
	hash.WriteString(request.Method)
	hash.WriteString(request.URL.RequestURI())
	hash.Write(body)
	return hash.Sum64()
}

// readBody reads the answer's body and puts it back. It returns nil if the connection
// broke in the midst; whoever reads the body next meets the same error.
func readBody(response *http.Response) []byte {
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		response.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), broken{err}))
		return nil
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return body
}

// broken gives the error with which a body ended to whoever reads it next.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// peekBody returns the request's body without using it up.
func peekBody(request *http.Request) ([]byte, error) {
	switch {
	case request.Body == nil || request.Body == http.NoBody:
		return nil, nil
	case request.GetBody != nil:
		body, err := request.GetBody()
		if err != nil {
			return nil, err
		}
		defer func() { _ = body.Close() }()
		return io.ReadAll(body)
	default:
		body, err := io.ReadAll(request.Body)
		_ = request.Body.Close()
		request.Body = io.NopCloser(bytes.NewReader(body))
		return body, err
	}
}

// closeBody does what http.RoundTripper owes its caller when it doesn't send a request.
func closeBody(request *http.Request) {
	if request.Body != nil {
		_ = request.Body.Close()
	}
}
