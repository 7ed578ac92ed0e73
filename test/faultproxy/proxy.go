package faultproxy

// The proxy itself, and the way of a request through it.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
)

// Options say what a proxy stands between. Target is required.
type Options struct {
	// Name is whose requests come through here, for the log: "a", "replica-0".
	Name string
	// Target leads to the API server. The proxy's own requests (Record) are made
	// with its token; requests of clients keep theirs.
	Target *rest.Config
	// HTTP1 offers clients HTTP/1.1 only: each watch then has a TCP connection of
	// its own, and nothing pings it. Otherwise they get HTTP/2, where all requests
	// of a client share one.
	HTTP1 bool
	// Clock stamps the log. Nil: the machine's.
	Clock clock.PassiveClock
}

// Proxy is a running proxy. Its methods are safe for concurrent use.
type Proxy struct {
	options Options
	clock   clock.PassiveClock
	server  *http.Server
	address string
	ca      []byte
	conns   connections

	ctx     context.Context // ends when the proxy is closed
	cancel  context.CancelFunc
	writes  context.Context // ends a little later, for writes that are under way
	abandon context.CancelFunc
	wg      sync.WaitGroup // all goroutines of the proxy's

	mu       sync.Mutex
	closed   bool
	changed  chan struct{} // closed and made anew at each change of what follows
	upstream *upstream
	others   map[*rest.Config]*upstream // of Elsewhere
	faults   []*Fault
	streams  map[*stream]struct{}
	log      []*Exchange
	events   []Delivery
	nextID   int64
	newest   string // the highest resourceVersion that has passed
}

// upstream is an API server.
type upstream struct {
	base   *url.URL
	client *http.Client
}

// Start starts a proxy on a free port of 127.0.0.1. Whoever calls it calls Close.
func Start(options Options) (*Proxy, error) {
	p := &Proxy{
		options: options,
		clock:   options.Clock,
		changed: make(chan struct{}),
		streams: map[*stream]struct{}{},
		others:  map[*rest.Config]*upstream{},
	}
	if p.clock == nil {
		p.clock = clock.RealClock{}
	}
	if err := p.Retarget(options.Target); err != nil {
		return nil, fmt.Errorf("start a fault proxy: %w", err)
	}
	certificate, ca, err := newCertificate(p.clock.Now())
	if err != nil {
		return nil, fmt.Errorf("start a fault proxy: %w", err)
	}
	p.ca = ca
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a fault proxy: %w", err)
	}
	p.address = listener.Addr().String()
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.writes, p.abandon = context.WithCancel(context.Background())
	p.server = newServer(p, certificate, options.HTTP1)
	p.wg.Go(func() {
		// It returns when Close closes the listener; there is nobody to tell.
		_ = p.server.ServeTLS(p.conns.listener(listener), "", "")
	})
	return p, nil
}

// closeGrace is how long Close waits for the answers to writes. An API server that
// was frozen never answers.
const closeGrace = 5 * time.Second

// Close ends the proxy, cuts all connections and returns when every write that was on
// its way to the API server is answered, or closeGrace is over. What was held is
// dropped.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.conns.cut()
	_ = p.server.Close() // the listener's error: it is closed either way
	defer p.abandon()
	defer time.AfterFunc(closeGrace, p.abandon).Stop()
	p.wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream.client.CloseIdleConnections()
	for _, other := range p.others {
		other.client.CloseIdleConnections()
	}
}

// enter counts a goroutine that Close waits for. It returns false, and doesn't count
// it, once the proxy is closed.
func (p *Proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.wg.Add(1)
	}
	return !p.closed
}

// Retarget sends later requests to another API server. Watches that are open stay
// where they are: end them with EndWatches or Cut.
func (p *Proxy) Retarget(config *rest.Config) error {
	if config == nil {
		return errors.New("no API server: set Options.Target")
	}
	target, err := newUpstream(config)
	if err != nil {
		return fmt.Errorf("use the API server at %s: %w", config.Host, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.upstream != nil {
		p.upstream.client.CloseIdleConnections()
	}
	p.upstream = target
	return nil
}

// elsewhere is the API server of config, for Elsewhere.
func (p *Proxy) elsewhere(config *rest.Config) (*upstream, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.others[config] == nil {
		target, err := newUpstream(config)
		if err != nil {
			return nil, fmt.Errorf("use the API server at %s: %w", config.Host, err)
		}
		p.others[config] = target
	}
	return p.others[config], nil
}

func newUpstream(config *rest.Config) (*upstream, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	return &upstream{base: base, client: &http.Client{
		Transport: &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true, DisableCompression: true},
		// A redirect is the client's to follow.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// URL is where the proxy serves, with TLS.
func (p *Proxy) URL() string { return "https://" + p.address }

// Config returns a copy of config that leads to the proxy. The bearer token stays;
// client certificates can't pass a proxy and are left out.
func (p *Proxy) Config(config *rest.Config) *rest.Config {
	through := rest.CopyConfig(config)
	through.Host = p.URL()
	through.TLSClientConfig = rest.TLSClientConfig{CAData: p.ca}
	return through
}

// Kubeconfig returns the content of a kubeconfig file that leads to the proxy with
// the bearer token of config.
func (p *Proxy) Kubeconfig(config *rest.Config) ([]byte, error) {
	const name = "faultproxy"
	content := clientcmdapi.NewConfig()
	content.Clusters[name] = &clientcmdapi.Cluster{Server: p.URL(), CertificateAuthorityData: p.ca}
	content.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: config.BearerToken, TokenFile: config.BearerTokenFile}
	content.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	content.CurrentContext = name
	return clientcmd.Write(*content)
}

// Exchange is one request on its way, with its answer once there is one. An action
// may read it while it runs, and not keep it.
type Exchange struct {
	Request
	method   string
	rawQuery string
	header   http.Header
	conn     *conn
	http1    bool
	target   *upstream       // nil: the proxy's
	ctx      context.Context // ends with the client or the proxy
}

// ServeHTTP is the story of one request: read it, put the faults around it, tell the
// client what came of it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.enter() {
		panic(http.ErrAbortHandler)
	}
	defer p.wg.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the client went away while it spoke
	}
	x := p.receive(ctx, r, body)
	p.reply(w, x, p.through(x, p.standing()))
}

