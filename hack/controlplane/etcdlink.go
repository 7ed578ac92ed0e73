package controlplane

// The way from an API server to etcd, which a test can cut: how an API server that lags
// is made for real.

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// EtcdLink is a TCP proxy between one API server and etcd. An API server that is cut off
// goes on answering from its caches what may be old, and watches of it are silent. The
// methods are safe for concurrent use; each may be called in any state.
type EtcdLink struct {
	address string // where the API server finds it
	target  string // etcd
	pipes   sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil: refused
	conns    map[net.Conn]struct{}
	flows    chan struct{} // closed while bytes may pass
	closed   bool
}

// newEtcdLink opens a link on address, one of this machine's, to etcd at target.
func newEtcdLink(address, target string) (*EtcdLink, error) {
	l := &EtcdLink{address: address, target: target, conns: map[net.Conn]struct{}{}, flows: make(chan struct{})}
	close(l.flows)
	if err := l.Restore(); err != nil {
		return nil, err
	}
	return l, nil
}

// Stall holds up all bytes, in both directions, until Restore or Refuse. Nothing is
// closed, and connections can be made, on which nobody answers. What was sent meanwhile
// arrives after Restore: a write that its sender has long given up may happen then.
func (l *EtcdLink) Stall() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.flows:
		l.flows = make(chan struct{})
	default: // it is stalled already
	}
}

// Refuse resets all connections and refuses new ones, until Restore. What a stall held
// up is lost.
func (l *EtcdLink) Refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuseLocked()
}

func (l *EtcdLink) refuseLocked() {
	if l.listener != nil {
		_ = l.listener.Close() // its error tells that it was closed already
		l.listener = nil
	}
	for c := range l.conns {
		reset(c)
	}
	l.flowLocked()
}

// Restore lets everything pass again, whichever way it was cut.
func (l *EtcdLink) Restore() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flowLocked()
	if l.listener != nil || l.closed {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", l.address)
	if err != nil {
		return fmt.Errorf("opening the link to etcd at %s: %w", l.target, err)
	}
	l.listener = listener
	l.pipes.Go(func() { l.accept(listener) })
	return nil
}

// close ends the link for good and returns when nothing of it is left.
func (l *EtcdLink) close() {
	l.mu.Lock()
	l.closed = true
	l.refuseLocked()
	l.mu.Unlock()
	l.pipes.Wait()
}

// flowLocked lets bytes pass.
func (l *EtcdLink) flowLocked() {
	select {
	case <-l.flows:
	default:
		close(l.flows)
	}
}

// accept takes connections until the listener is closed.
func (l *EtcdLink) accept(listener net.Listener) {
	for {
		in, err := listener.Accept()
		if err != nil {
			return
		}
		l.pipes.Go(func() { l.connect(in) })
	}
}

// connect joins a connection of the API server's to one to etcd until either ends.
func (l *EtcdLink) connect(in net.Conn) {
	out, err := new(net.Dialer).Dial("tcp", l.target)
	if err != nil {
		reset(in)
		return
	}
	if !l.keep(in, out) {
		return
	}
	defer l.drop(in, out)
	var both sync.WaitGroup
	both.Go(func() { l.copy(in, out) })
	both.Go(func() { l.copy(out, in) })
	both.Wait()
}

// keep notes connections that Refuse is to reset. It returns false, and resets them
// itself, if the link is refused already.
func (l *EtcdLink) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		if l.listener == nil {
			reset(c)
		} else {
			l.conns[c] = struct{}{}
		}
	}
	return l.listener != nil
}

func (l *EtcdLink) drop(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		delete(l.conns, c)
		_ = c.Close() // it was closed already, or nobody is left to tell
	}
}

// copy passes bytes on until one of the two connections ends, and ends the other.
func (l *EtcdLink) copy(to, from net.Conn) {
	defer func() { _ = to.Close() }() // as the other was
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		l.mu.Lock()
		flows := l.flows
		l.mu.Unlock()
		<-flows
		if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

// reset closes a connection without a goodbye, so that the peer sees a reset.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it fails on a closed connection only
	}
	_ = c.Close() // the same
}
