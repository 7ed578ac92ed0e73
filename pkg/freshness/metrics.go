package freshness

// Metrics: what all the guards did, and where time goes between a write and the
// reconcile that sees it.
//
// Closes: guessing. A guard that never fires may be dead code, and a slow loop may be
// slow because of the API server, the watch, the queue, the work, or the Go runtime.
//
// Costs: an atomic addition on the fast path.

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Guard names a guard in metrics.
type Guard string

// The guards.
const (
	GuardGate      Guard = "gate"
	GuardWatermark Guard = "watermark"
	GuardFeed      Guard = "feed"
	GuardLedger    Guard = "ledger"
	GuardTransport Guard = "transport"
	GuardBacklog   Guard = "backlog"
	GuardValidator Guard = "validator"
	GuardFence     Guard = "fence"
	GuardConfirm   Guard = "confirm"
	GuardQueue     Guard = "queue"
	GuardPatch     Guard = "patch"
)

// Metrics are the metrics of one set of guards. It is a prometheus.Collector: register
// it where the process's metrics are served. A nil *Metrics counts nothing. It is safe
// for concurrent use. Make it with NewMetrics.
type Metrics struct {
	firings  *prometheus.CounterVec
	checks   *prometheus.CounterVec
	fresh    prometheus.Counter
	stale    prometheus.Counter
	writes   *prometheus.CounterVec
	parked   prometheus.Gauge
	parking  *prometheus.HistogramVec
	release  prometheus.Histogram
	visible  *prometheus.HistogramVec
	waiting  *prometheus.HistogramVec
	working  *prometheus.HistogramVec
	queued   *prometheus.GaugeVec
	handling *prometheus.HistogramVec
	silence  *prometheus.GaugeVec
	all      []prometheus.Collector
}

// seconds are the buckets of all histograms, from 100 µs to about 100 s.
var seconds = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25, 50, 100}

// NewMetrics returns metrics that count from 0.
func NewMetrics() *Metrics {
	m := &Metrics{
		firings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshness_guard_firings_total",
			Help: "How often a guard kept something from going wrong, by guard and by what it did.",
		}, []string{"guard", "action"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshness_checks_total",
			Help: "How often a key was checked before work on it, by whether its caches were fresh.",
		}, []string{"result"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freshness_writes_total",
			Help: "Writes under a key, by resource, verb and what became of them: settled (its version is known), done (it is not), refused, unsent, in_doubt (no answer).",
		}, []string{"resource", "verb", "outcome"}),
		parked: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "freshness_parked_keys",
			Help: "Keys that wait for their caches to catch up.",
		}),
		parking: histogram("freshness_parked_seconds",
			"How long a key waited for its caches to catch up, by what it waited for.", "cause"),
		release: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "freshness_release_seconds",
			Help:    "Time from the change of a store's version to the return of a key that waited for it to the queue.",
			Buckets: seconds,
		}),
		visible: histogram("freshness_write_to_cache_seconds",
			"Time from the answer to a write until the cache had reached the write's version.", "resource"),
		waiting: histogram("freshness_queue_wait_seconds",
			"How long a key was ready in the queue before a worker took it, by class.", "class"),
		working: histogram("freshness_reconcile_seconds",
			"How long a reconcile took, by result: ok, error, parked.", "result"),
		queued: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "freshness_informer_queued_events",
			Help: "Events that an informer has received but not yet put into its store.",
		}, []string{"resource"}),
		handling: histogram("freshness_informer_processing_seconds",
			"How long an informer took to put an event into its store and hand it to its handlers.", "resource"),
		silence: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "freshness_feed_silence_seconds",
			Help: "Time since the last sign of life on a feed's watch: an event, a bookmark, a list.",
		}, []string{"resource"}),
	}
	m.fresh, m.stale = m.checks.WithLabelValues("fresh"), m.checks.WithLabelValues("stale")
	m.all = []prometheus.Collector{m.firings, m.checks, m.writes, m.parked, m.parking, m.release,
		m.visible, m.waiting, m.working, m.queued, m.handling, m.silence}
	return m
}

func histogram(name, help, label string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds}, []string{label})
}

// RuntimeCollector returns the Go runtime's own pauses: garbage collection and the
// time that goroutines wait for a processor. They tell whether a slow loop is slow
// because of its work or because of the runtime. Register it once in a process,
// instead of client_golang's default Go collector.
func RuntimeCollector() prometheus.Collector {
	return collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(
		collectors.MetricsGC, collectors.MetricsScheduler))
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descriptions chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(descriptions)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(metrics)
	}
}

// fired counts that a guard did something.
func (m *Metrics) fired(guard Guard, action string) {
	if m != nil {
		m.firings.WithLabelValues(string(guard), action).Inc()
	}
}

func (m *Metrics) checked(fresh bool) {
	switch {
	case m == nil:
	case fresh:
		m.fresh.Inc()
	default:
		m.stale.Inc()
	}
}

func (m *Metrics) wrote(resource schema.GroupResource, verb, outcome string) {
	if m != nil {
		m.writes.WithLabelValues(resource.String(), verb, outcome).Inc()
	}
}

func (m *Metrics) setParked(keys int) {
	if m != nil {
		m.parked.Set(float64(keys))
	}
}

func (m *Metrics) released(cause Cause, parked time.Duration) {
	if m != nil {
		m.parking.WithLabelValues(string(cause)).Observe(parked.Seconds())
	}
}

func (m *Metrics) releaseTook(d time.Duration) {
	if m != nil {
		m.release.Observe(d.Seconds())
	}
}

func (m *Metrics) becameVisible(resource schema.GroupResource, after time.Duration) {
	if m != nil {
		m.visible.WithLabelValues(resource.String()).Observe(after.Seconds())
	}
}

func (m *Metrics) waited(class Class, d time.Duration) {
	if m != nil {
		m.waiting.WithLabelValues(class.String()).Observe(d.Seconds())
	}
}

func (m *Metrics) worked(result string, d time.Duration) {
	if m != nil {
		m.working.WithLabelValues(result).Observe(d.Seconds())
	}
}

// Measure returns a middleware that measures how long reconciles take, by their result.
func Measure[K comparable](m *Metrics, c clock.PassiveClock) Middleware[K] {
	return func(next Reconciler[K]) Reconciler[K] {
		return func(ctx context.Context, key K) (Result, error) {
			start := c.Now()
			result, err := next(ctx, key)
			switch {
			case err != nil:
				m.worked("error", c.Since(start))
			case result.Parked:
				m.worked("parked", c.Since(start))
			default:
				m.worked("ok", c.Since(start))
			}
			return result, err
		}
	}
}

func (m *Metrics) silent(resource schema.GroupVersionResource, d time.Duration) {
	if m != nil {
		m.silence.WithLabelValues(resource.GroupResource().String()).Set(d.Seconds())
	}
}

func (m *Metrics) queuedEvents(resource schema.GroupVersionResource) cache.GaugeMetric {
	if m == nil {
		return nothing{}
	}
	return m.queued.WithLabelValues(resource.GroupResource().String())
}

func (m *Metrics) eventProcessing(resource schema.GroupVersionResource) cache.HistogramMetric {
	if m == nil {
		return nothing{}
	}
	return m.handling.WithLabelValues(resource.GroupResource().String())
}

// nothing is a metric that isn't kept.
type nothing struct{}

func (nothing) Set(float64)     {}
func (nothing) Observe(float64) {}
