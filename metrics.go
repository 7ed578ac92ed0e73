package main

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"warmpool.dev/controller/pkg/freshness"
)

// registry holds all that /metrics serves: the process, Go's runtime with its pauses,
// what the controller did, and what pkg/freshness counts of its guards.
var registry = newRegistry()

func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		freshness.RuntimeCollector())
	return r
}

// What the controller did.
var (
	handOuts = promauto.With(registry).NewCounter(prometheus.CounterOpts{
		Name: "warmpool_handouts_total",
		Help: "Pods handed out to claims.",
	})
	podsCreated = promauto.With(registry).NewCounter(prometheus.CounterOpts{
		Name: "warmpool_pods_created_total",
		Help: "Pods created for pools.",
	})
	podsDeleted = promauto.With(registry).NewCounter(prometheus.CounterOpts{
		Name: "warmpool_pods_deleted_total",
		Help: "Pods deleted by pools; those of deleted claims and pools are the garbage collector's.",
	})
	claimsExpired = promauto.With(registry).NewCounter(prometheus.CounterOpts{
		Name: "warmpool_claims_expired_total",
		Help: "Claims deleted since their lifetime was over.",
	})
	conflicts = promauto.With(registry).NewCounterVec(prometheus.CounterOpts{
		Name: "warmpool_conflicts_total",
		Help: "Writes that the API server refused because what they were decided on had changed. Each is normal; many a second tell of another writer, or of a slow cache.",
	}, []string{"write"})
)
