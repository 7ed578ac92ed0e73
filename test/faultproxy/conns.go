package faultproxy

// The clients' TCP connections, which can be cut, or go dead without a word.

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
)

// connections are those that are open. The zero value is ready to use.
type connections struct {
	mu   sync.Mutex
	open []*conn
}

// conn is one connection of a client, below TLS.
type conn struct {
	net.Conn
	owner *connections

	mu     sync.Mutex
	thawed chan struct{} // nil: bytes flow. Else closed when they do again
	closed chan struct{} // closed by Close
	once   sync.Once
}

type listener struct {
	net.Listener
	conns *connections
}

func (c *connections) listener(l net.Listener) net.Listener { return &listener{l, c} }

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, owner: l.conns, closed: make(chan struct{})}
	l.conns.mu.Lock()
	defer l.conns.mu.Unlock()
	l.conns.open = append(l.conns.open, c)
	return c, nil
}

// cut resets all connections.
func (c *connections) cut() {
	c.mu.Lock()
	open := slices.Clone(c.open)
	c.mu.Unlock()
	for _, conn := range open {
		conn.reset()
	}
}

// Read implements net.Conn. Bytes that come while the connection is frozen wait.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, c.passed(err)
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.passed(nil); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// passed waits until the connection isn't frozen, and returns err, or that the
// connection was closed meanwhile.
func (c *conn) passed(err error) error {
	c.mu.Lock()
	thawed := c.thawed
	c.mu.Unlock()
	if thawed == nil {
		return err
	}
	select {
	case <-thawed:
		return err
	case <-c.closed:
		return net.ErrClosed
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.owner.mu.Lock()
		defer c.owner.mu.Unlock()
		c.owner.open = slices.DeleteFunc(c.owner.open, func(other *conn) bool { return other == c })
	})
	return c.Conn.Close()
}

// freeze lets no byte pass in either direction until thaw is called. The client sees a
// connection on which nobody answers, not even pings.
func (c *conn) freeze() (thaw func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.thawed == nil {
		c.thawed = make(chan struct{})
	}
	mine := c.thawed
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.thawed == mine {
			close(mine)
			c.thawed = nil
		}
	}
}

// reset closes the connection without a goodbye, so that the peer's TCP sees a reset.
func (c *conn) reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it fails on a closed connection only
	}
	_ = c.Close() // the same
}

type connKey struct{}

// connContext makes a connection known to the requests that come over it.
func connContext(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secured.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

// Cut resets the TCP connections of all clients, and with them everything under way.
func (p *Proxy) Cut() { p.conns.cut() }

// BlackHole freezes the TCP connections that carry a watch that m chooses: no byte
// passes, no ping is answered, nothing is closed. Over HTTP/2 that stops whatever else
// the client sends on the same connection. Connections made afterwards work. Release
// lets the bytes flow again; Fired counts connections.
func (p *Proxy) BlackHole(m Match) *Fault {
	f := &Fault{p: p, rule: Rule{Name: "BlackHole " + m.String(), Match: m}}
	p.mu.Lock()
	defer p.mu.Unlock()
	frozen := map[*conn]bool{}
	for s := range p.streams {
		c := s.x.conn
		if p.closed || !m.openWatch(&s.x.Request) || frozen[c] {
			continue
		}
		frozen[c] = true
		thaw := c.freeze()
		ticket := make(chan struct{})
		f.held = append(f.held, ticket)
		f.fired++
		s.x.Faults = append(s.x.Faults, f.rule.Name)
		p.wg.Go(func() {
			select {
			case <-ticket:
			case <-c.closed:
			case <-p.ctx.Done():
			}
			thaw()
		})
	}
	return f
}

// newServer serves p to clients.
func newServer(p *Proxy, tlsCertificate tlsCertificate, http1 bool) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(!http1)
	return &http.Server{
		Handler:     p,
		Protocols:   protocols,
		TLSConfig:   tlsCertificate.config(),
		ConnContext: connContext,
		ErrorLog:    discard, // clients that go away are what this is for
	}
}
