// Package bench measures, at a real API server, what can't be measured without one.
// `make bench` runs it, and the benchmarks of the packages beside it.
package bench
