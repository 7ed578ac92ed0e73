package environment

// A proxy between a controller and its API server, which keeps what went to and fro, and
// through which things can go wrong.

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/test/faultproxy"
)

// StartProxy starts a proxy of that name in front of an API server, as the controller
// reaches it. It lives as long as the test, for its log.
func StartProxy(t testing.TB, server *controlplane.APIServer, name string) *faultproxy.Proxy {
	t.Helper()
	proxy, err := faultproxy.Start(faultproxy.Options{Name: name, Target: ControllerConfig(t, server)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return proxy
}

// ThroughProxy returns the flag with which a controller reaches the API server through a
// proxy.
func ThroughProxy(t testing.TB, server *controlplane.APIServer, proxy *faultproxy.Proxy) string {
	t.Helper()
	content, err := proxy.Kubeconfig(ControllerConfig(t, server))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return "--kubeconfig=" + path
}

// ControllerConfig is how the controller logs in at an API server.
func ControllerConfig(t testing.TB, server *controlplane.APIServer) *rest.Config {
	t.Helper()
	path, err := server.Kubeconfig(controlplane.Controller)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	return config
}
