package controlplane

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// echo is a server that repeats each line.
func echo(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	return listener
}

// linkTo opens a link that ends with the test.
func linkTo(t *testing.T, target net.Listener) *EtcdLink {
	t.Helper()
	port, err := takePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { releasePort(port) })
	link, err := newEtcdLink(local(port), target.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.close)
	return link
}

// client is a connection through a link.
type client struct {
	t *testing.T
	net.Conn
	lines *bufio.Reader
}

func dial(t *testing.T, link *EtcdLink) *client {
	t.Helper()
	c, err := net.Dial("tcp", link.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &client{t, c, bufio.NewReader(c)}
}

func (c *client) say(line string) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c, line); err != nil {
		c.t.Fatal(err)
	}
}

// hear waits for a line, and returns how that ended.
func (c *client) hear(within time.Duration) (string, error) {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		c.t.Fatal(err)
	}
	line, err := c.lines.ReadString('\n')
	return line, err
}

const (
	soon    = 10 * time.Second
	already = 100 * time.Millisecond // long enough for what isn't held up
)

func (c *client) mustHear(want string) {
	c.t.Helper()
	if got, err := c.hear(soon); err != nil || got != want+"\n" {
		c.t.Errorf("heard %q, %v; want %q", got, err, want)
	}
}

// mustHearNothing fails the test if a line comes, or the connection ends.
func (c *client) mustHearNothing() {
	c.t.Helper()
	if got, err := c.hear(already); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("heard %q, %v; want silence", got, err)
	}
}

func TestALinkThatIsStalledHoldsBytesUpAndClosesNothing(t *testing.T) {
	link := linkTo(t, echo(t))
	c := dial(t, link)
	c.say("before")
	c.mustHear("before")

	link.Stall()
	link.Stall() // again: nothing new
	c.say("held up")
	c.mustHearNothing()
	late := dial(t, link)
	late.say("also held up")
	late.mustHearNothing()

	for range 2 { // again: nothing new
		if err := link.Restore(); err != nil {
			t.Fatal(err)
		}
	}
	c.mustHear("held up")
	late.mustHear("also held up")
}

func TestALinkThatIsRefusedResetsConnectionsAndTakesNone(t *testing.T) {
	for name, first := range map[string]func(*EtcdLink){
		"while bytes pass":        func(*EtcdLink) {},
		"while they are held up":  (*EtcdLink).Stall,
		"while it is refused too": (*EtcdLink).Refuse,
	} {
		t.Run(name, func(t *testing.T) {
			link := linkTo(t, echo(t))
			c := dial(t, link)
			c.say("before")
			c.mustHear("before")
			first(link)
			link.Refuse()
			if got, err := c.hear(soon); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("heard %q, %v; want a reset", got, err)
			}
			if _, err := net.Dial("tcp", link.address); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("a new connection: %v; want it refused", err)
			}
			if err := link.Restore(); err != nil {
				t.Fatal(err)
			}
			again := dial(t, link)
			again.say("after")
			again.mustHear("after")
		})
	}
}

func TestALinkWhoseTargetIsDownResetsConnections(t *testing.T) {
	target := echo(t)
	link := linkTo(t, target)
	if err := target.Close(); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", link.address)
	if err != nil {
		return // it was reset at once
	}
	c := &client{t, conn, bufio.NewReader(conn)}
	if got, err := c.hear(soon); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("heard %q, %v; want the connection to end", got, err)
	}
}

func TestALinkPassesTheEndOfAConnectionOn(t *testing.T) {
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = target.Close() })
	link := linkTo(t, target)
	c := dial(t, link)
	etcd, err := target.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := etcd.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := c.hear(soon); !errors.Is(err, io.EOF) {
		t.Errorf("heard %q, %v; want the end", got, err)
	}
	eventually(t, "the link forgets the connections", func() bool {
		link.mu.Lock()
		defer link.mu.Unlock()
		return len(link.conns) == 0
	})
}

func TestALinkThatIsClosedStaysSo(t *testing.T) {
	link := linkTo(t, echo(t))
	c := dial(t, link)
	c.say("before")
	c.mustHear("before")
	link.Stall()
	c.say("held up")
	link.close() // returns although a byte is held up
	if got, err := c.hear(soon); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("heard %q, %v; want the connection to end", got, err)
	}
	if err := link.Restore(); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", link.address); err == nil {
		t.Error("it takes connections after its end")
	}
}
