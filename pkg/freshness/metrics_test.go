package freshness

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// counterValue reads a counter, by way of a registry since the type of its sample
// belongs to a module that the product doesn't require.
func counterValue(t *testing.T, counter prometheus.Counter) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(counter)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families[0].GetMetric()[0].GetCounter().GetValue()
}

// histogramSum returns the sum of what a histogram with one label has measured.
func histogramSum(t *testing.T, metrics *Metrics, name, label string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == name && metric.GetLabel()[0].GetValue() == label {
				return metric.GetHistogram().GetSampleSum()
			}
		}
	}
	t.Fatalf("no metric %s for %s", name, label)
	return 0
}

func TestTheMetricsCanBeRegisteredBesideTheRuntimes(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	metrics := NewMetrics()
	registry.MustRegister(metrics, RuntimeCollector())
	metrics.fired(GuardLedger, "x")
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, family := range families {
		found[family.GetName()] = true
		if family.GetHelp() == "" {
			t.Errorf("%s has no help", family.GetName())
		}
	}
	for _, want := range []string{"freshness_guard_firings_total", "freshness_parked_keys", "freshness_release_seconds", "go_sched_latencies_seconds", "go_gc_pauses_seconds"} {
		if !found[want] {
			t.Errorf("%s is missing", want)
		}
	}
}

func TestWithoutMetricsNothingIsCounted(*testing.T) {
	var none *Metrics
	none.fired(GuardLedger, "x")
	none.checked(true)
	none.waited(Waiting, 0)
	none.queuedEvents(configMapsV1).Set(1)
	none.eventProcessing(configMapsV1).Observe(1)
}
