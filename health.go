package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"
)

// health serves /healthz, /readyz and /metrics. It is safe for concurrent use. caches
// is asked whether the caches are complete and healthy; it must be set.
type health struct {
	caches  func() error
	leading atomic.Bool
}

// lead tells that this process leads. A standby whose caches are complete is ready too:
// it can take over.
func (h *health) lead() { h.leading.Store(true) }

// serve listens on address until ctx ends; an empty address serves nothing.
func (h *health) serve(ctx context.Context, address string) error {
	if address == "" {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve health and metrics: %w: give another --listen-address, or an empty one for none", err)
	}
	klog.FromContext(ctx).Info("Serving health and metrics", "address", listener.Addr().String())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", h.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "Serving health and metrics failed")
		}
	}()
	return nil
}

func (h *health) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := h.caches(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	if h.leading.Load() {
		fmt.Fprintln(w, "leading")
	} else {
		fmt.Fprintln(w, "standing by")
	}
}
