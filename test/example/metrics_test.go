package main

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"warmpool.dev/controller/pkg/freshness"
)

// firings is how often a guard did something.
func firings(t *testing.T, metrics *freshness.Metrics, guard, action string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "freshness_guard_firings_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if labels["guard"] == guard && labels["action"] == action {
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}
