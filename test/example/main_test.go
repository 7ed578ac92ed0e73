package main

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"warmpool.dev/controller/hack/controlplane"
)

var controlPlane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	// Informers and workers complain of each fault, as they should.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	os.Exit(controlplane.RunTests(m, controlplane.Options{}, func(cp *controlplane.ControlPlane) { controlPlane = cp }))
}

// deadline is many times what an unloaded machine needs for any one step.
const deadline = 60 * time.Second

// administrator is how a test reaches the API server, without a limit on requests per
// second.
func administrator(t *testing.T) *rest.Config {
	t.Helper()
	path, err := controlPlane.Kubeconfig(controlplane.Admin)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

// newNamespace makes a namespace that is deleted when the test ends.
func newNamespace(t *testing.T, kube kubernetes.Interface) string {
	t.Helper()
	namespace, err := kube.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "example-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kube.CoreV1().Namespaces().Delete(context.Background(), namespace.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return namespace.Name
}

// eventually calls check until it returns nil, and ends the test if it doesn't in time.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("waited %s for %s: %v", deadline, what, err)
		}
	}
}
