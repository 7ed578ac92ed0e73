package freshness

// Progress: the signal that a store's version has moved, from the one place in client-go
// that knows of every move: the gauge that its informers keep for metrics.

import "k8s.io/client-go/tools/cache"

// progressSignal is the metrics provider of a feed's informer. Its gauge is set under
// the store's lock on each change of the store's version: it must not block, nor
// touch the store.
type progressSignal struct{ feed *Feed }

var _ cache.InformerMetricsProvider = progressSignal{}

// NewStoreResourceVersionMetric implements cache.InformerMetricsProvider.
func (p progressSignal) NewStoreResourceVersionMetric(cache.InformerNameAndResource) cache.GaugeMetric {
	return p
}

// NewQueuedItemMetric implements cache.InformerMetricsProvider.
func (p progressSignal) NewQueuedItemMetric(cache.InformerNameAndResource) cache.GaugeMetric {
	return p.feed.config.Metrics.queuedEvents(p.feed.config.Resource)
}

// NewProcessingLatencyMetric implements cache.InformerMetricsProvider.
func (p progressSignal) NewProcessingLatencyMetric(cache.InformerNameAndResource) cache.HistogramMetric {
	return p.feed.config.Metrics.eventProcessing(p.feed.config.Resource)
}

// Set implements cache.GaugeMetric.
func (p progressSignal) Set(float64) {
	p.feed.moved.Store(p.feed.config.Clock.Now().UnixNano())
	for _, signal := range *p.feed.followers.Load() {
		select {
		case signal <- struct{}{}:
		default: // the signal that is there says the same
		}
	}
}