// receive makes an exchange of a request and enters it into the log.
func (p *Proxy) receive(ctx context.Context, r *http.Request, body []byte) *Exchange {
	x := &Exchange{
		Request:  parseRequest(r, body),
		method:   r.Method,
		rawQuery: r.URL.RawQuery,
		header:   r.Header.Clone(),
		conn:     connOf(ctx),
		http1:    r.ProtoMajor == 1,
		ctx:      ctx,
	}
	x.Who = p.options.Name
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nextID++
	x.ID = p.nextID
	x.Arrived = p.clock.Now()
	p.log = append(p.log, x)
	p.changedLocked()
	return x
}

// through sends the request past the faults, outermost first, to the API server.
func (p *Proxy) through(x *Exchange, faults []*Fault) *Answer {
	for i, f := range faults {
		if f.rule.Do.request != nil && f.rule.Match.request(&x.Request) && f.take(x) {
			return f.rule.Do.request(f, x, func() *Answer { return p.through(x, faults[i+1:]) })
		}
	}
	return p.forward(x)
}

// forward sends the request to the API server and enters the answer into the log.
// Nil: there was none.
func (p *Proxy) forward(x *Exchange) *Answer {
	ctx := x.ctx
	if x.IsWrite() {
		// What has been sent can't be called back: it may happen, client or not.
		ctx = p.writes
	}
	p.mu.Lock()
	target := x.target
	if target == nil {
		target = p.upstream
	}
	x.Forwarded = p.clock.Now()
	p.changedLocked()
	p.mu.Unlock()

	answer := target.send(ctx, x)
	p.mu.Lock()
	defer p.mu.Unlock()
	x.Answered = p.clock.Now()
	if answer != nil {
		x.readAnswer(answer)
		p.newest = newer(p.newest, x.AnswerRV)
	}
	p.changedLocked()
	return answer
}

// hopHeaders concern one connection, and not the request.
var hopHeaders = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Accept-Encoding"}

// send makes the request and reads the answer, whole unless it is a watch. Nil: there
// was none, because the API server is down or the client has gone.
func (u *upstream) send(ctx context.Context, x *Exchange) *Answer {
	target := u.base.JoinPath(x.Path)
	target.RawQuery = x.rawQuery
	r, err := http.NewRequestWithContext(ctx, x.method, target.String(), bytes.NewReader(x.Body))
	if err != nil {
		return nil
	}
	r.Header = x.header.Clone()
	for _, name := range hopHeaders {
		r.Header.Del(name)
	}
	response, err := u.client.Do(r)
	if err != nil {
		return nil
	}
	answer := &Answer{Code: response.StatusCode, Header: response.Header}
	if x.Verb == "watch" && response.StatusCode == http.StatusOK {
		if answer.source, err = upstreamEvents(response); err != nil {
			_ = response.Body.Close() // nobody reads it
			return statusAnswer(apierrors.NewInternalError(err).Status())
		}
		return answer
	}
	defer func() { _ = response.Body.Close() }() // read to its end, or broken anyway
	if answer.Body, err = io.ReadAll(response.Body); err != nil {
		return nil
	}
	return answer
}

// reply tells the client the answer.
func (p *Proxy) reply(w http.ResponseWriter, x *Exchange, a *Answer) {
	switch {
	case a == nil:
		if x.http1 {
			x.conn.reset()
		}
		panic(http.ErrAbortHandler)
	case a.hang:
		<-x.ctx.Done()
		panic(http.ErrAbortHandler)
	}
	p.mu.Lock()
	x.Replied = p.clock.Now()
	x.Told = a.Code
	if x.Verb == "list" && a.Code == http.StatusOK {
		x.ToldRV, _ = readList(a.Body) // not the API server's, where a fault answered
	}
	p.changedLocked()
	p.mu.Unlock()
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	w.Header().Del("Content-Length") // of a body that a fault may have changed
	if a.source != nil {
		p.serveWatch(w, x, a)
		return
	}
	a.write(x.ctx, w)
}
