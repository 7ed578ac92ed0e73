// Example is a controller of another kind than the warm pool's that takes the guards of
// pkg/freshness. For each Deployment with the label example.com/mirror=true it keeps one
// ConfigMap, owned by the Deployment, that repeats its replicas and its first image.
//
//	go run ./example -kubeconfig ~/.kube/config
//
//	main.go         flags and metrics
//	controller.go   what is wired to what: all that the guards ask of a controller
//	mirror.go       what the controller does
package main

import (
	"context"
	"flag"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"warmpool.dev/controller/pkg/freshness"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "How to reach the API server. Empty: as a Pod in the cluster.")
	namespace := flag.String("namespace", metav1.NamespaceAll, "The namespace to work in. Empty: all.")
	address := flag.String("metrics-address", "127.0.0.1:8081", "Address that serves /metrics.")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		klog.Fatal(err)
	}
	metrics, registry := freshness.NewMetrics(), prometheus.NewRegistry()
	registry.MustRegister(metrics, freshness.RuntimeCollector())
	go func() {
		klog.Fatal(http.ListenAndServe(*address, promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
	}()
	if err := run(ctx, config, *namespace, metrics); err != nil && ctx.Err() == nil {
		klog.Fatal(err)
	}
}
