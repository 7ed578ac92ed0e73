package freshness

// Halves: one configuration for reads and watches, and another for writes.
//
// Closes: the hand-out that waits behind a slow watch, and the write of which nobody can
// say when it is over. client-go sends everything over one HTTP/2 connection, whose flow
// control and whose loss hit all of it. And a watch needs a client without a timeout, a
// write one with: the timeout is sent to the API server too, which abandons the write
// then, so that it is known from when on a write without an answer can't happen any more.
//
// Costs: a second connection.

import (
	"context"
	"net"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

// split returns a configuration for reads and one for writes, with connections of their
// own, and a function that closes all connections of the reads, so that the next ones may
// lead to another API server.
func split(config *rest.Config, writeTimeout time.Duration) (reads, writes *rest.Config, reconnect func()) {
	reads, writes = rest.CopyConfig(config), rest.CopyConfig(config)
	reads.Timeout, writes.Timeout = 0, writeTimeout
	if config.Transport != nil {
		// The connections are that transport's own business.
		return reads, writes, func() {}
	}
	dialer := connrotation.NewDialer(dialOf(config))
	reads.Dial = dialer.DialContext
	writes.Dial = dialOf(config)
	return reads, writes, dialer.CloseAll
}

// dialOf returns how a configuration dials. A function that is set keeps client-go from
// sharing a transport with other configurations.
func dialOf(config *rest.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	if config.Dial != nil {
		return config.Dial
	}
	return (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
}
